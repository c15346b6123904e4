package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// newTrafficCommand returns a traffic generator for users: an image that contains only weir can
// try Weir.
func newTrafficCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "traffic",
		Short:  "Send, swallow and echo traffic; watch what disturbs it",
		Hidden: true,
	}
	cmd.AddCommand(newTrafficSendCommand(), newTrafficSinkCommand(), newTrafficEchoCommand(), newTrafficPingCommand(),
		newTrafficPausesCommand(), newTrafficStreamCommand(), newTrafficPagesCommand(), newTrafficPortCommand())
	return cmd
}

func newTrafficSendCommand() *cobra.Command {
	var options traffic.SenderOptions
	var to, protocol, rate, startAt string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "send --to ADDRESS:PORT",
		Short: "Send for a while and say how much",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Target, err = netip.ParseAddrPort(to); err != nil {
				return cmdline.Usagef("--to: %w", err)
			}
			if rate != "" {
				if options.RateBPS, err = policy.ParseRate(rate); err != nil {
					return cmdline.Usagef("--rate %s %w", rate, err)
				}
			}
			delay, err := delayUntil(startAt, time.Now())
			if err != nil {
				return cmdline.Usagef("--start-at: %w", err)
			}
			options.Protocol = traffic.Protocol(protocol)
			return send(cmd.Context(), cmd.OutOrStdout(), options, delay, duration)
		},
	}
	set := cmd.Flags()
	set.StringVar(&to, "to", "", "address and port of the receiver")
	set.StringVar(&protocol, "protocol", string(traffic.TCP), "tcp or udp")
	set.IntVar(&options.Connections, "connections", 1, "number of TCP connections")
	set.IntVar(&options.WriteBytes, "write", traffic.DefaultWriteBytes, "bytes per write to a TCP connection")
	set.IntVar(&options.PayloadBytes, "payload", traffic.DefaultPayloadBytes, "bytes in a UDP datagram")
	set.IntVar(&options.SegmentsPerSend, "segments", 1, "UDP datagrams per GSO packet")
	set.StringVar(&rate, "rate", "", "pace, e.g. 30mbit (default all that goes)")
	set.StringVar(&startAt, "start-at", "", "wall-clock time to start at (RFC 3339), so that several start together")
	set.DurationVar(&duration, "duration", 10*time.Second, "how long to send")
	_ = cmd.MarkFlagRequired("to") // fails only for a flag that does not exist
	return cmd
}

// delayUntil returns the time from now until a wall-clock time; 0 for an empty one.
func delayUntil(text string, now time.Time) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, err
	}
	return max(at.Sub(now), 0), nil
}

func send(ctx context.Context, out io.Writer, options traffic.SenderOptions, delay, duration time.Duration) error {
	sender, err := traffic.NewSender(ctx, options)
	if err != nil {
		return err
	}
	startNS := traffic.MonotonicNS() + delay.Nanoseconds()
	sender.Start(startNS)
	wait(ctx, delay+duration)
	sender.Stop()
	took := time.Duration(max(traffic.MonotonicNS()-startNS, 1))
	if err := sender.Err(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(struct {
		SentBytes uint64  `json:"sent_bytes"`
		Seconds   float64 `json:"seconds"`
		RateBPS   float64 `json:"rate_bps"`
	}{sender.SentBytes(), took.Seconds(), float64(sender.SentBytes()) * 8 / took.Seconds()})
}

func newTrafficSinkCommand() *cobra.Command {
	var port uint16
	var ports int
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Swallow TCP and UDP on a range of ports",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sink, err := traffic.NewSink(port, ports)
			return untilInterrupted(cmd.Context(), sink, err)
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 5201, "first port")
	cmd.Flags().IntVar(&ports, "ports", 1, "number of ports")
	return cmd
}

func newTrafficEchoCommand() *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Send UDP datagrams back",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			echo, err := traffic.NewEcho(port)
			return untilInterrupted(cmd.Context(), echo, err)
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 5200, "port")
	return cmd
}

func newTrafficPingCommand() *cobra.Command {
	var options traffic.PingOptions
	var to string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "ping --to ADDRESS:PORT",
		Short: "Measure round trips to an echo",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Target, err = netip.ParseAddrPort(to); err != nil {
				return cmdline.Usagef("--to: %w", err)
			}
			pinger, err := traffic.NewPinger(options)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), duration)
			defer cancel()
			result, err := pinger.Run(ctx)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(summarisePing(result))
		},
	}
	set := cmd.Flags()
	set.StringVar(&to, "to", "", "address and port of the echo")
	set.IntVar(&options.PayloadBytes, "payload", 64, "bytes in a datagram")
	set.DurationVar(&options.Interval, "interval", 10*time.Millisecond, "time between datagrams")
	set.DurationVar(&duration, "duration", 10*time.Second, "how long to ping")
	_ = cmd.MarkFlagRequired("to") // fails only for a flag that does not exist
	return cmd
}

func newTrafficPausesCommand() *cobra.Command {
	var least time.Duration
	cmd := &cobra.Command{
		Use:   "pauses",
		Short: "Tell when a processor stood still, until the input ends",
		Args:  cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // however it ends
				cancel()
			}()
			out := json.NewEncoder(cmd.OutOrStdout())
			// The receiver may have ended.
			return traffic.WatchPauses(ctx, least, func(p traffic.Pause) { _ = out.Encode(p) })
		},
	}
	cmd.Flags().DurationVar(&least, "least", testbed.LeastPause, "shortest pause to tell")
	return cmd
}

// pingSummary is what `weir traffic ping` prints.
type pingSummary struct {
	Sent  int     `json:"sent"`
	Lost  int     `json:"lost"`
	MinMS float64 `json:"min_ms"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

func summarisePing(result traffic.PingResult) pingSummary {
	summary := pingSummary{Sent: result.Sent, Lost: result.Lost}
	if len(result.RTTs) == 0 {
		return summary
	}
	rtts := slices.Sorted(slices.Values(result.RTTs))
	at := func(percent int) float64 {
		return float64(rtts[(len(rtts)-1)*percent/100]) / float64(time.Millisecond)
	}
	summary.MinMS, summary.P50MS, summary.P99MS, summary.MaxMS = at(0), at(50), at(99), at(100)
	return summary
}

// untilInterrupted keeps a receiver open until ctx ends.
func untilInterrupted(ctx context.Context, receiver io.Closer, err error) error {
	if err != nil {
		return err
	}
	<-ctx.Done()
	return receiver.Close()
}

// wait waits for a time or the end of ctx.
func wait(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
