package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/server"
)

func newDeployCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "deploy FILE",
		Short: "Deploy a service from its specification",
		Long: `Deploy a service. FILE is its specification, or PiCasso's deployment descriptor
({"imageName", "port_host", "port_container"}), as JSON; - is standard input. The same
specification again changes nothing.`,
		Example: `  weir-edge deploy shop.json`,
		Args:    exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			document, err := readFile(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			deployed, err := server.NewClient(g.socket).Deploy(cmd.Context(), document)
			if err != nil {
				return err
			}
			for _, note := range deployed.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), printable(note))
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

func readFile(in io.Reader, path string) (data []byte, err error) {
	if path == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	return data, nil
}

func newRemoveCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "rm SERVICE",
		Short: "Remove a service and all its instances",
		Args:  exactArgs("SERVICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return server.NewClient(g.socket).Remove(cmd.Context(), args[0])
		},
	}
}

func newProxyImageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "proxy-image",
		Short: "Write the image of service proxies, for docker load",
		Long: `Write the image of service proxies to standard output. Every node of a swarm has to
have it, and HAProxy (apt-get install haproxy), which the image takes from its node.`,
		Example: `  weir-edge proxy-image | docker load
  weir-edge proxy-image | ssh node2 docker load`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			archive, _, err := runtime.ProxyImageArchive()
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
