package driver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/k8s/claims"
)

const (
	metricsInterval = 15 * time.Second
	metricsTimeout  = 5 * time.Second
)

func newMetrics() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "metrics FILE",
		Short: "Write the agent's metrics to a file, for the node exporter's textfile collector",
		Long: `Write the agent's metrics to a file every 15 s, for the node exporter's textfile collector
(packaging/kubernetes/weir-metrics.yaml). While the agent does not answer the file stays as it is, and its
age is the node exporter's node_textfile_mtime_seconds.`,
		Args: cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := cmdline.NewLogger(cmd.ErrOrStderr(), false)
			agent, complained := transport.Unix(socket), false
			for {
				err := writeMetrics(cmd.Context(), agent, args[0])
				if err != nil && !complained && cmd.Context().Err() == nil {
					log.Warn("cannot write metrics; trying again", "error", err)
				}
				complained = err != nil
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(metricsInterval):
				}
			}
		},
	}
	cmd.Flags().StringVar(&socket, "socket", client.DefaultSocket, "the agent's socket")
	return cmd
}

// writeMetrics replaces a file by the agent's metrics of now.
func writeMetrics(ctx context.Context, agent *http.Client, path string) error {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weir/metrics", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := agent.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the agent answers %s", answer.Status)
	}
	if err != nil {
		return err
	}
	return claims.Replace(path, text, 0o644) // for node-exporter, which is another user
}
