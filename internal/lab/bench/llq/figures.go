package llq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report/machine"
)

// SDN-LLQ's figures 7 to 13 as the paper made them: figure 6's set-up, in which a
// switch has the queues and its controller names the flows. What is sent, what is
// counted and how it is judged is that of the suite llq.

// SuiteFigures is the kind of these results, as the command calls them.
const SuiteFigures = "sdn --figures"

// FigurePeers returns the peers of the figures: one queue, which the paper compares with, and
// the queues of weir sdn.
func FigurePeers() []string { return []string{bench.PeerFIFO, bench.PeerWeir} }

const figuresNote = "Figure 6's set-up: one host sends voice, video and generic data, frames of 1000 bytes in turn, through Open vSwitch's kernel datapath " +
	"to another; weir sdn run is the controller, and the port towards the receiver has 100 Mbit/s, in one queue of 1000 packets (fifo) or in EF, AF and BE (weir). " +
	"Delay is one way, from the sender's write to the kernel's stamp of the arrival; jitter is the mean difference between the delays of one flow's successive frames. " +
	"The controller takes no second look: it would find that voice of 1000-byte frames is none. It does not trust their DSCP."

const switchPath = "The path here is another: Open vSwitch's kernel datapath and HTB between virtual interfaces, with sender and receiver on the same processors; " +
	"the paper measures at the ports of a machine that does nothing else. No frame waits for another one."

// Figures runs the paper's experiment on a switch and judges the claims.
func Figures(ctx context.Context, options Options) (found Report, err error) {
	for _, name := range options.Peers {
		if !slices.Contains(FigurePeers(), name) {
			return found, fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(FigurePeers(), ", "))
		}
	}
	if err := options.Check(); err != nil {
		return found, err
	}
	defer measure.AlwaysScheduled()()
	started := time.Now()
	b, err := newSwitchBed(ctx)
	if err != nil {
		return found, err
	}
	defer b.close()
	r := &runner{options: options, containers: []bench.Placed{b.placed()}}
	found = newReport(options, SuiteFigures, figuresNote, switchPath, started, machine.Read(options.Version))
	err = r.rounds(ctx, b.receiver.NetNSPath(), func(ctx context.Context, peer string, keys []resultKey, round int) error {
		return r.runSwitchPeer(ctx, b, peer, keys, round)
	}, &found)
	return found, err
}

// runSwitchPeer gives the congested port its queues and sends at the rates of its keys.
func (r *runner) runSwitchPeer(ctx context.Context, b *switchBed, name string, keys []resultKey, round int) (err error) {
	var args []string
	if name == bench.PeerFIFO {
		_, err = b.Vsctl(ctx, "set", "port", portOut, "qos=@qos", "--", "--id=@qos", "create", "qos", "type=linux-htb",
			fmt.Sprintf("other-config:max-rate=%d", int(linkBPS)), "queues:0=@queue",
			"--", "--id=@queue", "create", "queue", fmt.Sprintf("other-config:min-rate=%d", int(linkBPS)))
		if err != nil {
			return err
		}
	} else {
		args = []string{"--ovsdb", b.DatabaseAddress(), "--rate", fmt.Sprint(int(linkBPS)), "--replace"}
	}
	if err := b.startWeir(ctx, r.options.WeirBinary, args...); err != nil {
		return err
	}
	defer func() { // so that the next round has its FIFO; a controller that runs makes its queues again
		err = errors.Join(err, b.weir.End(syscall.SIGTERM, patience))
		if name == bench.PeerWeir {
			_, down := b.Run(context.WithoutCancel(ctx), nil, r.options.WeirBinary, "sdn", "down", "--ovsdb", b.DatabaseAddress())
			err = errors.Join(err, down)
		}
	}()
	if name == bench.PeerWeir {
		if err := b.await(ctx, "queues", b.hasQueues); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, r.receiver); err != nil {
		return err
	}
	return r.runKeys(ctx, keys, round, func(ctx context.Context, key resultKey) error {
		if err := r.runFully(ctx, key); err != nil {
			return err
		}
		if err := errors.Join(inTheirClasses(ctx, b), r.sentAll(key)); err != nil {
			r.Fail(err, key)
		}
		return nil
	})
}

// runFully runs one rate, and repeats it if less was sent: on a single CPU, Go's scheduler
// sometimes delays the sender.
func (r *runner) runFully(ctx context.Context, key resultKey) error {
	of := r.Of(key)
	for range measure.MaxAttempts - 1 {
		before := len(of.Seen)
		if err := r.runTotal(ctx, key); err != nil || r.sentAll(key) == nil {
			return err
		}
		of.Seen = of.Seen[:before]
		r.Repeated++
	}
	return r.runTotal(ctx, key)
}

// sentAll returns an error if the last run sent less than its rate, because such a run has no
// congestion.
func (r *runner) sentAll(of resultKey) error {
	runs := r.Of(of).Seen
	if len(runs) == 0 { // which has failed already
		return nil
	}
	last := runs[len(runs)-1]
	sum := uint64(0)
	for _, count := range last.Sent {
		sum += count
	}
	const enough = 0.98
	if bps := float64(sum) * sentFrameBytes * 8 / last.seconds(); bps < enough*float64(of.totalBPS) {
		return fmt.Errorf("the sender sent %.1f Mbit/s in all: this machine is too slow, or did not let it run", bps/1e6)
	}
	return nil
}

// inTheirClasses returns an error if the controller assigned a flow to another class than the
// experiment requires.
func inTheirClasses(ctx context.Context, b *switchBed) error {
	flows, err := client.NewSDN(b.control()).Flows(ctx)
	if err != nil {
		return err
	}
	for _, want := range sentFlows {
		to, class := netip.AddrPortFrom(receiverAddr, want.port).String(), strings.ToLower(want.class)
		seen := false
		for _, f := range flows {
			if !strings.HasPrefix(f.Flow, "udp ") || !strings.HasSuffix(f.Flow, "> "+to) {
				continue
			}
			seen = true
			if f.Class != class {
				return fmt.Errorf("the controller takes %s for %s, not %s", want.name, f.Class, class)
			}
		}
		if !seen {
			return fmt.Errorf("the controller knows no flow of %s", want.name)
		}
	}
	return nil
}
