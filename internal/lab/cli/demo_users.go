package cli

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// demoUsers are the users of one service, and what they measured themselves: when their requests
// were answered, and what arrived at their sockets.
type demoUsers struct {
	name  string
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	leave func() // ends the present crowd; nil without one

	bytes atomic.Uint64
	mu    sync.Mutex
	seen  []demoSample
}

// demoSample is what users have measured by a moment. All numbers only grow.
type demoSample struct {
	at              time.Time
	bytes           uint64
	answers, failed int
	waited          time.Duration
}

const (
	sampleTime = 50 * time.Millisecond
	// samplesKept are those of ten minutes.
	samplesKept = 12000
	// segmentBytes is what a full segment of TCP carries.
	segmentBytes = 1448
	// keptPart of a minimum has to arrive in each second.
	keptPart = 0.97
)

// come ends the present crowd and lets another one come.
func (u *demoUsers) come(ctx context.Context, url string, count int) {
	u.goAway()
	ctx, cancel := context.WithCancel(ctx)
	u.mu.Lock()
	now := demoSample{at: time.Now()}
	if len(u.seen) > 0 {
		now = u.seen[len(u.seen)-1]
	} else {
		u.seen = append(u.seen, now)
	}
	u.mu.Unlock()
	var crowd sync.WaitGroup
	crowd.Go(func() {
		profile.Crowd{URL: url, Users: count, Timeout: 5 * time.Second, Dial: u.connect, Tell: func(took time.Duration, answered bool) {
			u.mu.Lock()
			defer u.mu.Unlock()
			if answered {
				now.answers++
				now.waited += took
			} else {
				now.failed++
			}
		}}.Run(ctx)
	})
	crowd.Go(func() {
		for ticker := time.NewTicker(sampleTime); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			u.mu.Lock()
			now.at, now.bytes = time.Now(), u.bytes.Load()
			u.seen = append(u.seen[max(0, len(u.seen)-samplesKept):], now)
			u.mu.Unlock()
		}
	})
	u.leave = func() {
		cancel()
		crowd.Wait()
	}
}

func (u *demoUsers) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := u.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &traffic.CountedConn{Conn: conn, Bytes: &u.bytes}, nil
}

// goAway ends the present crowd.
func (u *demoUsers) goAway() {
	if u.leave != nil {
		u.leave()
		u.leave = nil
	}
}

// came reports whether there have been users yet.
func (u *demoUsers) came() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen) > 0
}

// gotten is what users measured between two moments.
type gotten struct {
	bps             float64 // of frames at an uplink
	answers, failed int
	mean            time.Duration
	took            time.Duration
}

func between(a, b demoSample) (m gotten) {
	m.took = b.at.Sub(a.at)
	if m.took > 0 {
		m.bps = float64(b.bytes-a.bytes) * 8 / m.took.Seconds() * (segmentBytes + measure.TCPHeaderBytes) / segmentBytes
	}
	m.answers, m.failed = b.answers-a.answers, b.failed-a.failed
	if m.answers > 0 {
		m.mean = (b.waited - a.waited) / time.Duration(m.answers)
	}
	return m
}

// lately returns what users measured in the time before now.
func (u *demoUsers) lately(span time.Duration) (m gotten) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := len(u.seen) - 1; i >= 0; i-- {
		last := u.seen[len(u.seen)-1]
		if i == 0 || last.at.Sub(u.seen[i].at) >= span {
			return between(u.seen[i], last)
		}
	}
	return m
}

// keeps reports whether users had a minimum in each second of the last span.
func (u *demoUsers) keeps(minBPS float64, span time.Duration) bool {
	since := time.Now().Add(-span)
	_, until, least := u.short(minBPS, since)
	return until == 0 && least > 0
}

// short returns from when and until when, after a moment, users had less than a minimum: the begin of the
// first second in which less arrived, and of the first one after which it always did. least is the
// rate of the worst second, 0 if no second has passed.
func (u *demoUsers) short(minBPS float64, since time.Time) (from, until time.Duration, least float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first, end := true, 0
	for i, a := range u.seen {
		if a.at.Before(since) {
			continue
		}
		for end < len(u.seen) && u.seen[end].at.Sub(a.at) < time.Second {
			end++
		}
		if end == len(u.seen) {
			break
		}
		bps := between(a, u.seen[end]).bps
		if least == 0 || bps < least {
			least = max(bps, 1)
		}
		if bps < keptPart*minBPS {
			if first {
				from, first = a.at.Sub(since), false
			}
			until = u.seen[i+1].at.Sub(since)
		}
	}
	return from, until, least
}

// rates and requests are what users measured, for people.
func (u *demoUsers) rates(span time.Duration) string {
	return fmt.Sprintf("%s %s", u.name, demoRate(u.lately(span).bps))
}

func (u *demoUsers) requests(span time.Duration) string {
	m := u.lately(span)
	text := fmt.Sprintf("%s %.0f answers/s", u.name, float64(m.answers)/max(m.took.Seconds(), sampleTime.Seconds()))
	if m.answers > 0 {
		text += fmt.Sprintf(" in %d ms", m.mean.Milliseconds())
	}
	if m.failed > 0 {
		text += fmt.Sprintf(", %d failed", m.failed)
	}
	return text
}

func demoRate(bps float64) string { return fmt.Sprintf("%.1f Mbit/s", bps/1e6) }
