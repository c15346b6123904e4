//go:build netns

package classify

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/testbed"
)

// pace sends packets of payloadBytes to target at a rate, for a time.
func pace(target netip.AddrPort, perSecond int, duration time.Duration) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return err
	}
	defer conn.Close()
	payload := make([]byte, payloadBytes)
	start := time.Now()
	for sent := 0; time.Since(start) < duration; {
		time.Sleep(time.Until(start.Add(time.Duration(sent) * time.Second / time.Duration(perSecond))))
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

// Delays of a queue of known length at a known rate are measured, and those
// of another container are its own.
func TestDelays(t *testing.T) {
	const (
		rate       = "10mbit"
		frame      = 14 + 20 + 8 + payloadBytes
		queueBytes = 100 * frame
		delay      = time.Duration(queueBytes) * 8 * time.Second / 10e6
	)
	b := newBed(t)
	full, sparse := b.bridgeContainer("full"), b.bridgeContainer("sparse")
	b.tie(full, v1.ModeBridge, 16)
	b.tie(sparse, v1.ModeBridge, 17)
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
	target := b.targets()[0]
	read := func(number uint16) Histogram {
		var h Histogram
		if err := delays.Read(number, &h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	done := make(chan error)
	go func() {
		done <- testbed.InNetNS(path(full), func() error { return pace(target, 2000, 3*time.Second) })
	}()
	time.Sleep(500 * time.Millisecond) // the queue is full from here on
	before, sparseBefore := read(16), read(17)
	err := testbed.InNetNS(path(sparse), func() error { return pace(target, 50, 2*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	measured, sparseMeasured := read(16), read(17)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	measured.Sub(&before)
	sparseMeasured.Sub(&sparseBefore)
	t.Logf("full: %d packets, median %v, p1 %v, p99 %v; want %v", measured.Packets(), measured.Quantile(0.5), measured.Quantile(0.01), measured.Quantile(0.99), delay)
	t.Logf("sparse: %d packets, median %v, p99 %v", sparseMeasured.Packets(), sparseMeasured.Quantile(0.5), sparseMeasured.Quantile(0.99))

	// 10 Mbit/s for two seconds or a little more.
	if want := uint64(2 * 10_000_000 / 8 / frame); measured.Packets() < want*8/10 || measured.Packets() > want*13/10 {
		t.Errorf("full: %d packets, want about %d", measured.Packets(), want)
	}
	// A packet finds the queue full, or short of one or two; buckets are a
	// quarter wide.
	for _, q := range []float64{0.05, 0.5, 0.95} {
		if got := measured.Quantile(q); got < delay*3/4 || got > delay*5/4 {
			t.Errorf("full: quantile %v is %v, want %v", q, got, delay)
		}
	}
	// So few that each is seen, and none of them waits.
	if got := sparseMeasured.Packets(); got < 95 || got > 105 {
		t.Errorf("sparse: %d packets, want 100", got)
	}
	if got := sparseMeasured.Quantile(0.9); got > delay/4 {
		t.Errorf("sparse: quantile 0.9 is %v", got)
	}

	// While paused nothing is counted, after it again.
	if err := delays.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := read(NumberHost)
	b.sendIn(b.hostNS(), target, 0)
	if now := read(NumberHost); now != paused {
		t.Error("delays were counted during a pause")
	}
	start := time.Now()
	if err := delays.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("resuming took %v", time.Since(start))
	b.sendIn(b.hostNS(), target, 0)
	time.Sleep(200 * time.Millisecond)
	if now := read(NumberHost); now == paused {
		t.Error("delays were not counted after a pause")
	}

	// Others have none.
	for _, number := range []uint16{18, NumberLast} {
		h := read(number)
		if h.Packets() != 0 {
			t.Errorf("number %d has %d packets", number, h.Packets())
		}
	}
	if err := delays.Close(); err != nil {
		t.Error(err)
	}
	closed = true
}

// Where the queue is empty the delay is next to nothing.
func TestDelaysWithoutQueue(t *testing.T) {
	b := newBed(t)
	b.tree("1gbit", 1<<20, NumberHost)
	var delays *Delays
	b.inHost(func() (err error) {
		delays, err = OpenDelays(b.uplink)
		return err
	})
	defer delays.Close()
	err := testbed.InNetNS(b.host.NetNSPath(), func() error { return pace(b.targets()[1], 100, time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	var h Histogram
	if err := delays.Read(NumberHost, &h); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d packets, median %v, p99 %v", h.Packets(), h.Quantile(0.5), h.Quantile(0.99))
	if h.Packets() < 90 || h.Packets() > 110 {
		t.Errorf("%d packets, want 100", h.Packets())
	}
	if h.Quantile(0.5) > 200*time.Microsecond {
		t.Errorf("median %v without a queue", h.Quantile(0.5))
	}
}
