package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// slowProxy is a proxy that takes its time for each answer; 0 is none at all.
type slowProxy struct {
	takes time.Duration
	users int
	mu    sync.Mutex
	asked int
}

func (p *slowProxy) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *slowProxy) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	if p.takes == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	takes, users := p.takes, p.users
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		_, _ = bufio.NewReader(there).ReadString('\n')
		time.Sleep(takes)
		fmt.Fprintf(there, "# pxname,svname,scur,qcur,status,weight\ninstances-80,BACKEND,%d,0,UP,1\n", users)
	}()
	return here, nil
}

// TestTalks: a round waits for no proxy, and a slow one's answer counts as long as it is not too old.
func TestTalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, slow, silent := &slowProxy{takes: time.Millisecond, users: 1}, &slowProxy{takes: time.Millisecond, users: 5}, &slowProxy{}
		talks := newTalks()
		ctx, cancel := context.WithCancel(t.Context())
		talks.ctx = ctx
		within := func(f func()) {
			t.Helper()
			began := time.Now()
			if f(); time.Since(began) > proxyPatience {
				t.Errorf("a round waits %v for its proxies", time.Since(began))
			}
		}
		round := func() (list []observedProxy) {
			t.Helper()
			for node, p := range map[string]*slowProxy{"quick": quick, "slow": slow, "silent": silent} {
				list = append(list, observedProxy{Proxy: runtime.Proxy{Node: node, Control: proxy.Control{Dial: p.dial}}})
			}
			within(func() { talks.ask(map[string][]observedProxy{"shop": list}) })
			return list
		}
		expect := func(when string, list []observedProxy, node string, users int, err error, late bool) {
			t.Helper()
			for _, p := range list {
				if p.Node == node && (p.status.Users != users || !errors.Is(p.err, err) || err == nil && p.err != nil || p.late != late) {
					t.Errorf("%s: %s has %d users, error %v, late: %t", when, node, p.status.Users, p.err, p.late)
				}
			}
		}
		list := round()
		expect("first", list, "quick", 1, nil, false)
		expect("first", list, "slow", 5, nil, false)
		expect("first", list, "silent", 0, errSilent, true)

		slow.takes, slow.users = 700*time.Millisecond, 6
		list = round() // which takes as long as its proxyPatience
		expect("slow", list, "quick", 1, nil, false)
		expect("slow", list, "slow", 5, nil, true)
		list = round()
		expect("slow still", list, "slow", 5, nil, true)
		list = round() // its answer is there
		expect("its answer", list, "slow", 6, nil, false)
		if asked := slow.times(); asked != 2 {
			t.Errorf("the slow one was asked %d times", asked)
		}
		slow.takes = 0
		round()
		time.Sleep(silence - time.Second)
		expect("silent for a while", round(), "slow", 6, nil, true)
		time.Sleep(time.Second)
		expect("silent", round(), "slow", 0, context.DeadlineExceeded, true)

		// What is told takes its time beside rounds, and nothing is asked meanwhile.
		list = round()
		quick.takes = 400 * time.Millisecond
		var steps []proxyStep
		for _, p := range list {
			steps = append(steps, proxyStep{observedProxy: p, service: "shop"})
		}
		asked, others := quick.times(), slow.times()
		within(func() { talks.tell(ctx, steps) })
		expect("it is being told", round(), "quick", 1, nil, false)
		if quick.times() != asked+1 || slow.times() != others {
			t.Errorf("told, and asked meanwhile: %d; the silent one: %d", quick.times()-asked, slow.times()-others)
		}
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
	})
}
