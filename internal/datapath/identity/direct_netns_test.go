//go:build netns

package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// fastLink sends a packet before the next one comes.
var fastLink = sched.Bounds{RateBPS: 1e12, DirectBytes: 1 << 16}

// slowUplink puts a scheduler on the uplink, in the place of Weir's: HTB, and in
// the place of a slow device a bucket that lets a packet through at once and then
// takes 100 ms for each.
func (b *bed) slowUplink() {
	b.t.Helper()
	for _, args := range [][]string{
		{"qdisc", "add", "dev", b.host.UplinkName, "root", "handle", "1:", "tbf", "rate", "80kbit", "burst", "1600", "limit", "10mb"},
		{"qdisc", "add", "dev", b.host.UplinkName, "parent", "1:1", "handle", "7e0f:", "htb", "default", "1"},
		{"class", "add", "dev", b.host.UplinkName, "parent", "7e0f:", "classid", "7e0f:1", "htb", "rate", "1gbit"},
	} {
		b.run("tc", append([]string{"-n", b.hostNS()}, args...)...)
	}
}

// directPackets is how many packets HTB says went direct.
func (b *bed) directPackets() int {
	b.t.Helper()
	out, err := exec.Command("tc", "-n", b.hostNS(), "-j", "-s", "qdisc", "show", "dev", b.host.UplinkName).Output()
	must.Succeed(b.t, err)
	var qdiscs []struct {
		Kind    string
		Options struct {
			Direct int `json:"direct_packets_stat"`
		}
	}
	if err := json.Unmarshal(out, &qdiscs); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	for _, q := range qdiscs {
		if q.Kind == "htb" {
			return q.Options.Direct
		}
	}
	b.t.Fatalf("no HTB in %s", out)
	return 0
}

