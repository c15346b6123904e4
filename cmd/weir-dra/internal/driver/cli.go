package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/cmd/weir-dra/internal/templates"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// requestsPerSecond is what the API server may be asked for: all claims of a node change at once when
// its agent is lost.
const requestsPerSecond = 50

// options are the command line's.
type options struct {
	socket, kubeconfig, node, kubelet string
}

// Run runs one command line, the program's name first, and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	return cmdline.Run(newRoot(), args[1:], stdout, stderr)
}

func newRoot() *cobra.Command {
	var (
		o       options
		verbose bool
	)
	root := &cobra.Command{
		Use:   "weir-dra",
		Short: "Let Kubernetes' scheduler count the bandwidth of this node",
		Long: `Let Kubernetes' scheduler count the bandwidth of this node: publish the uplinks of the
agent, which runs on the same host, and prepare the claims of pods (docs/kubernetes.md).

weir-k8s gives pods what they claimed. Either may be stopped and started at any time:
pods keep their shares, and those with claims start when weir-dra is back.`,
		Example: `  weir-dra
  weir-dra --kubeconfig /etc/kubernetes/weir.conf --node gateway`,
		Version: cmdline.Version,
		Args:    cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := cmdline.NewLogger(cmd.ErrOrStderr(), verbose)
			kube, err := connect(o.kubeconfig)
			if err != nil {
				return err
			}
			folder := claims.Folder(o.kubelet)
			unlock, err := lock(folder)
			if err != nil {
				return err
			}
			defer unlock()
			d, err := newDriver(o.node, folder, client.Unix(o.socket), kube, log)
			if err != nil {
				return err
			}
			return d.serve(klog.NewContext(cmd.Context(), logr.FromSlogHandler(log.Handler())), o)
		},
	}
	cmdline.SetUp(root)
	root.AddCommand(newTemplates(), newMetrics())
	hostname, _ := os.Hostname() // an empty name is refused by the API server
	flags := root.Flags()
	flags.StringVar(&o.socket, "socket", client.DefaultSocket, "the agent's socket")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; without it as a pod of the cluster does")
	flags.StringVar(&o.node, "node", cmp.Or(os.Getenv("NODE_NAME"), strings.ToLower(hostname)), "the name of the node in Kubernetes")
	flags.StringVar(&o.kubelet, "kubelet", claims.KubeletFolder, "kubelet's folder (its --root-dir)")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log more")
	return root
}

func newTemplates() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "templates",
		Short: "Make the claim templates that pods with the annotation weir.dev/min refer to",
		Long: `Make the claim templates that pods with the annotation weir.dev/min refer to, once in a cluster:
packaging/kubernetes/weir-annotations.yaml has all that belongs to it. Of several instances one works.`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			kube, err := connect(kubeconfig)
			if err != nil {
				return err
			}
			return templates.Run(cmd.Context(), kube, cmdline.NewLogger(cmd.ErrOrStderr(), false))
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server; without it as a pod of the cluster does")
	return cmd
}

// connect returns a client of the API server.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the API server (is this a pod of a cluster? otherwise give --kubeconfig): %w", err)
	}
	config.QPS, config.Burst = requestsPerSecond, 2*requestsPerSecond
	return kubernetes.NewForConfig(config)
}

// lock makes this the only driver of the node: a second one would take the first one's sockets.
func lock(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("make the driver's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the driver's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another weir-dra runs on this node: it has locked %s", f.Name())
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// serve is a driver for kubelet and the scheduler until ctx ends. Its devices stay published.
func (d *driver) serve(ctx context.Context, o options) error {
	if d.probe(ctx); ctx.Err() != nil {
		return nil
	}
	if d.extended {
		d.log.Info("the API server does not count capacity of devices, as Kubernetes 1.36 does: offering an extended resource instead", "resource", egressKbps)
		prepared, _ := d.ledger.Split()
		if len(prepared) == 0 {
			return d.run(ctx, nil)
		}
		d.log.Info("pods of this node have claims: they keep their minimums until they end", "claims", len(prepared))
	}
	group, ctx := errgroup.WithContext(ctx)
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(claims.Driver), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(d.kube),
		kubeletplugin.PluginDataDirectoryPath(d.folder), kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.kubelet, "plugins_registry")))
	if err != nil {
		return fmt.Errorf("offer the driver to kubelet: %w", err)
	}
	defer helper.Stop()
	group.Go(func() error {
		return d.run(ctx, func(devices []claims.Device) error {
			return helper.PublishResources(ctx, resources(d.node, devices))
		})
	})
	return group.Wait()
}
