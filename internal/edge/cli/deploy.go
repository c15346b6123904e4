package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func newDeployCommand(g *global) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "deploy FILE|SERVICE",
		Short: "Deploy services from a Compose file, a specification, or the repository",
		Long: `Deploy services. FILE is a Compose file (.yaml), whose services are called
PROJECT-SERVICE; or the specification of one service, or PiCasso's deployment descriptor
({"imageName", "port_host", "port_container"}), as JSON; - is standard input. SERVICE,
where there is no file of that name, is one that was pushed (weir-edge push).

The same again changes nothing. Another specification or image of a service that runs replaces
its instances one by one; the service goes back by itself if the new version does not answer.
With --wait the command ends when all instances answer; its exit status is 1 if they do not.

Of a Compose file every key is honoured, refused with its line, or said to have no effect.
Beside these a service may have x-weir-edge: {maxUsers, responseTime, availability,
numUsers, algorithm, minInstances}.`,
		Example: `  weir-edge deploy compose.yaml
  weir-edge deploy --wait shop.json
  weir-edge deploy shop`,
		Args: cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := server.NewClient(g.socket)
			var all []edge.Deployed
			var err error
			if isCompose(args[0]) {
				all, err = deployCompose(cmd, client, args[0])
			} else {
				all = make([]edge.Deployed, 1)
				if all[0], err = deploy(cmd, client, args[0]); err == nil {
					err = printDeployed(cmd, &all[0])
				}
			}
			if err != nil || !wait {
				return err
			}
			return awaitDeployed(cmd, client, all)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all instances answer, and say how it ended")
	return cmd
}

// waitPeriod is the time between two looks at how a deployment goes.
const waitPeriod = 200 * time.Millisecond

// awaitDeployed waits until all services have the versions that were deployed, and answer. Errors: one
// does not.
func awaitDeployed(cmd *cobra.Command, client *server.Client, all []edge.Deployed) error {
	var failed []error
	for i := range all {
		for {
			seen, err := client.Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			answers, err := isDeployed(&seen, &all[i])
			if err != nil {
				failed = append(failed, err)
				break
			}
			if answers {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", all[i].Service, answering(&seen, all[i].Service)); err != nil {
					return err
				}
				break
			}
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(waitPeriod):
			}
		}
	}
	return errors.Join(failed...)
}

// answering says whether a service answers, or waits for users.
func answering(seen *edge.Snapshot, service string) string {
	if slices.ContainsFunc(seen.Services, func(s edge.Service) bool { return s.Name == service && s.Running == 0 }) {
		return "starts when a user comes"
	}
	return "answers"
}

// isDeployed reports whether all instances of a service have the version that was deployed, and answer.
// Errors: it was removed or deployed again, or that version does not answer.
func isDeployed(seen *edge.Snapshot, deployed *edge.Deployed) (bool, error) {
	i := slices.IndexFunc(seen.Services, func(s edge.Service) bool { return s.Name == deployed.Service })
	if i < 0 {
		return false, fmt.Errorf("%s was removed meanwhile", deployed.Service)
	}
	s, other := &seen.Services[i], false
	switch {
	case s.Update.Left == deployed.Version:
		return false, fmt.Errorf("%s: %s", s.Name, s.Update.Reason)
	case s.Update.Version != deployed.Version:
		return false, fmt.Errorf("%s was deployed again meanwhile, with another specification", s.Name)
	}
	waits := false // for its first user
	for _, instance := range seen.Instances {
		if instance.Service != s.Name || instance.Instance == "" {
			waits = waits || instance.Service == s.Name && instance.State == run.StateAsleep
			continue
		}
		other = other || instance.Version != deployed.Version
		if instance.State == string(engine.InstanceFailed) && instance.Version == deployed.Version && !s.Update.InProgress {
			return false, fmt.Errorf("%s does not answer: %s; weir-edge tries again", instance.Instance, instance.Reason)
		}
	}
	least := 1
	if parsed, err := spec.Parse(s.Specification); err == nil {
		least = min(parsed.LeastInstances(), parsed.MostInstances())
	}
	return !other && !s.Update.InProgress && (waits || s.Running >= max(least, 1)), nil
}

func printDeployed(cmd *cobra.Command, deployed *edge.Deployed) error {
	for _, note := range deployed.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), cmdline.PrintableLines(note))
	}
	what := "is there already"
	if deployed.Changed {
		what = "deployed"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", deployed.Service, what)
	return err
}

// deployCompose deploys the services of a Compose file, those that others need first.
func deployCompose(cmd *cobra.Command, client *server.Client, path string) (all []edge.Deployed, err error) {
	seen, err := client.Snapshot(cmd.Context())
	if err != nil {
		return nil, err
	}
	file, err := readCompose(cmd.Context(), path, seen.Engine, os.Environ())
	if err != nil {
		return nil, err
	}
	for _, note := range file.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), cmdline.PrintableLines(note))
	}
	for _, s := range file.Services {
		end := sayPulling(cmd, client, s.Name)
		deployed, err := client.Deploy(cmd.Context(), s.Document)
		end()
		if err != nil {
			return all, fmt.Errorf("%s: %w", s.Where, err)
		}
		if err := printDeployed(cmd, &deployed); err != nil {
			return all, err
		}
		all = append(all, deployed)
	}
	for _, left := range orphans(&seen, file) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is not in %s any more and goes on: weir-edge rm %[1]s ends it\n", cmdline.Printable(left), path)
	}
	return all, nil
}

// orphans returns the services of a project that its file does not have any more.
func orphans(seen *edge.Snapshot, file *composeFile) (names []string) {
	for _, there := range seen.Services {
		parsed, err := spec.Parse(there.Specification)
		if err == nil && parsed.Container != nil && parsed.Container.Project == file.Project &&
			!slices.ContainsFunc(file.Services, func(s composeService) bool { return s.Name == there.Name }) {
			names = append(names, there.Name)
		}
	}
	return names
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
