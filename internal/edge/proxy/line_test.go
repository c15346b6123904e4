package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// dialed counts the connections of a control that lasts.
func dialed(control Control) (lasting Control, count *int) {
	count = new(int)
	dial := control.Dial
	control.Dial = func(ctx context.Context) (net.Conn, error) {
		*count++
		return dial(ctx)
	}
	return control.Lasting(), count
}

// TestLine: one connection serves for all commands, until the proxy ends or another one
// takes its place.
func TestLine(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	one := Server{Name: "one", Address: saying(t, "one"), Weight: 256}
	config := Config{Service: "shop", Mode: ModeHTTP, QueueTimeout: time.Second, Ports: []Port{{Host: port}}}
	cmd, control := runHAProxy(t, config, dir)
	control, count := dialed(control)
	apply := func(weight int) {
		t.Helper()
		one.Weight = weight
		if _, err := control.Apply(t.Context(), []Port{{Host: port, Servers: []Server{one}}}); err != nil {
			t.Error(err)
		}
	}
	weighs := func(weight int) {
		t.Helper()
		if seen, err := control.Status(t.Context()); err != nil || len(seen.Servers) != 1 || seen.Servers[0].Weight != weight {
			t.Errorf("%+v, %v, want the weight %d", seen.Servers, err, weight)
		}
	}
	apply(256) // four commands in one
	weighs(256)
	apply(7)
	weighs(7)
	if err := control.do(t.Context(), "set server nobody/one weight 1"); err == nil || !strings.Contains(err.Error(), "No such") {
		t.Errorf("a command that fails: %v", err)
	}
	weighs(7)
	if *count != 1 {
		t.Errorf("%d connections", *count)
	}

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := control.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "reach the proxy") {
		t.Errorf("there is none: %v", err)
	}
	runHAProxy(t, config, dir)
	*count = 0
	if seen, err := control.Status(t.Context()); err != nil || len(seen.Servers) != 0 {
		t.Errorf("another one: %+v, %v", seen, err)
	}
	if *count != 1 {
		t.Errorf("%d connections to another one", *count)
	}
}

// TestLineToOneThatEnds: a proxy that ends after its users is left for the one in its place,
// and not kept by who commands it.
func TestLineToOneThatEnds(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	goOn := make(chan struct{})
	answer := sync.OnceFunc(func() { close(goOn) })
	slow := Server{Name: "slow", Weight: 256, Address: answering(t, func(w http.ResponseWriter, _ *http.Request) {
		<-goOn
		_, _ = io.WriteString(w, "late")
	})}
	t.Cleanup(answer) // before the instance ends, which waits for its answers
	config := Config{Service: "shop", Mode: ModeHTTP, QueueTimeout: time.Second, Ports: []Port{{Host: port, Servers: []Server{slow}}}}
	old, control := runHAProxy(t, config, dir)
	control, _ = dialed(control)
	said := make(chan string, 1)
	go func() {
		_, body := get(t, "http://"+netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String())
		said <- body
	}()
	await := func(what string, users int) {
		t.Helper()
		var seen Status
		var err error
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if seen, err = control.Status(t.Context()); err == nil && seen.Users == users {
				return
			}
		}
		t.Errorf("%s: %+v, %v", what, seen, err)
	}
	await("a user waits", 1)
	if err := old.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	runHAProxy(t, config, dir)
	await("the one in its place", 0)
	answer()
	if body := <-said; body != "late" {
		t.Errorf("the user is answered %q", body)
	}
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := old.Process.Wait()
		ended <- state
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the old one goes on")
	}
}

// TestLineIsHungUp that nobody uses.
func TestLineIsHungUp(t *testing.T) {
	here, there := net.Pipe()
	control := Control{Dial: func(context.Context) (net.Conn, error) { return here, nil }}.Lasting()
	go func() {
		text := make([]byte, 100)
		for {
			if _, err := there.Read(text); err != nil {
				return
			}
			_, _ = io.WriteString(there, prompt)
		}
	}()
	if _, err := control.ask(t.Context(), "show stat"); err != nil {
		t.Fatal(err)
	}
	is := func() bool {
		control.line.mu.Lock()
		defer control.line.mu.Unlock()
		return control.line.conn != nil
	}
	if !is() {
		t.Error("it is hung up at once")
	}
	for deadline := time.Now().Add(3 * lineIdle); is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it stays")
		}
	}
}
