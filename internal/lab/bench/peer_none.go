package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

const (
	frameBytes = 1514 // an Ethernet frame without FCS
	// fifoPackets is the default length of an interface's queue.
	fifoPackets = 1000
)

// fifo is no QoS: one queue in front of a link. The token bucket stands for
// the link itself, since a veth pair is as fast as the CPU; its queue is the
// one every interface has, and it sends whole frames at line rate as a network
// card does.
type fifo struct {
	static
	// always is a queue also where the link has no rate. A veth pair has none
	// by default, not even a lock; a network card has, so this is what control
	// of a card should be compared with.
	always bool
}

func (f fifo) apply(ctx context.Context, b *bed, c Case, _ []placed) error {
	qdisc := []string{"pfifo", "limit", strconv.Itoa(fifoPackets)}
	if c.LinkBPS > 0 {
		qdisc = []string{
			"tbf", "rate", tcRate(c.LinkBPS),
			"burst", strconv.FormatUint(burstBytes(c.LinkBPS), 10),
			"limit", strconv.Itoa(fifoPackets * frameBytes),
		}
	} else if !f.always {
		return nil
	}
	args := append([]string{"qdisc", "replace", "dev", b.host.UplinkName, "root", "handle", "1:"}, qdisc...)
	if err := b.onHost(ctx, "tc", args...); err != nil {
		return fmt.Errorf("limit the link: %w", err)
	}
	return nil
}

func (fifo) remove(ctx context.Context, b *bed, _ []placed) error {
	return b.clearUplink(ctx)
}

// clearUplink takes the qdisc off the uplink, if there is one.
func (b *bed) clearUplink(ctx context.Context) error {
	out, err := output(b.host.Command(ctx, "tc", "qdisc", "show", "dev", b.host.UplinkName, "root"))
	if err != nil {
		return err
	}
	if len(out) == 0 || strings.HasPrefix(string(out), "qdisc noqueue") {
		return nil
	}
	return b.onHost(ctx, "tc", "qdisc", "del", "dev", b.host.UplinkName, "root")
}

// burstBytes is a bucket of a millisecond, the usual advice: the timer that
// refills it may be late by that much without a loss of rate.
func burstBytes(rateBPS uint64) uint64 {
	return max(rateBPS/8/1000, 2*frameBytes)
}

// tcRate spells a rate for tc exactly.
func tcRate(bps uint64) string { return strconv.FormatUint(bps, 10) + "bit" }
