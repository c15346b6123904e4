package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// linkHandle is the handle of the token bucket that stands for the link.
const linkHandle = "2:"

// fifo is no QoS: one queue in front of a link. The token bucket stands for
// the link itself, since a veth pair is as fast as the CPU; its queue is the
// one every interface has, and it sends whole frames at line rate as a network
// card does.
type fifo struct {
	// always is a queue also where the link has no rate. A veth pair has none
	// by default, not even a lock; a network card has, so this is what control
	// of a card should be compared with.
	always bool
}

func (f fifo) Apply(ctx context.Context, b *Bed, c Case, _ []Placed) error {
	if c.Incoming {
		return nil // the link, or the bottleneck before it, has its own queue
	}
	qdisc := []string{"pfifo", "limit", strconv.Itoa(measure.FIFOPackets)}
	if c.LinkBPS > 0 {
		qdisc = []string{
			"tbf", "rate", TCRate(c.LinkBPS),
			"burst", strconv.FormatUint(burstBytes(c.LinkBPS), 10),
			"limit", strconv.Itoa(measure.FIFOPackets * measure.FrameBytes),
		}
	} else if !f.always {
		return nil
	}
	args := append([]string{"qdisc", "replace", "dev", b.Host.UplinkName, "root", "handle", linkHandle}, qdisc...)
	if err := b.OnHost(ctx, "tc", args...); err != nil {
		return fmt.Errorf("limit the link: %w", err)
	}
	return nil
}

// change does nothing: there are no policies.
func (fifo) change(context.Context, []Placed, Change) error { return nil }

func (fifo) Remove(ctx context.Context, b *Bed, _ []Placed) error {
	return b.ClearUplink(ctx)
}

// ClearUplink takes the qdisc off the uplink, if there is one.
func (b *Bed) ClearUplink(ctx context.Context) error { return b.clearRoot(ctx, b.Host.UplinkName) }

// clearRoot takes the qdisc off a device of the host, if there is one.
func (b *Bed) clearRoot(ctx context.Context, device string) error {
	out, err := Output(b.Host.Command(ctx, "tc", "qdisc", "show", "dev", device, "root"))
	if err != nil {
		return err
	}
	if len(out) == 0 || strings.HasPrefix(string(out), "qdisc noqueue") {
		return nil
	}
	return b.OnHost(ctx, "tc", "qdisc", "del", "dev", device, "root")
}

// clearIngress takes the ingress qdisc off a device of the host, if there is one.
func (b *Bed) clearIngress(ctx context.Context, device string) error {
	out, err := Output(b.Host.Command(ctx, "tc", "qdisc", "show", "dev", device, "ingress"))
	if err != nil || len(out) == 0 {
		return err
	}
	return b.OnHost(ctx, "tc", "qdisc", "del", "dev", device, "ingress")
}

// burstBytes is a bucket of a millisecond, the usual advice: the timer that
// refills it may be late by that much without a loss of rate.
func burstBytes(rateBPS uint64) uint64 {
	return max(rateBPS/8/1000, 2*measure.FrameBytes)
}

// TCRate spells a rate for tc exactly.
func TCRate(bps uint64) string { return strconv.FormatUint(bps, 10) + "bit" }
