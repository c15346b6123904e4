package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/advise"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// idleTime is how long round trips are measured before the transfers.
	idleTime = time.Second
	// rampTime is what a transfer has to fill the link before it is counted.
	rampTime = 2 * time.Second
	// serverPatience bounds what a transfer takes beside that.
	serverPatience = 10 * time.Second
	// minRateTime and maxRateTime bound --duration.
	minRateTime, maxRateTime = 5 * time.Second, 5 * time.Minute
)

// rateFlags are the flags of `weir advise rate` as written.
type rateFlags struct {
	duration time.Duration
	streams  int
	port     uint16
}

// rateAdvice is what `weir advise rate -o json` prints.
type rateAdvice struct {
	Server   string   `json:"server"`
	IdleMS   float64  `json:"idle_ms,omitempty"`
	Out      linkRate `json:"out"`
	In       linkRate `json:"in"`
	Warnings []string `json:"warnings,omitempty"`
}

// linkRate is one direction of a link.
type linkRate struct {
	SteadyBPS   uint64  `json:"steady_bps"`
	WorstBPS    uint64  `json:"worst_bps"`
	BusyMS      float64 `json:"busy_ms,omitempty"`
	ProposedBPS uint64  `json:"proposed_bps"`
}

func newAdviseRateCommand(socket *string) *cobra.Command {
	var flags rateFlags
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   "rate SERVER",
		Short: "Measure what the uplink carries, and propose --rate and --in-rate",
		Long: `Measure what the uplink carries in both directions, and propose --rate and
--in-rate. It sends to an iperf3 server that you name, and has it send, and
prints the round trips meanwhile. SERVER should be beyond the slowest part of
the way, the modem or the provider, and be faster than that; iperf3 has to be
installed here too. It takes twice --duration and some seconds, and fills the
link: at 100mbit it sends and receives about 150 MB each.

Rates of a Weir agent limit what is measured, also after it has stopped: raise
them first, or remove them with 'weir down'.

The proposal is 95 % of the rate reached in 75 % of the seconds, in whole
frames, as tc counts. Round trips that grow while the link is busy are what a
queue before or behind it adds: with the proposed rates packets wait here.`,
		Example: `  iperf3 -s                      # on the server
  weir advise rate 198.18.0.1    # here, while nothing else is sent`,
		Args: cmdline.ExactArgs("SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, *socket, args[0], *format) },
	}
	set := cmd.Flags()
	set.DurationVar(&flags.duration, "duration", 10*time.Second, "how long each direction is measured, from 5s to 5m")
	set.IntVar(&flags.streams, "streams", 4, "how many TCP connections fill the link, from 1 to 32")
	set.Uint16Var(&flags.port, "port", 5201, "the server's port")
	format = cmdline.AddOutputFlag(cmd)
	return cmd
}

func (f *rateFlags) run(cmd *cobra.Command, socket, server string, format cmdline.Output) error {
	if f.duration < minRateTime || f.duration > maxRateTime || f.duration%time.Second != 0 {
		return cmdline.Usagef("--duration %s: whole seconds from %s to %s are needed", f.duration, minRateTime, maxRateTime)
	}
	if f.streams < 1 || f.streams > 32 {
		return cmdline.Usagef("--streams %d: 1 to 32 are needed", f.streams)
	}
	if _, err := exec.LookPath("iperf3"); err != nil {
		return errors.New("iperf3 is needed to measure a link: install it (apt-get install iperf3)")
	}
	ctx := cmd.Context()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", server)
	if err != nil {
		return fmt.Errorf("find the server: %w", err)
	}
	addr := addrs[0].Unmap()
	advice := rateAdvice{Server: server, Warnings: sharedAlready(ctx, socket)}
	if advice.IdleMS, err = medianTrip(ctx, addr, func(ctx context.Context) error { wait(ctx, idleTime); return ctx.Err() }); err != nil {
		return err
	}
	for _, direction := range []struct {
		to      *linkRate
		options []string
		what    string
	}{{&advice.Out, nil, "sending to"}, {&advice.In, []string{"--reverse"}, "receiving from"}} {
		if format != cmdline.JSON {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %s for %s ...\n", direction.what, cmdline.Printable(server), rampTime+f.duration)
		}
		var transfer advise.Transfer
		trip, err := medianTrip(ctx, addr, func(ctx context.Context) (err error) {
			transfer, err = f.transfer(ctx, addr, direction.options)
			return err
		})
		if err != nil {
			return err
		}
		*direction.to = linkRate{
			SteadyBPS: uint64(transfer.SteadyBPS), WorstBPS: uint64(transfer.WorstBPS), BusyMS: trip,
			ProposedBPS: transfer.ProposedBPS(),
		}
	}
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), advice)
	}
	for _, warning := range advice.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s\n", cmdline.Printable(warning))
	}
	return advice.print(cmd.OutOrStdout())
}

