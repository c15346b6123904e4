package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// newTrafficStreamCommand returns a sender like netperf's, for measurements of the sender
// itself. It connects, prints that it is ready, reads its start time (nanoseconds of
// CLOCK_MONOTONIC) from the input and prints its result.
func newTrafficStreamCommand() *cobra.Command {
	var options traffic.StreamOptions
	var to, protocol string
	var warmup, duration time.Duration
	cmd := &cobra.Command{
		Use:   "stream --to ADDRESS:PORT",
		Short: "Send messages from one thread and say what that took",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Target, err = netip.ParseAddrPort(to); err != nil {
				return cmdline.Usagef("--to: %w", err)
			}
			options.Protocol = traffic.Protocol(protocol)
			stream, err := traffic.NewStream(options)
			if err != nil {
				return err
			}
			defer stream.Close()
			if _, err := io.WriteString(cmd.OutOrStdout(), traffic.StreamReady); err != nil {
				return err
			}
			startNS, err := readStart(cmd.InOrStdin())
			if err != nil {
				return err
			}
			result, err := stream.Run(cmd.Context(), startNS, warmup, duration)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		},
	}
	set := cmd.Flags()
	set.StringVar(&to, "to", "", "address and port of the receiver")
	set.StringVar(&protocol, "protocol", string(traffic.TCP), "tcp or udp")
	set.IntVar(&options.MessageBytes, "bytes", 1024, "bytes in a message")
	set.DurationVar(&warmup, "warmup", 0, "time that is not counted")
	set.DurationVar(&duration, "duration", 10*time.Second, "time that is counted after it")
	_ = cmd.MarkFlagRequired("to") // fails only for a flag that does not exist
	return cmd
}

// readStart reads when to start; an input that ends at once means now.
func readStart(in io.Reader) (int64, error) {
	line, err := bufio.NewReader(in).ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		return traffic.MonotonicNS(), nil
	}
	at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read when to start, in nanoseconds of the monotonic clock: %w", err)
	}
	return at, nil
}
