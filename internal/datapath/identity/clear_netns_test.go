//go:build netns

package identity

import (
	"net/netip"
	"path/filepath"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// byQueueMapping is an offset in struct __sk_buff.
const byQueueMapping = offsetQueueMapping

// beside adds another link to the neighbour, with so many transmit queues, and returns its index
// and an address at its far end.
func (b *bed) beside(name, txQueues string) (ifindex int, target netip.AddrPort) {
	b.t.Helper()
	host, peer := b.hostNS(), filepath.Base(b.host.PeerNetNSPath())
	far := name + "far"
	b.run("ip", "-n", host, "link", "add", name, "numtxqueues", txQueues, "type", "veth", "peer", "name", far, "netns", peer)
	b.run("ip", "-n", host, "addr", "add", "198.19.255.253/30", "dev", name)
	b.run("ip", "-n", peer, "addr", "add", "198.19.255.254/30", "dev", far)
	b.run("ip", "-n", host, "link", "set", name, "up")
	b.run("ip", "-n", peer, "link", "set", far, "up")
	b.inHost(func() error {
		l, err := kernel.LinkByName(name)
		ifindex = l.Index
		return err
	})
	return ifindex, netip.MustParseAddrPort("198.19.255.254:9")
}

// hasClear reports whether a device of the host's clears tags.
func (b *bed) hasClear(ifindex int) (has bool) {
	b.t.Helper()
	b.inHost(func() error {
		program, err := clearHook(ifindex).Find(clearProgWeirClear)
		if program != nil {
			has = true
			program.Close()
		}
		return err
	})
	return has
}

// A packet that leaves beside the uplink, through a device with several transmit queues, has no
// tag where its queue is chosen, or the kernel counts it down.
func TestQueueTags(t *testing.T) {
	if err := kernel.ProbeTCX(); err != nil {
		t.Skipf("nothing can be counted after other programs here: %v", err)
	}
	b := newBed(t)
	one := b.bridgeContainer("one")
	b.assign(one, v1.ModeBridge, NumberFirst)
	ifindex, target := b.beside("lan4", "4")
	const tag = uint32(uplinkWeirTagWEIR_TAG_BASE) | uint32(NumberFirst)
	sends := func() (tagged, clear bool) {
		counts := b.tally(ifindex, byQueueMapping)
		must.Succeed(t, testbed.InNetNS(path(one), func() error { return trickle(target, 5, 0) }))
		return b.seen(counts, tag), b.seen(counts, 0)
	}
	if tagged, _ := sends(); !tagged {
		t.Fatal("a tag does not get to the device: there is nothing to clear")
	}
	var tags QueueTags
	apply := func(uplinks ...int) { b.inHost(func() error { return tags.Clear(uplinks) }) }
	apply(b.ifindex)
	apply(b.ifindex) // changes nothing
	if tagged, clear := sends(); tagged || !clear {
		t.Errorf("packets have a tag: %v, or none: %v", tagged, clear)
	}
	if b.hasClear(b.ifindex) {
		t.Error("the uplink has the program")
	}
	// The uplink's program sees the tag first.
	b.expect("to the uplink", NumberFirst, frameBytes(b.targets()[0]), func() { b.sendIn(one, b.targets()[0], 0) })

	apply(b.ifindex, ifindex)
	if b.hasClear(ifindex) {
		t.Error("a device that became an uplink has the program")
	}
	b.run("ip", "-n", b.hostNS(), "link", "del", "lan4")
	apply(b.ifindex) // of a device that is gone
	ifindex, _ = b.beside("lan2", "2")
	tags = QueueTags{} // the next agent's
	apply(b.ifindex)
	if !b.hasClear(ifindex) {
		t.Error("a device that came later has no program")
	}
	// A container's veth uses one transmit queue of as many as there are processors.
	b.inHost(func() error {
		links, err := kernel.Links()
		for _, l := range links {
			if l.Kind == "veth" && l.Index != ifindex && b.hasClear(l.Index) {
				t.Errorf("%s has the program", l.Name)
			}
		}
		return err
	})
	b.inHost(tags.Detach)
	if b.hasClear(ifindex) {
		t.Error("the program stays")
	}
}

// BenchmarkQueueTags tells what a tag costs a packet that leaves beside the uplink, through a
// device with two transmit queues: the CPU time of a small packet from a bridge container without
// clearing and with, and without a tag, in short turns that alternate. It reports medians.
//
//	go test -tags netns -run - -bench QueueTags -benchtime 30x ./internal/datapath/identity
func BenchmarkQueueTags(bench *testing.B) {
	b := newBed(bench)
	one := b.bridgeContainer("one")
	tap := b.assign(one, v1.ModeBridge, NumberFirst)
	_, target := b.beside("lan2", "2")
	b.listen(target.Port())
	times := b.packetTimes(bench, one, target, 3, func(way int) (stop func()) {
		if way == 1 {
			var tags QueueTags
			b.inHost(func() error { return tags.Clear([]int{b.ifindex}) })
			return func() { b.inHost(tags.Detach) }
		}
		b.inHost(func() error { return DetachTap(tap) })
		return func() { b.assign(one, v1.ModeBridge, NumberFirst) }
	})
	bench.ReportMetric(times[0], "ns-tagged")
	bench.ReportMetric(times[1], "ns-cleared")
	bench.ReportMetric(times[2], "ns-untagged")
}
