package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func newDeployCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "deploy FILE|SERVICE",
		Short: "Deploy a service from its specification, or from the repository",
		Long: `Deploy a service. FILE is its specification, or PiCasso's deployment descriptor
({"imageName", "port_host", "port_container"}), as JSON; - is standard input. SERVICE,
where there is no file of that name, is one that was pushed (weir-edge push). The same
again changes nothing.`,
		Example: `  weir-edge deploy shop.json
  weir-edge deploy shop`,
		Args: cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			deployed, err := deploy(cmd, server.NewClient(g.socket), args[0])
			if err != nil {
				return err
			}
			for _, note := range deployed.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), cmdline.PrintableLines(note))
			}
			what := "is there already"
			if deployed.Changed {
				what = "deployed"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", deployed.Service, what)
			return err
		},
	}
}

// deploy deploys a specification file; a name that is no file and has no dot or slash is deployed
// from the repository.
func deploy(cmd *cobra.Command, client *server.Client, what string) (edge.Deployed, error) {
	document, err := readFile(cmd.InOrStdin(), what)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(what, "./"):
		defer sayPulling(cmd, client, what)()
		return client.DeployStored(cmd.Context(), what)
	case err != nil:
		return edge.Deployed{}, err
	}
	if parsed, err := spec.Parse(document); err == nil { // if not, weir-edge says why
		defer sayPulling(cmd, client, parsed.Name)()
	}
	return client.Deploy(cmd.Context(), document)
}

// sayPulling prints when a deployment waits for an image, until the returned function is called.
func sayPulling(cmd *cobra.Command, client *server.Client, service string) (end func()) {
	ctx, cancel := context.WithCancel(cmd.Context())
	began, ended := time.Now(), make(chan struct{})
	go func() {
		defer close(ended)
		// An error is ignored here: the response of the deployment reports it.
		_ = client.Events(ctx, true, func(e edge.Event) error {
			if e.Kind == edge.EventPulling && e.Service == service && !e.At.Before(began) {
				fmt.Fprintln(cmd.ErrOrStderr(), cmdline.Printable(e.Message))
			}
			return nil
		})
	}()
	return func() {
		cancel()
		<-ended
	}
}

// readFile reads a specification file; the path "-" means in.
func readFile(in io.Reader, path string) (data []byte, err error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read the specification: %w", err)
		}
		defer file.Close()
		in = file
	}
	data, err = io.ReadAll(io.LimitReader(in, spec.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the specification: %w", err)
	case len(data) > spec.MaxBytes:
		return nil, fmt.Errorf("read the specification: %s has more than %d bytes: is it another file, such as the image?", path, spec.MaxBytes)
	}
	return data, nil
}

func newRemoveCommand(g *global) *cobra.Command {
	var stored bool
	cmd := &cobra.Command{
		Use:   "rm SERVICE",
		Short: "Remove a service and all its instances",
		Long: `Remove a service and all its instances. In the repository it stays; --repository takes
it out of there, when it is not deployed.`,
		Args: cmdline.ExactArgs("SERVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if stored {
				return server.NewClient(g.socket).Discard(cmd.Context(), args[0])
			}
			return server.NewClient(g.socket).Remove(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVar(&stored, "repository", false, "take it out of the repository")
	return cmd
}

func newProxyImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "proxy-image",
		Short: "Write the image of service proxies, for docker load",
		Long: `Write the image of service proxies to standard output. Every node of a swarm has to
have it, and HAProxy (apt-get install haproxy), which the image takes from its node.`,
		Example: `  weir-edge proxy-image | docker load
  weir-edge proxy-image | ssh node2 docker load`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmdline.IsTerminal(cmd.OutOrStdout()) {
				return cmdline.Usagef("an image is not for a terminal: %s | docker load", cmd.CommandPath())
			}
			archive, _, err := proxy.Archive()
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(archive); err != nil {
				return fmt.Errorf("write the image: %w", err)
			}
			return nil
		},
	}
}
