package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
)

// # Proxies that are slow
//
// A node whose uplink has become too slow keeps its proxies' answers waiting, and decisions are
// needed just then. So a round waits for no proxy longer than proxyPatience: it asks all side by side
// and goes on with the answers that are there. A question or an order that takes longer goes on
// beside rounds, and the proxy is asked and told nothing else meanwhile. An answer that comes between
// rounds is that of the next one, which tells the proxy instead of asking it again: one that is slow
// each time is asked and told in turn. Its last answer counts until it is older than silence.

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
	// next has the answer to what the proxy was asked or told; nil if that was nothing since last.
	next chan proxyAnswer
	last proxyAnswer
}

// proxyAnswer is an answer to a question, and how the last order ended.
type proxyAnswer struct {
	at     time.Time
	status proxy.Status
	err    error
	// refused: the last order was.
	refused error
}

// begin runs f beside rounds, unless the proxy has not answered the one before yet.
func (t *talk) begin(f func() proxyAnswer) {
	if t.next == nil {
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
			before := one.last.at
			if one.hear(); one.last.at.After(before) && one.last.err == nil {
				continue
			}
			refused := one.last.refused
			one.begin(func() proxyAnswer {
				status, err := control.Status(t.ctx)
				return proxyAnswer{time.Now(), status, err, refused}
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
// is that of a later one.
func (t *talks) tell(ctx context.Context, list []proxyStep) {
	var keeping sync.WaitGroup
	for i := range list {
		keeping.Go(func() { list[i].keep(ctx) })
	}
	told := make([]bool, len(list))
	keeping.Wait()
	for i := range list {
		step, one := list[i], t.with[entry{list[i].service, list[i].Node}]
		if told[i] = step.err == nil && !step.late && one != nil; told[i] {
			answer := one.last
			one.begin(func() proxyAnswer {
				step.tell(t.ctx)
				answer.err, answer.refused = step.err, step.refused
				return answer
			})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	for i := range list {
		s := &list[i]
		one := t.with[entry{s.service, s.Node}]
		if told[i] {
			one.wait(ctx)
			s.err = one.last.err
		}
		if one != nil {
			s.refused = one.last.refused
		}
	}
}