// newDirectBed is newBed on a kernel on which packets may go direct.
func newDirectBed(t *testing.T) *bed {
	t.Helper()
	switch err := ProbeDirect(); {
	case errors.Is(err, ebpf.ErrNotSupported):
		t.Skipf("this kernel lets no program see whether somebody waits: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return newBed(t)
}

// setDirect says who may go direct, and nobody else.
func (b *bed) setDirect(want ...sched.Direct) {
	b.t.Helper()
	must.Succeed(b.t, b.uplink.SetDirect(fastLink, want))
}

func (b *bed) directBytes(number uint16) uint64 {
	b.t.Helper()
	bytes, packets, err := b.uplink.DirectSent(number)
	must.Succeed(b.t, err)
	if least, most := bytes/(64<<10), bytes/14; uint64(packets) < least || uint64(packets) > most || (packets == 0) != (bytes == 0) {
		b.t.Errorf("%d bytes in %d packets", bytes, packets)
	}
	return bytes
}

// A packet goes past the classes if it may and nobody waits; the first one does,
// and those that find it waiting do not.
func TestDirect(t *testing.T) {
	b := newDirectBed(t)
	target := b.targets()[0]
	frame := frameBytes(target) / packets

	b.setDirect(sched.Direct{Number: NumberHost, May: true})
	b.expect("an empty queue", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
	if got := b.directBytes(NumberHost); got < frameBytes(target) {
		t.Errorf("%d bytes went direct where nobody waits, want %d", got, frameBytes(target))
	}

	b.slowUplink()
	before := b.directBytes(NumberHost)
	b.expect("a slow uplink", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
	got := b.directBytes(NumberHost) - before
	// One, and one for each 100 ms that the sending took, if it found the queue
	// empty: not here, as 99 wait.
	if got < frame || got > 2*frame {
		t.Errorf("%d bytes went direct, want those of the first packet, %d", got, frame)
	}
	if direct := b.directPackets(); uint64(direct) != got/frame {
		t.Errorf("HTB counts %d direct packets, the classifier %d", direct, got/frame)
	}
}

// Who may not go direct does not, whatever waits.
func TestDirectIsRefused(t *testing.T) {
	b := newBed(t)
	target := b.targets()[0]
	for what, set := range map[string][]sched.Direct{
		"nothing said":    nil,
		"another may":     {{Number: NumberFirst, May: true}},
		"it may not":      {{Number: NumberHost, May: false}, {Number: NumberFirst, May: true}},
		"neither may":     {{Number: NumberFirst, May: false}},
		"nobody any more": {},
	} {
		b.setDirect(sched.Direct{Number: NumberHost, May: true}) // for a moment
		b.setDirect(set...)
		before := b.directBytes(NumberHost)
		b.expect(what, NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
		if got := b.directBytes(NumberHost) - before; got != 0 {
			t.Errorf("%s: %d bytes went direct", what, got)
		}
	}
}

// Packets that come faster than the link sends do not go direct, though its queue
// be empty: those of the test take it 100 s all together.
func TestDirectLeavesTheRate(t *testing.T) {
	b := newBed(t)
	target := b.targets()[0]
	frame := frameBytes(target) / packets
	must.Succeed(t, b.uplink.SetDirect(sched.Bounds{RateBPS: 8 * frame, DirectBytes: 1 << 16}, []sched.Direct{{Number: NumberHost, May: true}}))
	b.expect("a slow link", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
	if got := b.directBytes(NumberHost); got > frame {
		t.Errorf("%d bytes went direct, want one packet's %d", got, frame)
	}
}

// TestOverhead: what the link sends besides each packet is offered, and not sent, by classes and
// direct, and the shortest frame is filled up.
func TestOverhead(t *testing.T) {
	b := newDirectBed(t)
	target := b.targets()[0]
	const overhead, shortest = 24, 60
	each := max(frameBytes(target)/packets, shortest) + overhead
	for _, may := range []bool{false, true} {
		bounds := fastLink
		bounds.OverheadBytes = overhead
		must.Succeed(t, b.uplink.SetDirect(bounds, []sched.Direct{{Number: NumberHost, May: may}}))
		before := b.directBytes(NumberHost)
		b.expect(fmt.Sprintf("direct: %v", may), NumberHost, packets*each, func() { b.sendIn(b.hostNS(), target, 0) })
		if direct := b.directBytes(NumberHost) - before; may && direct < frameBytes(target) || !may && direct != 0 {
			t.Errorf("%d bytes went direct, may they: %v", direct, may)
		}
	}
	must.Succeed(t, b.uplink.SetDirect(fastLink, nil))
	b.expect("no overhead", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
}

// Who may go direct, and what did, outlives an agent, but not the container.
func TestDirectIsKept(t *testing.T) {
	b := newDirectBed(t)
	target := b.targets()[0]
	b.setDirect(sched.Direct{Number: NumberHost, May: true}, sched.Direct{Number: victim, May: true})
	b.sendIn(b.hostNS(), target, 0)
	sent := b.directBytes(NumberHost)
	b.open()
	want := []sched.Direct{{Number: NumberHost, May: true}, {Number: victim, May: true}}
	if !slices.Equal(b.uplink.direct, want) || b.directBytes(NumberHost) < sent {
		t.Errorf("a new agent finds %v, %d bytes, want %v, %d", b.uplink.direct, b.directBytes(NumberHost), want, sent)
	}
	b.setDirect(sched.Direct{Number: NumberHost, May: false})
	if got := b.directBytes(NumberHost); got < sent {
		t.Errorf("%d bytes are left of %d when it may no more", got, sent)
	}
	b.setDirect(sched.Direct{Number: victim, May: true})
	if got := b.directBytes(NumberHost); got != 0 {
		t.Errorf("%d bytes are left when it is gone", got)
	}
	b.open()
	if want := []sched.Direct{{Number: victim, May: true}}; !slices.Equal(b.uplink.direct, want) {
		t.Errorf("a new agent finds %v, want %v", b.uplink.direct, want)
	}
}

// A packet that is too large for the link does not go direct, where nothing would
// cut it up.
func TestDirectIsSmall(t *testing.T) {
	b := newDirectBed(t)
	target := b.targets()[0]
	frame := frameBytes(target) / packets
	for largest, want := range map[uint64]uint64{frame - 1: 0, frame: frameBytes(target)} {
		must.Succeed(t, b.uplink.SetDirect(sched.Bounds{RateBPS: fastLink.RateBPS, DirectBytes: uint32(largest)}, []sched.Direct{{Number: NumberHost, May: true}}))
		before := b.directBytes(NumberHost)
		b.sendIn(b.hostNS(), target, 0)
		if got := b.directBytes(NumberHost) - before; got < want || got >= want+slackBytes {
			t.Errorf("%d bytes went direct of packets of %d where %d may, want %d", got, frame, largest, want)
		}
	}
}
