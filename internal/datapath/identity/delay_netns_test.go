//go:build netns

package identity

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// pace sends packets to target at a rate, for a time, and catches up when it
// was late.
func pace(target netip.AddrPort, perSecond int, duration time.Duration) error {
	start := time.Now()
	return sendStamped(target, func(sent int) bool {
		time.Sleep(time.Until(start.Add(time.Duration(sent) * time.Second / time.Duration(perSecond))))
		return time.Since(start) < duration
	})
}

// trickle sends packets to target that are interval apart, or more.
func trickle(target netip.AddrPort, count int, interval time.Duration) error {
	return sendStamped(target, func(sent int) bool {
		time.Sleep(interval)
		return sent < count
	})
}

// sendStamped sends packets of payloadBytes to target as long as next says so,
// which is told how many were sent. Each carries the time.
func sendStamped(target netip.AddrPort, next func(sent int) bool) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return err
	}
	defer conn.Close()
	payload := make([]byte, payloadBytes)
	for sent := 0; next(sent); {
		binary.NativeEndian.PutUint64(payload, uint64(time.Now().UnixNano()))
		_, err := conn.Write(payload)
		switch {
		case err == nil:
			sent++
		case errors.Is(err, unix.ECONNREFUSED): // the answer to one before
		default:
			return err
		}
	}
	return nil
}

// arrival is a packet of pace's at the neighbour.
type arrival struct {
	at    time.Time
	delay time.Duration
}

// receive collects what pace sends to a port of the neighbour, with the
// kernel's time of arrival, until stop is called.
func (b *bed) receive(port uint16) (stop func() []arrival) {
	b.t.Helper()
	var conn *net.UDPConn
	err := testbed.InNetNS(b.host.PeerNetNSPath(), func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		return err
	})
	must.Succeed(b.t, err)
	raw, err := conn.SyscallConn()
	must.Succeed(b.t, err)
	var set error
	err = raw.Control(func(fd uintptr) {
		set = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20))
	})
	must.Succeed(b.t, errors.Join(err, set))
	var arrivals []arrival
	done := make(chan struct{})
	go func() {
		defer close(done)
		payload, control := make([]byte, payloadBytes), make([]byte, 64)
		for {
			_, n, _, _, err := conn.ReadMsgUDP(payload, control)
			if err != nil {
				return // closed
			}
			messages, err := unix.ParseSocketControlMessage(control[:n])
			if err != nil || len(messages) != 1 || len(messages[0].Data) != 16 {
				continue
			}
			seconds := binary.NativeEndian.Uint64(messages[0].Data)
			nanoseconds := binary.NativeEndian.Uint64(messages[0].Data[8:])
			at := time.Unix(int64(seconds), int64(nanoseconds))
			sent := time.Unix(0, int64(binary.NativeEndian.Uint64(payload)))
			arrivals = append(arrivals, arrival{at, at.Sub(sent)})
		}
	}()
	return func() []arrival {
		conn.Close()
		<-done
		return arrivals
	}
}

