package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/runtime/docker"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

// stopTimeout bounds the wait for a weir-edge to end.
const stopTimeout = 30 * time.Second

func newDownCommand(g *global) *cobra.Command {
	o := downOptions{runOptions: runOptions{network: "bridge"}}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove everything that weir-edge has made",
		Long: `Stop the weir-edge at the socket, if one runs there, and remove what it has made: in its
engine or swarm what is promised, the key and the image of proxies, and the repository's
container; on this host its measurements. A swarm gets back its heartbeat. If none runs,
--docker or --kubernetes, and --state-dir say where to look. In the pod of a weir-edge it
is refused, and says what to do instead.

Where services are deployed nothing is removed, unless --all says that they are to go as
well, with their proxies, their instances and the repository. Images that nodes have got
stay there.`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.readConfig(cmd.Flags().Changed); err != nil {
				return err
			}
			o.agents = agentOptions{} // nothing is asked of them
			if err := o.askRunning(cmd.Context(), g.socket, cmd.Flags().Changed); err != nil {
				return err
			}
			removed, err := o.down(cmd.Context(), g.socket)
			for _, what := range removed {
				fmt.Fprintln(cmd.ErrOrStderr(), cmdline.PrintableLines(what))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "services, too")
	cmd.Flags().StringVar(&o.config, "config", config.EdgePath, "config file, which flags override; the default one may be missing")
	cmd.Flags().StringVar(&o.docker, "docker", defaultDocker, "socket of the Docker engine")
	o.addKubernetes(cmd)
	cmd.Flags().StringVar(&o.stateDir, "state-dir", stateDir, "folder of what weir-edge has kept")
	return cmd
}

type downOptions struct {
	runOptions
	all bool
}

// askRunning takes the engine and the folder of the weir-edge at a socket, if one runs there. It
// returns an error if flags name others, or if that is the main program of this pod.
func (o *downOptions) askRunning(ctx context.Context, socket string, changed func(flag string) bool) error {
	seen, err := server.NewClient(socket).Snapshot(ctx)
	if errors.Is(err, server.ErrNotRunning) {
		return nil
	} else if err != nil {
		return err
	}
	if o.kubernetes == config.PodKubeconfig {
		_, namespace, _ := strings.Cut(seen.Cluster, " ")
		return cmdline.Usagef("the weir-edge at %s is what this pod runs: its end would be that of this command, and kubelet would start it again. Outside of the pod, kubectl -n %s delete --cascade=foreground deployment weir-edge, and then, for what it has made with all services, kubectl -n %[2]s delete configmaps,leases -l %s; nothing has changed", socket, namespace, runtime.LabelRole)
	}
	ours := ""
	if kube, err := o.openKubernetes(); err != nil {
		return err
	} else if kube != nil {
		ours = kube.At()
		_ = kube.Close() // nothing was asked
	}
	switch {
	case (ours == "") != (seen.Cluster == ""):
		return cmdline.Usagef("the weir-edge at %s manages the services of %s: give --kubernetes with its kubeconfig if that is Kubernetes, and else leave it out", socket, seen.Engine)
	case ours != seen.Cluster:
		return cmdline.Usagef("--kubernetes %s is %s, and the weir-edge at %s manages the services of %s: give the kubeconfig and context that it runs with, or the --socket of the other one; nothing has changed", o.kubernetes, ours, socket, seen.Cluster)
	}
	for _, of := range []struct {
		flag, its string
		ours      *string
	}{{"docker", seen.EngineSocket, &o.docker}, {"state-dir", seen.StateDir, &o.stateDir}} {
		if of.its != "" && changed(of.flag) && !isSame(*of.ours, of.its) {
			return cmdline.Usagef("--%s %s: the weir-edge at %s has %s: leave --%[1]s out, or give the --socket of the other one", of.flag, *of.ours, socket, of.its)
		}
		*of.ours = cmp.Or(of.its, *of.ours)
	}
	return nil
}

// isSame reports whether two paths lead to the same file; /var/run is often a link to /run.
func isSame(a, b string) bool {
	of, err := os.Stat(a)
	if err != nil {
		return absolute(a) == b
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(of, other)
}

// down removes all that weir-edge has made on the node and returns the names of what it removed. On
// an error in the checks nothing is removed.
func (o *downOptions) down(ctx context.Context, socket string) (removed []string, err error) {
	rt, err := o.open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	state, err := rt.Look(ctx)
	if err != nil {
		return nil, err
	}
	if names := serviceNames(state); !o.all && len(names) > 0 {
		return nil, fmt.Errorf("services are deployed (%s), and would have no weir-edge any more: remove them (weir-edge rm SERVICE), or give --all; nothing has changed", strings.Join(names, ", "))
	}
	switch stopped, err := stopRunning(ctx, socket); {
	case err != nil:
		return nil, err
	case stopped:
		removed = append(removed, "weir-edge has stopped")
	}
	// The weir-edge that was just stopped may have started more containers in between.
	if state, err = rt.Look(ctx); err != nil {
		return removed, err
	}
	var errs []error
	for _, name := range serviceNames(state) {
		if err := rt.Remove(ctx, name, false); err != nil && !errors.Is(err, runtime.ErrUnknown) {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, "service "+name+" removed")
	}
	if rt.namespace == "" {
		there, err := repo.RemoveContainer(ctx, o.docker, "")
		if there {
			removed = append(removed, "repository's container removed")
		}
		errs = append(errs, err)
		trials, err := docker.RemoveTrials(ctx, o.docker)
		for _, name := range trials {
			removed = append(removed, "container "+name+" of a profile removed")
		}
		errs = append(errs, err)
	}
	if err = errors.Join(errs...); err != nil {
		return removed, err
	}
	if err := errors.Join(rt.Down(ctx), o.removeFiles()); err != nil {
		return removed, err
	}
	return append(removed, fmt.Sprintf("nothing of weir-edge is left in the %s engine at %s", rt.Kind(), o.where(rt))), nil
}

// serviceNames returns the services that have a container or a document in the engine.
func serviceNames(state runtime.State) []string {
	var names []string
	for _, s := range state.Services {
		names = append(names, s.Name)
	}
	for _, i := range state.Instances {
		names = append(names, i.Service)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stopRunning ends the weir-edge at a socket, and waits until it has.
func stopRunning(ctx context.Context, socket string) (stopped bool, err error) {
	client := server.NewClient(socket)
	err = client.Stop(ctx)
	if errors.Is(err, server.ErrNotRunning) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for {
		if _, err := client.Nodes(ctx); errors.Is(err, server.ErrNotRunning) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("weir-edge at %s does not end: stop it yourself, and try again", socket)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removeFiles removes weir-edge's state on this host; with everything also the repository.
func (o *downOptions) removeFiles() error {
	names := []string{storeFile, numberFile, "proxies"}
	if o.all {
		names = append(names, repositoryFolder)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, os.RemoveAll(filepath.Join(o.stateDir, name)))
	}
	_ = os.Remove(o.stateDir) // if there is nothing else in it
	return errors.Join(errs...)
}
