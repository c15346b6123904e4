package harness

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

// A share is judged while its container has packets queued at the uplink. TCP on a machine short
// of processors sends and acknowledges in bursts, loses many packets of a burst, and is silent for
// up to its retransmission timeout of 200 ms; what it leaves meanwhile goes to others, rightly.

// leafInterval is the time between two looks at the queues, below queueDuration.
const leafInterval = 3 * time.Millisecond

// leafWatch records when queues of containers that want all they can get ran dry.
type leafWatch struct {
	tc      *kernel.TC
	ifindex int
	leaves  []leaf
	ended   chan struct{}
	done    chan struct{}

	mu  sync.Mutex
	err error
}

// leaf is the queue of one container.
type leaf struct {
	number uint16
	// emptySinceNS is 0 while it has packets.
	emptySinceNS int64
	dry          []traffic.Lateness
}

// watchLeaves watches the queues of containers at the uplink of a network namespace from now on; nil
// if none has a queue that is known.
func watchLeaves(tb testing.TB, netns string, ifindex int, containers []*Container) *leafWatch {
	tb.Helper()
	w := &leafWatch{ended: make(chan struct{}), done: make(chan struct{}), ifindex: ifindex}
	must.Succeed(tb, testbed.InNetNS(netns, func() error {
		for _, c := range containers {
			number, err := numberOf(c)
			if err != nil {
				return err
			}
			if number != 0 { // else its sockets tell it, and no tap
				w.leaves = append(w.leaves, leaf{number: number})
			}
		}
		if len(w.leaves) == 0 {
			return nil
		}
		var err error
		w.tc, err = kernel.OpenTC()
		return err
	}))
	if w.tc == nil {
		return nil
	}
	go func() {
		defer close(w.done)
		traffic.Urgently(w.watch)
	}()
	tb.Cleanup(func() {
		if err := w.close(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// numberOf returns the number that a container's tap gives its packets; 0 without a tap.
func numberOf(c *Container) (uint16, error) {
	attached, err := identity.NewInspector().Inspect(c.NetNSPath(), c.Interface())
	if err != nil {
		return 0, fmt.Errorf("find the tap of %s: %w", c.Name, err)
	}
	for _, a := range attached {
		if number, err := identity.TapNumber(a.Tap); err != nil || number != 0 {
			return number, err
		}
	}
	return 0, nil
}

// classMajor is the major of all containers' classes (internal/datapath/htb).
const classMajor = 0x7e11

func (w *leafWatch) watch() {
	var handles []kernel.Handle
	for _, l := range w.leaves {
		for class := range uint16(4) { // its leaf, or one for each traffic class
			handles = append(handles, kernel.NewHandle(classMajor, class<<12|l.number))
		}
	}
	var stats []kernel.ClassStats
	for {
		select {
		case <-w.ended:
			return
		default:
		}
		var err error
		stats, err = w.tc.ClassStats(w.ifindex, handles, stats[:0])
		nowNS := traffic.MonotonicNS()
		w.mu.Lock()
		if w.err = err; err == nil {
			w.look(nowNS, stats)
		}
		w.mu.Unlock()
		traffic.SleepUntil(nowNS + leafInterval.Nanoseconds())
	}
}

// look records which queues are empty at nowNS. A container without classes has no queue to judge.
func (w *leafWatch) look(nowNS int64, stats []kernel.ClassStats) {
	for i := range w.leaves {
		l := &w.leaves[i]
		known, backlog := false, uint32(0)
		for _, s := range stats {
			if s.Handle.Minor()&0xfff == l.number {
				known, backlog = true, backlog+s.BacklogBytes
			}
		}
		switch {
		case known && backlog == 0 && l.emptySinceNS == 0:
			l.emptySinceNS = nowNS
		case l.emptySinceNS != 0 && (backlog > 0 || !known):
			if lasted := nowNS - l.emptySinceNS; lasted > queueDuration.Nanoseconds() {
				l.dry = append(l.dry, traffic.Lateness{FromNS: l.emptySinceNS, UntilNS: nowNS, ByNS: lasted})
			}
			l.emptySinceNS = 0
		}
	}
}

// dry returns for how long the queue that ran dry most was dry between two times of
// CLOCK_MONOTONIC. Up to queueDuration does not count.
func (w *leafWatch) dry(fromNS, untilNS int64) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := time.Duration(0)
	for _, l := range w.leaves {
		runs := l.dry
		if since := l.emptySinceNS; since != 0 {
			runs = append(runs[:len(runs):len(runs)], traffic.Lateness{FromNS: since, UntilNS: untilNS, ByNS: untilNS - since})
		}
		most = max(most, traffic.TotalLate(runs, queueDuration, fromNS, untilNS))
	}
	return most, w.err
}

func (w *leafWatch) close() error {
	select {
	case <-w.ended:
		return nil
	default:
	}
	close(w.ended)
	<-w.done
	return w.tc.Close()
}
