package traffic

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// TestSetDSCP: the datagrams of a flow have its DSCP, with IPv4 and IPv6, and those of others none.
func TestSetDSCP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the sender's buffers need root")
	}
	const ef = 46
	for address, option := range map[string][2]int{"127.0.0.1:9": {unix.IPPROTO_IP, unix.IP_TOS}, "[::1]:9": {unix.IPPROTO_IPV6, unix.IPV6_TCLASS}} {
		target := netip.MustParseAddrPort(address)
		sender, err := NewTimed(TimedOptions{Targets: []netip.AddrPort{target, target}, PayloadBytes: 100, IntervalNS: 500e3})
		must.Succeed(t, err)
		must.Succeed(t, sender.SetDSCP(1, ef))
		for flow, want := range []int{0, ef << 2} {
			if got, err := unix.GetsockoptInt(sender.fds[flow], option[0], option[1]); err != nil || got != want {
				t.Errorf("%v: flow %d to %s has the traffic class %d, want %d", err, flow, address, got, want)
			}
		}
		must.Succeed(t, sender.Stop())
	}
}

// TestTimed: datagrams of two flows in turn arrive with their times, none lost.
func TestTimed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the receiver's buffers need root")
	}
	first, second := must.FreePort(t), must.FreePort(t)
	for second == first {
		second = must.FreePort(t)
	}
	receiver, err := NewReceiver(first, second)
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	address := netip.MustParseAddr("127.0.0.1")
	sender, err := NewTimed(TimedOptions{
		Targets:      []netip.AddrPort{netip.AddrPortFrom(address, first), netip.AddrPortFrom(address, second)},
		PayloadBytes: 100, IntervalNS: 500e3,
	})
	if err != nil {
		t.Fatal(err)
	}
	sender.Start(MonotonicNS())
	for deadline := time.Now().Add(30 * time.Second); sender.Sent()[1] < 50; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is sent")
		}
	}
	if err := sender.Stop(); err != nil {
		t.Fatal(err)
	}
	sent := sender.Sent()
	arrivals, overruns := receiver.Take()
	for deadline := time.Now().Add(30 * time.Second); uint64(len(arrivals[0])) < sent[0] || uint64(len(arrivals[1])) < sent[1]; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			break
		}
		more, lost := receiver.Take()
		overruns += lost
		for flow := range arrivals {
			arrivals[flow] = append(arrivals[flow], more[flow]...)
		}
	}
	if overruns != 0 || sent[0]-sent[1] > 1 {
		t.Errorf("%d overruns, sent %d", overruns, sent)
	}
	for flow, got := range arrivals {
		if uint64(len(got)) != sent[flow] {
			t.Fatalf("%d of %d arrived", len(got), sent[flow])
		}
		for i, one := range got {
			if one.Sequence != uint64(i) || one.Bytes != 100 || one.Delay() < 0 || one.Delay() > time.Second {
				t.Errorf("datagram %d: %+v", i, one)
			}
		}
	}
	if again, _ := receiver.Take(); len(again[0])+len(again[1]) != 0 {
		t.Error("what was taken is there again")
	}
}

// TestTakeCountsOverrunsOnce: datagrams that sockets dropped before the last Take count no more.
func TestTakeCountsOverrunsOnce(t *testing.T) {
	r := &Receiver{arrivals: make([][]Arrival, 2), overruns: []uint32{3, 4}, taken: make([]uint32, 2)}
	for _, test := range []struct{ overruns, want uint32 }{{4, 7}, {4, 0}, {6, 2}} {
		r.overruns[1] = test.overruns
		if _, got := r.Take(); got != test.want {
			t.Errorf("%d overruns, want %d", got, test.want)
		}
	}
}

func TestTimedRefuses(t *testing.T) {
	for _, o := range []TimedOptions{{PayloadBytes: 8, IntervalNS: 1}, {PayloadBytes: 100}} {
		if _, err := NewTimed(o); err == nil || !strings.Contains(err.Error(), "at least 16 bytes, and a positive time") {
			t.Errorf("error %v", err)
		}
	}
}

func TestParseStamp(t *testing.T) {
	if at, lost := parseStamp(nil); at != 0 || lost != 0 {
		t.Errorf("nothing is a stamp: %d, %d", at, lost)
	}
	if at, lost := parseStamp(make([]byte, 20)); at != 0 || lost != 0 {
		t.Errorf("zeros are a stamp: %d, %d", at, lost)
	}
}
