package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	says  string // to orders
	mu    sync.Mutex
	asked int
	told  int
}

func (p *slowProxy) times() (asked, told int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.told
}

func (p *slowProxy) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	if p.takes == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	takes, answer := p.takes, fmt.Sprintf("# pxname,svname,scur,qcur,status,weight\ninstances-80,BACKEND,%d,0,UP,1\n", p.users)
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if command, _ := bufio.NewReader(there).ReadString('\n'); command != "show stat\n" {
			p.mu.Lock()
			answer = p.says
			p.told++
			p.mu.Unlock()
		}
		time.Sleep(takes)
		_, _ = io.WriteString(there, answer)
	}()
	return here, nil
}

// of returns the proxies of a service as a round begins with them.
func of(proxies map[string]*slowProxy) map[string][]observedProxy {
	list := []observedProxy{}
	for node, p := range proxies {
		list = append(list, observedProxy{Proxy: runtime.Proxy{Node: node, Control: proxy.Control{Dial: p.dial}}})
	}
	return map[string][]observedProxy{"shop": list}
}

// orders returns the steps that give each proxy a server.
func orders(list []observedProxy) (steps []proxyStep) {
	server := proxy.Server{Name: proxy.InstanceName("shop-1"), Address: netip.MustParseAddrPort("198.18.0.1:80"), Weight: 1}
	for _, p := range list {
		steps = append(steps, proxyStep{observedProxy: p, service: "shop", ports: []proxy.Port{{Host: 80, Servers: []proxy.Server{server}}}})
	}
	return steps
}

// TestTalksSteadilySlow: a proxy that is slow each time is told as well, and what it refuses is said.
func TestTalksSteadilySlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowProxy{takes: 300 * time.Millisecond, says: "No such backend."}
		talks, ctx := newTalks(), t.Context()
		talks.ctx = ctx
		refused := 0
		for range 20 {
			began, seen := time.Now(), of(map[string]*slowProxy{"slow": slow})
			talks.ask(seen)
			steps := orders(seen["shop"])
			if talks.tell(ctx, steps); steps[0].refused != nil {
				refused++
			}
			time.Sleep(500*time.Millisecond - time.Since(began))
		}
		if asked, told := slow.times(); told < 4 || asked < 8 || refused < 10 {
			t.Errorf("asked %d times, told %d times, and %d rounds say that it refused", asked, told, refused)
		}
		time.Sleep(time.Second)
		slow.says, slow.takes = "", time.Millisecond
		for range 2 {
			seen := of(map[string]*slowProxy{"slow": slow})
			talks.ask(seen)
			steps := orders(seen["shop"])
			if talks.tell(ctx, steps); steps[0].refused == nil {
				return
			}
		}
		t.Error("it has taken the last order, and still counts as one that refused")
	})
}

// TestTalksKeep: proxies' files are kept side by side.
func TestTalksKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps, began := make([]proxyStep, 5), time.Now()
		for i := range steps {
			steps[i].Restart = func(context.Context) error {
				time.Sleep(time.Second)
				return errors.ErrUnsupported
			}
		}
		newTalks().tell(t.Context(), steps)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		for i := range steps {
			if !errors.Is(steps[i].saveErr, errors.ErrUnsupported) {
				t.Errorf("proxy %d: %v", i, steps[i].saveErr)
			}
		}
	})
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
		round := func() []observedProxy {
			t.Helper()
			seen := of(map[string]*slowProxy{"quick": quick, "slow": slow, "silent": silent})
			within(func() { talks.ask(seen) })
			return seen["shop"]
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
		if asked, _ := slow.times(); asked != 2 {
			t.Errorf("the slow one was asked %d times", asked)
		}
		slow.takes = 0
		round()
		time.Sleep(silence - time.Second)
		expect("silent for a while", round(), "slow", 6, nil, true)
		time.Sleep(time.Second)
		expect("silent", round(), "slow", 0, context.DeadlineExceeded, true)

		// A slow order goes on beside rounds, and the proxy is asked nothing meanwhile.
		list = round()
		quick.takes = 400 * time.Millisecond
		var steps []proxyStep
		for _, p := range list {
			steps = append(steps, proxyStep{observedProxy: p, service: "shop"})
		}
		asked, _ := quick.times()
		others, _ := slow.times()
		within(func() { talks.tell(ctx, steps) })
		expect("it is being told", round(), "quick", 1, nil, false)
		now, _ := quick.times()
		if also, _ := slow.times(); now != asked+1 || also != others {
			t.Errorf("told, and asked meanwhile: %d; the silent one: %d", now-asked, also-others)
		}
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
	})
}
