//go:build netns

package sdn

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

// TestTransfersOnEF: a transfer on a port of EF is BE on the switch soon, not only after the next
// statistics of all flows. Open vSwitch counts what its datapath sent every max-revalidator, which is
// 500 ms unless set, and a controller cannot know before.
func TestTransfersOnEF(t *testing.T) {
	b := newBed(t)
	b.startWeir("--stats-interval", "30s")
	h1, h2 := b.twoHosts()
	for _, c := range []struct {
		counted time.Duration
		load    traffic.SenderOptions
		port    uint16
	}{
		{500 * time.Millisecond, traffic.SenderOptions{Protocol: traffic.TCP}, 5060},
		{500 * time.Millisecond, traffic.SenderOptions{Protocol: traffic.UDP, PayloadBytes: 1200}, 5060},
		{100 * time.Millisecond, traffic.SenderOptions{Protocol: traffic.TCP}, 5432},
		{100 * time.Millisecond, traffic.SenderOptions{Protocol: traffic.UDP, PayloadBytes: 1200}, 123},
	} {
		name := fmt.Sprintf("%s to port %d", c.load.Protocol, c.port)
		b.vsctl("set", "Open_vSwitch", ".", fmt.Sprintf("other_config:max-revalidator=%d", c.counted.Milliseconds()))
		var sink *traffic.Sink
		var sender *traffic.Sender
		b.in(h2, func() (err error) {
			sink, err = traffic.NewSink(c.port, 1)
			return err
		})
		c.load.Target, c.load.RateBPS = netip.AddrPortFrom(netip.MustParseAddr("198.18.66.2"), c.port), 20_000_000
		b.in(h1, func() (err error) {
			sender, err = traffic.NewSender(t.Context(), c.load)
			return err
		})
		inQueue := func(queue int) func() error {
			return func() error {
				if entries := b.entries("br0"); lineWith(entries, string(c.load.Protocol)+",", fmt.Sprintf("tp_dst=%d ", c.port), fmt.Sprintf("set_queue:%d,", queue)) == "" {
					return fmt.Errorf("%s: no entry with queue %d: %s", name, queue, entries)
				}
				return nil
			}
		}
		sender.Start(0)
		b.wait("EF", 10*time.Second, inQueue(2))
		urgent := time.Now()
		b.wait("BE", 10*time.Second, inQueue(0))
		took := time.Since(urgent)
		t.Logf("%s, counted every %v: it is EF for %v", name, c.counted, took)
		if most := 2*c.counted + 500*time.Millisecond; took > most {
			t.Errorf("%s, counted every %v: it is EF for %v, want at most %v", name, c.counted, took, most)
		}
		sender.Stop()
		must.Succeed(t, sink.Close())
	}
}
