package run

import (
	"context"
	"errors"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
)

// # Proxies that are slow
//
// A node whose uplink has become too slow keeps its proxies' answers waiting, and decisions are
// needed just then. So a round waits for no proxy longer than proxyPatience: it asks all side by side
// and goes on with the answers that are there. A question or an order that takes longer goes on
// beside rounds, and the proxy is asked and told nothing else meanwhile. Its last answer counts
// until it is older than silence.

const (
	// proxyPatience is much longer than a proxy takes on an idle network, and shorter than a period.
	proxyPatience = 250 * time.Millisecond
	silence       = 2 * time.Second
)

var errSilent = errors.New("no answer in time")

// talks are the conversations with proxies. Only turns use them.
type talks struct {
	ctx  context.Context // of Run
	with map[entry]*talk
}

func newTalks() *talks { return &talks{ctx: context.Background(), with: map[entry]*talk{}} }

type talk struct {
	// next has the answer to what the proxy was asked; nil if it was asked nothing since last.
	next chan proxyAnswer
	last proxyAnswer
}

type proxyAnswer struct {
	at     time.Time
	status proxy.Status
	err    error
}

// begin runs f beside rounds, unless the proxy has not answered the one before yet.
func (t *talk) begin(f func() proxyAnswer) {
	if t.hear(); t.next == nil {
		next := make(chan proxyAnswer, 1)
		t.next = next
		go func() { next <- f() }()
	}
}

// hear takes the answer if it is there.
func (t *talk) hear() {
	select {
	case t.last = <-t.next:
		t.next = nil
	default:
	}
}

// wait waits for the answer, at most until ctx ends.
func (t *talk) wait(ctx context.Context) {
	if t.next == nil {
		return
	}
	select {
	case t.last = <-t.next:
		t.next = nil
	case <-ctx.Done():
		t.hear()
	}
}

// ask asks all proxies and sets what they report.
func (t *talks) ask(proxies map[string][]observedProxy) {
	with := map[entry]*talk{}
	for service, list := range proxies {
		for i := range list {
			p, at := &list[i], entry{service, list[i].Node}
			one, control := t.with[at], p.Control
			if one == nil {
				one = &talk{last: proxyAnswer{err: errSilent}}
			}
			with[at] = one
			one.begin(func() proxyAnswer {
				status, err := control.Status(t.ctx)
				return proxyAnswer{time.Now(), status, err}
			})
		}
	}
	t.with = with
	ctx, cancel := context.WithTimeout(t.ctx, proxyPatience)
	defer cancel()
	for service, list := range proxies {
		for i := range list {
			p, one := &list[i], with[entry{service, list[i].Node}]
			one.wait(ctx)
			p.status, p.err, p.late = one.last.status, one.last.err, one.next != nil
			if p.late && p.err == nil && time.Since(one.last.at) > silence {
				p.status, p.err = proxy.Status{}, errSilent
			}
		}
	}
}

// tell changes all proxies that have answered. The result of an order that takes longer than proxyPatience
// is dropped, because the next answer shows it.
func (t *talks) tell(ctx context.Context, list []proxyStep) {
	results := make([]chan proxyStep, len(list))
	for i := range list {
		s := &list[i]
		s.keep(ctx)
		one := t.with[entry{s.service, s.Node}]
		if s.err != nil || s.late || one == nil {
			continue
		}
		step, last, result := *s, one.last, make(chan proxyStep, 1)
		one.begin(func() proxyAnswer {
			step.tell(t.ctx)
			result <- step
			return last
		})
		results[i] = result
	}
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	for i := range list {
		if results[i] == nil {
			continue
		}
		t.with[entry{list[i].service, list[i].Node}].wait(ctx)
		select {
		case list[i] = <-results[i]:
		default:
		}
	}
}