// Delays are those that the neighbour sees, of a container with a full queue
// and of one with an empty one.
func TestDelays(t *testing.T) {
	const (
		rate       = "10mbit"
		frame      = 14 + 20 + 8 + payloadBytes
		queueBytes = 100 * frame // 83 ms
	)
	b := newBed(t)
	full, sparse := b.bridgeContainer("full"), b.bridgeContainer("sparse")
	b.assign(full, v1.ModeBridge, 16)
	b.assign(sparse, v1.ModeBridge, 17)
	b.tree(rate, queueBytes, NumberHost, 16, 17)
	var delays *Delays
	b.inHost(func() (err error) {
		delays, err = OpenDelays(b.uplink)
		return err
	})
	closed := false
	defer func() {
		if !closed {
			delays.Close()
		}
	}()
	read := func(number uint16) Histogram {
		var h Histogram
		must.Succeed(t, delays.Read(number, &h))
		return h
	}
	fullTarget, target := netip.AddrPortFrom(b.host.PeerAddr, 1009), netip.AddrPortFrom(b.host.PeerAddr, 1010)
	stopFull, stopSparse := b.receive(fullTarget.Port()), b.receive(target.Port())
	done := make(chan error)
	go func() {
		done <- testbed.InNetNS(path(full), func() error { return pace(fullTarget, 2000, 4*time.Second) })
	}()
	time.Sleep(500 * time.Millisecond) // the queue is full from here on
	before, sparseBefore, from := read(16), read(17), time.Now()
	if n := before.Packets(); n != 0 {
		t.Errorf("%d packets were counted before the first reading", n)
	}
	err := testbed.InNetNS(path(sparse), func() error { return trickle(target, 100, 20*time.Millisecond) })
	must.Succeed(t, err)
	time.Sleep(100 * time.Millisecond) // the last has left
	measured, sparseMeasured, until := read(16), read(17), time.Now()
	must.Succeed(t, <-done)
	b.awaitEmpty()
	measured.Sub(&before)
	sparseMeasured.Sub(&sparseBefore)

	for _, of := range []struct {
		name     string
		measured Histogram
		arrivals []arrival
		// packetsOff is how far off the estimate of the number may be: one in
		// 32 is looked at of the one that fills its queue.
		packetsOff float64
	}{
		{"full", measured, stopFull(), 0.3},
		{"sparse", sparseMeasured, stopSparse(), 0.02},
	} {
		var seen []time.Duration
		for _, a := range of.arrivals {
			if a.at.After(from) && a.at.Before(until) {
				seen = append(seen, a.delay)
			}
		}
		if len(seen) < 50 {
			t.Fatalf("%s: %d packets arrived", of.name, len(seen))
		}
		slices.Sort(seen)
		packets, want := float64(of.measured.Packets()), float64(len(seen))
		if math.Abs(packets-want) > of.packetsOff*want+1 {
			t.Errorf("%s: %v packets measured, %v arrived", of.name, packets, want)
		}
		for _, q := range []float64{0.25, 0.5, 0.75} {
			got, want := of.measured.Quantile(q), seen[int(q*want)]
			t.Logf("%s: quantile %v of %v packets is %v, the neighbour saw %v", of.name, q, packets, got, want)
			// A bucket is a quarter wide; the way to the hook and from the
			// driver takes time as well.
			if got < want*3/4-time.Millisecond || got > want*5/4+time.Millisecond {
				t.Errorf("%s: quantile %v is %v, the neighbour saw %v", of.name, q, got, want)
			}
		}
	}
	if median := measured.Quantile(0.5); median < 40*time.Millisecond {
		t.Errorf("full: the queue was not, delays are %v", median)
	}

	// While paused nothing is counted, after it again.
	must.Succeed(t, delays.Pause())
	paused := read(NumberHost)
	b.sendIn(b.hostNS(), target, 0)
	if now := read(NumberHost); now != paused {
		t.Error("delays were counted during a pause")
	}
	start := time.Now()
	must.Succeed(t, delays.Resume())
	t.Logf("resuming took %v", time.Since(start))
	// Those sent in the pause may have used up what is stamped for certain in a window of 16 ticks,
	// of which one takes 10 ms at most (bpf/delay.h).
	time.Sleep(200 * time.Millisecond)
	b.sendIn(b.hostNS(), target, 0)
	for deadline := time.Now().Add(10 * time.Second); read(NumberHost) == paused; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("delays were not counted after a pause")
		}
	}

	// Others have none.
	for _, number := range []uint16{18, NumberLast} {
		h := read(number)
		if h.Packets() != 0 {
			t.Errorf("number %d has %d packets", number, h.Packets())
		}
	}
	// Those of a container that is gone take no memory, and do not count for the number's next holder.
	kept := read(16)
	delays.Keep(func(number uint16) bool { return number == 16 })
	if n := delayEntries(t, delays); n != sched.NumTrafficClasses {
		t.Errorf("%d entries are left of one number, want one for each class", n)
	}
	if now, anew := read(16), read(17); now != kept || anew.Packets() != 0 {
		t.Errorf("after dropping the others: number 16 has %d packets, want %d, and number 17 %d, want 0", now.Packets(), kept.Packets(), anew.Packets())
	}
	if err := delays.Close(); err != nil {
		t.Error(err)
	}
	closed = true
}

// awaitEmpty waits until no packet is in the uplink's queues.
func (b *bed) awaitEmpty() {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.Command("tc", "-n", b.hostNS(), "-s", "qdisc", "show", "dev", b.host.UplinkName, "root").Output()
		must.Succeed(b.t, err)
		if strings.Contains(string(out), " backlog 0b 0p ") {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("packets wait for ten seconds: %s", out)
		}
	}
}

// delayEntries returns the number of histograms in the kernel.
func delayEntries(t *testing.T, d *Delays) int {
	entries, key, value := 0, uint32(0), make([]byte, delaysBytes)
	all := d.delays.Iterate()
	for all.Next(&key, &value) {
		entries++
	}
	must.Succeed(t, all.Err())
	return entries
}

// Where the queue is empty the delay is next to nothing, and packets that go past
// the classes are measured like the others.
func TestDelaysWithoutQueue(t *testing.T) {
	b := newBed(t)
	b.tree("1gbit", 1<<20, NumberHost)
	var delays *Delays
	b.inHost(func() (err error) {
		delays, err = OpenDelays(b.uplink)
		return err
	})
	defer delays.Close()
	var before Histogram
	must.Succeed(t, delays.Read(NumberHost, &before)) // from here on it is counted
	for _, may := range []bool{false, true} {
		b.setDirect(sched.Direct{Number: NumberHost, May: may})
		went := b.directBytes(NumberHost)
		err := testbed.InNetNS(b.host.NetNSPath(), func() error { return trickle(b.targets()[1], 100, 10*time.Millisecond) })
		must.Succeed(t, err)
		if b.directBytes(NumberHost) == went && may && !errors.Is(ProbeDirect(), ebpf.ErrNotSupported) {
			t.Error("nothing went direct")
		}
		var h Histogram
		must.Succeed(t, delays.Read(NumberHost, &h))
		all := h
		h.Sub(&before)
		before = all
		t.Logf("direct %t: %d packets, median %v, p99 %v", may, h.Packets(), h.Quantile(0.5), h.Quantile(0.99))
		if h.Packets() != 100 {
			t.Errorf("direct %t: %d packets, want 100", may, h.Packets())
		}
		if h.Quantile(0.5) > 200*time.Microsecond {
			t.Errorf("direct %t: median %v without a queue", may, h.Quantile(0.5))
		}
	}
}
