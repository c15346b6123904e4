package response

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

func TestParseLine(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		line        string
		took, first time.Duration
	}{
		{"shop edge-shop-1 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 1500 --\n", 51500 * time.Microsecond, 33 * time.Millisecond},
		{"shop edge-shop-1 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 - --\n", 50 * time.Millisecond, 33 * time.Millisecond},
		{line: "shop edge-shop-1 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 - CD\n"},  // the user left
		{line: "shop <NOSRV> 192.0.2.1 4000 198.51.100.1 80 0 60000 -1 -1 50 - --\n"}, // no instance
		{line: "shop edge-shop-1 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 -1 - --\n"},
		{line: "shop edge-shop-1 192.0.2.1 x 198.51.100.1 80 0 1 2 30 50 - --\n"},
		{line: "shop"},
	} {
		a, ok := parseLine(c.line, now)
		if ok != (c.took > 0) || ok && (a.service != "shop" || a.instance != "edge-shop-1" || a.took != c.took || a.first != c.first ||
			a.conn.Remote.String() != "192.0.2.1:4000" || a.conn.Local.String() != "198.51.100.1:80") {
			t.Errorf("%q: %+v, %t", c.line, a, ok)
		}
	}
}

// TestParseLineIPv6: HAProxy writes IPv6 addresses without brackets.
func TestParseLineIPv6(t *testing.T) {
	a, ok := parseLine("shop edge-shop-1 2001:db8::1 4000 2001:db8::2 80 0 1 2 30 50 - --\n", time.Unix(1000, 0))
	if !ok || a.conn.Remote.String() != "[2001:db8::1]:4000" || a.conn.Local.String() != "[2001:db8::2]:80" {
		t.Errorf("%+v, %t", a, ok)
	}
}

// TestFollow: the last byte of an answer is delivered a round trip after it left for good.
func TestFollow(t *testing.T) {
	const trip = time.Millisecond
	type look struct {
		held        bool
		unacked     uint32
		retransmits uint32
		received    uint64
		closed      bool
	}
	for what, c := range map[string]struct {
		looks []look // 10 ms apart
		want  time.Duration
		held  bool
	}{
		"acknowledged at once":         {looks: []look{{received: 9}}, want: trip},
		"closed at once":               {looks: []look{{closed: true}}},
		"a delayed acknowledgement":    {looks: []look{{unacked: 9, received: 9}, {unacked: 9, received: 9}, {received: 9}}, want: trip},
		"held, and gone":               {looks: []look{{held: true, unacked: 9, received: 9}, {unacked: 9, received: 9}, {received: 9}}, want: 5*time.Millisecond + trip, held: true},
		"held until it is closed":      {looks: []look{{held: true, unacked: 9, received: 9}, {closed: true}}, want: 5*time.Millisecond + trip, held: true},
		"lost, and sent again":         {looks: []look{{unacked: 9, received: 9}, {unacked: 9, retransmits: 1, received: 9}, {received: 9, retransmits: 1}}, want: 5*time.Millisecond + trip},
		"the next request":             {looks: []look{{held: true, unacked: 9, received: 9}, {held: true, unacked: 9, received: 18}}, want: 5*time.Millisecond + trip, held: true},
		"the next request, and a wait": {looks: []look{{unacked: 9, received: 9}, {unacked: 9, received: 18}}, want: trip},
	} {
		began, step := time.Unix(1000, 0), 0
		var got *answer
		var deliveredAt time.Time
		tr := tracker{
			look: func(kernel.Connection) (kernel.Sending, bool, error) {
				l := c.looks[step]
				step++
				return kernel.Sending{Held: l.held, UnackedBytes: l.unacked, Retransmits: l.retransmits, ReceivedBytes: l.received, MinRTT: trip}, !l.closed, nil
			},
			done: func(a *answer, at time.Time) { got, deliveredAt = a, at },
		}
		tr.add(&answer{writtenAt: began, due: began})
		for i := range c.looks {
			if tr.active[0].due = began; !tr.step(began.Add(time.Duration(10*i)*time.Millisecond)).IsZero() != (i < len(c.looks)-1) {
				t.Errorf("%s: followed for %d looks", what, i+1)
				break
			}
		}
		if got == nil || deliveredAt.Sub(began) != c.want || got.held != c.held || len(tr.active) > 0 {
			t.Errorf("%s: %+v after %v", what, got, deliveredAt.Sub(began))
		}
	}
}

