package k8s

import (
	"io"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// Run runs one command line, the program's name first, and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(NewRoot(), args[1:], stdout, stderr)
}

// NewRoot returns the program.
func NewRoot() *cobra.Command {
	var (
		socket, nri, kubelet string
		containerdSocket     string
		hard, verbose        bool
	)
	root := &cobra.Command{
		Use:   "weir-k8s",
		Short: "Report pods of Kubernetes and containers of containerd to the agent",
		Long: `Report the pods of a Kubernetes node to the agent, which runs on the same host, so that
they have what their annotations ask for from the first packet (docs/kubernetes.md).

It is a plugin of containerd's or CRI-O's NRI, and follows containerd's events for what
ctr and nerdctl run, by the labels of containers. It may be stopped and started at any
time, as may the agent and the runtime: pods keep their shares, and those that started
meanwhile get theirs.`,
		Example: `  weir-k8s
  weir-k8s --hard-admission
  weir-k8s --nri none         # without Kubernetes: only containers of ctr and nerdctl`,
		Version: cmdline.Version,
		Args:    cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case containerdSocket == "":
				return cmdline.Usagef("--containerd is empty: give containerd's socket, as %s, or none", DefaultContainerd)
			case nri == "":
				return cmdline.Usagef("--nri is empty: give NRI's socket, as %s, or none", api.DefaultSocketPath)
			case nri == "none" && containerdSocket == "none":
				return cmdline.Usagef("--nri none --containerd none: nothing is left to report")
			case nri == "none" && hard:
				return cmdline.Usagef("--hard-admission is for pods, which come through NRI: leave --nri none out")
			}
			log := cmdline.NewLogger(cmd.ErrOrStderr(), verbose)
			agent := client.Unix(socket)
			ctx := cmd.Context()
			var parts sync.WaitGroup
			if nri != "none" {
				r := newReporter(agent, v1.RuntimeKubernetes, log)
				p := &plugin{reporter: r, hardAdmission: hard, folder: claims.Folder(kubelet), log: log}
				parts.Go(func() { r.run(ctx) })
				parts.Go(func() { p.watchNotes(ctx) })
				parts.Go(func() { p.run(ctx, nri) })
			}
			if containerdSocket != "none" {
				c := &containerd{
					reporter: newReporter(agent, v1.RuntimeContainerd, log), socket: containerdSocket,
					expected: cmd.Flags().Changed("containerd"), log: log,
				}
				parts.Go(func() { c.reporter.run(ctx) })
				parts.Go(func() { c.run(ctx) })
			}
			parts.Wait()
			log.Info("stopping; pods keep their shares")
			return nil
		},
	}
	cmdline.SetUp(root)
	flags := root.Flags()
	flags.StringVar(&socket, "socket", client.DefaultSocket, "the agent's socket")
	flags.StringVar(&nri, "nri", api.DefaultSocketPath, "the NRI socket of the container runtime, for pods, or none")
	flags.StringVar(&containerdSocket, "containerd", DefaultContainerd, "containerd's socket, for containers of ctr and nerdctl, or none")
	flags.StringVar(&kubelet, "kubelet", claims.KubeletFolder, "kubelet's folder (its --root-dir), in which weir-dra notes claims and changed annotations")
	flags.BoolVar(&hard, "hard-admission", false, "refuse to start a pod whose minimum is not in force, or while the agent does not answer")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log more")
	return root
}
