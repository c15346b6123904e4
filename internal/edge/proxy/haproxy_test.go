package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// These tests have a real HAProxy between users and instances, all on this host.

func answering(t *testing.T, handler http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

func saying(t *testing.T, what string) netip.AddrPort {
	return answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) })
}

// freePort is one that nobody has now.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func startHAProxy(t *testing.T, c Config) Control {
	t.Helper()
	_, control := runHAProxy(t, c, t.TempDir())
	return control
}

// runHAProxy starts one whose files are in a folder, perhaps after another one there.
func runHAProxy(t *testing.T, c Config, dir string) (*exec.Cmd, Control) {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("HAProxy is not installed")
	}
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "c")
	c.Control = socket + " mode 600 level admin"
	if err := os.WriteFile(file, []byte(c.File()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-db", "-f", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	control := UnixControl(socket)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := control.Status(context.Background()); err == nil {
			return cmd, control
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}

// The file says an address of before a reboot, at which somebody else is now.
func TestAddressGivenOutAnew(t *testing.T) {
	ours, other := saying(t, "ours"), saying(t, "somebody else's")
	port := Port{Host: freePort(t), Servers: []Server{{Name: "edge-s-1", Address: other, Weight: 256}}}
	control := startHAProxy(t, Config{Service: "s", Mode: ModeHTTP, QueueTimeout: time.Second, Ports: []Port{port}})
	url := fmt.Sprintf("http://127.0.0.1:%d/", port.Host)
	if _, body := get(t, url); body != "somebody else's" {
		t.Fatalf("before, users get %q", body)
	}
	port.Servers[0].Address = ours
	for range 2 {
		if _, err := control.Apply(context.Background(), []Port{port}); err != nil {
			t.Fatal(err)
		}
	}
	if _, body := get(t, url); body != "ours" {
		t.Errorf("users get %q", body)
	}
}

// A busy instance, which answers one user after the other in 0.7 s, is not taken for dead.
func TestBusyIsNotDead(t *testing.T) {
	busy := make(chan struct{}, 1)
	slow := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		busy <- struct{}{}
		time.Sleep(700 * time.Millisecond)
		<-busy
	})
	port := Port{Host: freePort(t), Servers: []Server{{Name: "edge-s-1", Address: slow, Weight: 256}}}
	startHAProxy(t, Config{Service: "s", Mode: ModeHTTP, Health: "/", QueueTimeout: 30 * time.Second, Ports: []Port{port}})
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			if status, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d/", port.Host)); status != http.StatusOK {
				t.Errorf("a user gets %d", status)
			}
		})
	}
	users.Wait()
}

// An instance that has been started and does not listen yet gets no users, who wait for
// the one that is there; it gets its part of them as soon as it answers.
func TestNotListeningYet(t *testing.T) {
	busy := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(20 * time.Millisecond)
			_, _ = io.WriteString(w, what)
		}
	}
	there := Server{Name: "edge-s-1", Address: answering(t, busy("the first")), Weight: 256, MaxUsers: 2}
	port := Port{Host: freePort(t), Servers: []Server{there}}
	control := startHAProxy(t, Config{Service: "s", Mode: ModeHTTP, QueueTimeout: 30 * time.Second, Ports: []Port{port}})
	url := fmt.Sprintf("http://127.0.0.1:%d/", port.Host)
	late := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	port.Servers = append(port.Servers, Server{Name: "edge-s-2", Address: late, Weight: 256, MaxUsers: 2})
	if _, err := control.Apply(context.Background(), []Port{port}); err != nil {
		t.Fatal(err)
	}
	crowd := func(rounds int) (fromLate int) {
		var users sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			users.Go(func() {
				for range rounds {
					status, body := get(t, url)
					if status != http.StatusOK {
						t.Errorf("a user gets %d", status)
					}
					mu.Lock()
					if body == "the second" {
						fromLate++
					}
					mu.Unlock()
				}
			})
		}
		users.Wait()
		return fromLate
	}
	crowd(10)
	listener, err := net.Listen("tcp", late.String())
	if err != nil {
		t.Fatal(err)
	}
	second := &http.Server{Handler: busy("the second"), ReadHeaderTimeout: time.Second}
	go func() { _ = second.Serve(listener) }()
	t.Cleanup(func() { _ = second.Close() })
	for deadline := time.Now().Add(20 * time.Second); crowd(5) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the second instance answers and gets no users")
		}
	}
}

// Instances of other nodes get users by how near and how free they are, and no word is said
// to the proxy while that is about the same.
func TestWeightsArrive(t *testing.T) {
	const ms = time.Millisecond
	there := []Candidate{
		{Answers: true, RoundTrip: ms, FreeBPS: 40e6}, {Answers: true, RoundTrip: ms, FreeBPS: 10e6}, {Answers: true, RoundTrip: 7 * ms, FreeBPS: 40e6},
	}
	var mu sync.Mutex
	answered := map[string]int{}
	port := Port{Host: freePort(t)}
	for _, name := range []string{"near", "busy", "far"} {
		address := answering(t, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			answered[name]++
		})
		port.Servers = append(port.Servers, Server{Name: name, Address: address, Weight: maxWeight})
	}
	control := startHAProxy(t, Config{Service: "s", Mode: ModeHTTP, QueueTimeout: 30 * time.Second, Ports: []Port{port}})
	words, dial := 0, control.Dial
	control.Dial = func(ctx context.Context) (net.Conn, error) {
		words++
		return dial(ctx)
	}
	tell := func() (weights []int, commands int) {
		t.Helper()
		for i, w := range Weights(there, 0, 10) {
			port.Servers[i].Weight = w
		}
		words = 0
		if _, err := control.Apply(context.Background(), []Port{port}); err != nil {
			t.Fatal(err)
		}
		commands = words - 1 // one is a question
		seen, err := control.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range there {
			at := slices.IndexFunc(seen.Servers, func(s ServerStatus) bool { return s.Name == port.Servers[i].Name })
			there[i].Weight = seen.Servers[at].Weight
			weights = append(weights, there[i].Weight)
		}
		return weights, commands
	}
	want := []int{256, 128, 64}
	if weights, _ := tell(); !slices.Equal(weights, want) {
		t.Fatalf("HAProxy has the weights %v, want %v", weights, want)
	}
	for range 140 {
		get(t, fmt.Sprintf("http://127.0.0.1:%d/", port.Host))
	}
	mu.Lock()
	defer mu.Unlock()
	for i, name := range []string{"near", "busy", "far"} {
		if most := 140 * want[i] / (256 + 128 + 64); answered[name] < most*3/4 || answered[name] > most*5/4 {
			t.Errorf("of 140 users %v: %s should have about %d", answered, name, most)
		}
	}
	for round := range 10 {
		there[1].FreeBPS = 10e6 + uint64(round%3)*1e6
		if weights, commands := tell(); commands != 0 || !slices.Equal(weights, want) {
			t.Errorf("a little more is free: %d commands, and the weights are %v", commands, weights)
		}
	}
	there[1].FreeBPS = 40e6
	if weights, commands := tell(); commands != 1 || !slices.Equal(weights, []int{256, 256, 64}) {
		t.Errorf("as much is free: %d commands, and the weights are %v", commands, weights)
	}
}