// TestTrackerIsBounded: when all places are taken, answers that users do not read for long make room,
// and a service for one that has fewer.
func TestTrackerIsBounded(t *testing.T) {
	began := time.Unix(1000, 0)
	var counted []*answer
	tr := tracker{done: func(a *answer, at time.Time) {
		if counted = append(counted, a); at.Sub(a.writtenAt) != overdue {
			t.Errorf("it counts with %v", at.Sub(a.writtenAt))
		}
	}}
	fill := func(service string, n int, at time.Time) {
		for range n {
			tr.add(&answer{service: service, writtenAt: at})
		}
	}
	followed := func(service string) (n int) {
		for _, a := range tr.active {
			if a.service == service {
				n++
			}
		}
		return n
	}
	fill("noisy", 2*mostTracked, began)
	if len(tr.active) != mostTracked || len(counted) > 0 {
		t.Fatal(len(tr.active), len(counted))
	}
	oldest := tr.active[0]
	fill("quiet", 2*mostTracked, began.Add(time.Second))
	if followed("quiet") != mostTracked/2 || followed("noisy") != mostTracked/2 || len(counted) > 0 || tr.active[0] != oldest {
		t.Errorf("%d of the quiet service, %d counted", followed("quiet"), len(counted))
	}
	fill("noisy", 1, began.Add(overdue))
	if len(counted) != 1 || counted[0] != oldest || len(tr.active) != mostTracked {
		t.Errorf("counted %+v, %d followed", counted, len(tr.active))
	}
}

// TestBudget: a service with many requests leaves others what they need.
func TestBudget(t *testing.T) {
	const line = " i 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 - --"
	var tr tracker
	quiet, noisy := 0, 0
	for range 10 { // turns
		tr.budget.renew()
		tr.active = nil
		for i := range 1000 {
			tr.take("noisy"+line, time.Unix(1000, 0))
			if i%100 == 99 {
				tr.take("quiet"+line, time.Unix(1000, 0))
			}
		}
		for _, a := range tr.active {
			if a.service == "quiet" {
				quiet++
			} else {
				noisy++
			}
		}
	}
	if quiet != 100 || noisy < 90 || noisy > 120 {
		t.Errorf("%d requests of the quiet service, %d of the noisy one", quiet, noisy)
	}
}

// TestServicesArePresent: response times of more than a minute ago are not given.
func TestServicesArePresent(t *testing.T) {
	c := New(nil, nil)
	for service, age := range map[string]time.Duration{"now": 0, "lately": 45 * time.Second, "old": 70 * time.Second} {
		at := time.Now().Add(-age)
		c.count(&answer{service: service, instance: "i", writtenAt: at}, at.Add(time.Millisecond))
	}
	list, err := c.Services()
	if err != nil || len(list) != 4 || list[0].Service != "lately" || list[2].Service != "now" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWindow(t *testing.T) {
	now := time.Unix(9000, 0)
	var w window
	w.add(now.Add(-time.Minute), time.Hour, 0)
	if got := w.summary(now); got.requests != 1 || got.mean != time.Hour || got.p95 < 55*time.Second {
		t.Errorf("the last request is a minute old: %+v", got)
	}
	for i := range 100 {
		w.add(now.Add(-time.Duration(i%20)*time.Second), time.Duration(i+1)*10*time.Millisecond, 4*time.Millisecond)
	}
	got := w.summary(now)
	if got.requests != 100 || got.mean != 505*time.Millisecond || got.delivery != 4*time.Millisecond || got.p95 < 930*time.Millisecond || got.p95 > 990*time.Millisecond {
		t.Errorf("%+v", got)
	}
	var fast window
	fast.add(now, 0, 0)
	if got := fast.summary(now); got.p95 > time.Millisecond {
		t.Errorf("%+v", got)
	}
}