// sharedAlready warns of an agent that limits what is measured.
func sharedAlready(ctx context.Context, socket string) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	snapshot, err := client.Unix(socket).Snapshot(ctx)
	if err != nil {
		return nil // no agent, or none that one may ask
	}
	for _, u := range snapshot.Status.Uplinks {
		rates := "rate " + policy.FormatRate(u.RateBPS)
		if u.In != nil {
			rates += ", in_rate " + policy.FormatRate(u.In.RateBPS)
		}
		warnings = append(warnings, fmt.Sprintf("the agent shares %s here (%s), so no more than that was measured over it: raise its rates for this, and put the proposed ones in their place", u.Name, rates))
	}
	return warnings
}

// medianTrip measures round trips, in milliseconds, while do runs; 0 without answers.
func medianTrip(ctx context.Context, target netip.Addr, do func(context.Context) error) (float64, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	type result struct {
		trip time.Duration
		err  error
	}
	echoed := make(chan result, 1)
	go func() {
		trip, err := echoes(ctx, target)
		echoed <- result{trip, err}
	}()
	err := do(ctx)
	end()
	r := <-echoed
	if r.err != nil && !errors.Is(r.err, os.ErrPermission) {
		err = errors.Join(err, r.err)
	}
	return r.trip.Seconds() * 1000, err
}

// transfer fills one direction of the link.
func (f *rateFlags) transfer(ctx context.Context, server netip.Addr, options []string) (advise.Transfer, error) {
	limited, cancel := context.WithTimeout(ctx, rampTime+f.duration+serverPatience)
	defer cancel()
	iperf := exec.CommandContext(limited, "iperf3", append([]string{
		"--client", server.String(), "--port", strconv.Itoa(int(f.port)), "--json", "--parallel", strconv.Itoa(f.streams),
		"--omit", strconv.Itoa(int(rampTime.Seconds())), "--time", strconv.Itoa(int(f.duration.Seconds())),
		"--connect-timeout", strconv.Itoa(int(serverPatience.Milliseconds())),
	}, options...)...)
	// Ctrl-C is for this process, which ends the transfer.
	iperf.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	iperf.Cancel = func() error { return iperf.Process.Signal(syscall.SIGTERM) }
	iperf.WaitDelay = time.Second
	out, err := iperf.Output()
	if ctx.Err() != nil {
		return advise.Transfer{}, ctx.Err()
	}
	if limited.Err() != nil {
		return advise.Transfer{}, fmt.Errorf("the transfer with %s did not end in time", server)
	}
	transfer, parseErr := advise.ParseTransfer(out)
	if parseErr != nil {
		return transfer, fmt.Errorf("%w: `iperf3 -s` has to run on %s, and its port %d to be open", parseErr, server, f.port)
	}
	if err != nil {
		return transfer, fmt.Errorf("run iperf3: %w", err)
	}
	return transfer, nil
}

// print writes the measured rates and what to configure.
func (a rateAdvice) print(w io.Writer) error {
	table := cmdline.TextTable{Header: []string{"", "LINK", "WORST SECOND", "ROUND TRIP IDLE", "BUSY"}}
	for _, row := range []struct {
		name string
		linkRate
	}{{"out", a.Out}, {"in", a.In}} {
		table.Add([]string{
			row.name, policy.FormatRateShort(row.SteadyBPS), policy.FormatRateShort(row.WorstBPS),
			cmdline.LatencyOrDash(a.IdleMS), cmdline.LatencyOrDash(row.BusyMS),
		}, "")
	}
	if err := table.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err := fmt.Fprintf(w, "\nrate: %s\nin_rate: %s\n", policy.FormatRateWithin(a.Out.ProposedBPS), policy.FormatRateWithin(a.In.ProposedBPS))
	return err
}
