package cli

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/traffic"
)

func newTrafficPagesCommand() *cobra.Command {
	var pages traffic.Pages
	var listen string
	cmd := &cobra.Command{
		Use:   "pages",
		Short: "Serve web pages with a bounded queue, as a small device does",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pages.Workers < 1 || pages.Queue < 0 || pages.Bytes < 0 || pages.Work < 0 {
				return cmdline.Usagef("--workers must be 1 or more, --queue, --bytes and --work not negative")
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("serve pages: %w", err)
			}
			return pages.Serve(cmd.Context(), listener)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", ":80", "address and port")
	flags.IntVar(&pages.Workers, "workers", 4, "requests that are worked on at once")
	flags.IntVar(&pages.Queue, "queue", 64, "requests that may wait")
	flags.DurationVar(&pages.Work, "work", 10*time.Millisecond, "how long one takes")
	flags.IntVar(&pages.Bytes, "bytes", 300, "size of a page")
	return cmd
}
