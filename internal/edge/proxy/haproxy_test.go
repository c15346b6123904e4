package proxy

import (
	"bufio"
	"context"
	"errors"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
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

// reusing lets sockets of one user share a port, as those of HAProxy do.
var reusing = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
	controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, controlErr)
}}

// freePort reserves a port until the test ends, by a socket that does not listen: other programs get
// none of its addresses, not even for a connection. A listener there has to be reusing.
func freePort(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must.Succeed(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must.Succeed(t, unix.Bind(fd, &unix.SockaddrInet4{}))
	address, err := unix.Getsockname(fd)
	must.Succeed(t, err)
	return uint16(address.(*unix.SockaddrInet4).Port)
}

func startHAProxy(t *testing.T, c Config) Control {
	t.Helper()
	_, control := runHAProxy(t, c, t.TempDir())
	return control
}

// runHAProxy starts one whose files are in a folder, perhaps after another one there, by a command that
// runs another one.
func runHAProxy(t *testing.T, c Config, dir string, by ...string) (*exec.Cmd, Control) {
	t.Helper()
	if _, err := os.Stat(Binary); err != nil {
		t.Skip("HAProxy is not installed")
	}
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "c")
	c.Control = socket + " mode 600 level admin"
	if err := os.WriteFile(file, []byte(c.File()), 0o600); err != nil {
		t.Fatal(err)
	}
	command := slices.Concat(by, Command(file))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = t.Output() // why it ends
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

// user gives up in time for the test to say why.
var user = &http.Client{Timeout: 2 * time.Minute}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := user.Get(url)
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
	listener, err := reusing.Listen(t.Context(), "tcp", late.String())
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

// TestUsersAndConnections: users are requests in progress and queued, not connections. Connections
// that send a request slowly, or none, end; one source cannot have all places.
func TestUsersAndConnections(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	slow := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-goOn
		}
	})
	t.Cleanup(release) // before the instance ends, which waits for its answers
	port := Port{Host: freePort(t), Servers: []Server{{Name: "edge-s-1", Address: slow, Weight: 256, MaxUsers: 1}}}
	control := startHAProxy(t, Config{Service: "s", Mode: ModeHTTP, QueueTimeout: 30 * time.Second, Ports: []Port{port}})
	address := fmt.Sprintf("127.0.0.1:%d", port.Host)
	dial := func(source, text string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).Dial("tcp", address)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			_, err = io.WriteString(conn, text)
		}
		if err != nil && source == "127.0.0.1" { // others may be refused
			t.Fatal(err)
		}
		return conn
	}
	answered := func(conn net.Conn) bool {
		_ = conn.SetReadDeadline(time.Now().Add(2 * requestTimeout))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	began := time.Now()
	idle, partial := dial("127.0.0.1", "GET / HTTP/1.1\r\nHost: s\r\n\r\n"), dial("127.0.0.1", "GET / HTTP/1.1\r\nHost:")
	if !answered(idle) {
		t.Fatal("no answer")
	}
	var users sync.WaitGroup
	for range 3 {
		users.Go(func() { get(t, "http://"+address+"/slow") })
	}
	var seen Status
	for deadline := time.Now().Add(20 * time.Second); seen.Users != 3 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		seen, _ = control.Status(t.Context())
	}
	if seen.Users != 3 || seen.Waiting != 2 || seen.Full {
		t.Errorf("of three requests and two idle connections: %+v", seen)
	}
	release()
	users.Wait()
	all := Config{}.places()
	for range all {
		dial("127.0.0.2", "")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		other := dial("127.0.0.3", "GET / HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n")
		if other != nil && answered(other) {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("one source has all places")
		}
	}
	// HAProxy's clock stands still while HAProxy does. Without its timeout the first would go on until
	// requestTimeout, the other until idleTimeout.
	again := dial("127.0.0.1", "GET / HTTP/1.1\r\nHost: s\r\n\r\n")
	if !answered(again) {
		t.Fatal("no answer")
	}
	for _, c := range []struct {
		name string
		conn net.Conn
		most time.Duration
	}{
		{"after an answer", again, (keepAlive + requestTimeout) / 2},
		{"in a request", partial, max(time.Until(began.Add(idleTimeout-requestTimeout)), time.Second)},
	} {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.most))
		if _, err := io.Copy(io.Discard, c.conn); err != nil {
			t.Errorf("a connection that is idle %s goes on for more than %v: %v", c.name, c.most, err)
		}
	}
}

// TestIPv6: where the kernel has IPv6, users connect over both, and those of one IPv6 network of 64
// bits, which is what a machine has, count as one. Where it has none, as its files say, they connect
// over IPv4.
func TestIPv6(t *testing.T) {
	here, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this host has no IPv6")
	}
	here.Close()
	config := func() Config {
		port := Port{Host: freePort(t), Servers: []Server{{Name: "edge-s-1", Address: saying(t, "hello"), Weight: 256}}}
		return Config{Service: "s", Mode: ModeHTTP, QueueTimeout: time.Second, Ports: []Port{port}}
	}
	c := config()
	control := startHAProxy(t, c)
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		if _, body := get(t, fmt.Sprintf("http://%s:%d/", address, c.Ports[0].Host)); body != "hello" {
			t.Errorf("at %s users get %q", address, body)
		}
	}
	counted, err := control.ask(t.Context(), "show table "+c.Ports[0].frontend())
	must.Succeed(t, err)
	for _, source := range []string{"key=::ffff:127.0.0.1 ", "key=:: "} {
		if !strings.Contains(counted, source) {
			t.Errorf("%q is not in\n%s", source, counted)
		}
	}

	without := []string{"unshare", "-r", "-m", "/bin/sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"}
	if out, err := exec.Command(without[0], append(without[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no other files of the kernel: %v: %s", err, out)
	}
	c = config()
	runHAProxy(t, c, t.TempDir(), without...)
	if _, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/", c.Ports[0].Host)); body != "hello" {
		t.Errorf("without IPv6 users get %q", body)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", c.Ports[0].Host)); err == nil {
		conn.Close()
		t.Error("it listens over IPv6 on a host that has none")
	}
}

// TestFirstUserWaits: users of a service without instances have their answers once there is one, over
// HTTP and TCP.
func TestFirstUserWaits(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeHTTP, ModeTCP} {
		port := Port{Host: freePort(t)}
		control := startHAProxy(t, Config{Service: "s", Mode: mode, QueueTimeout: 30 * time.Second, Sleeps: true, Ports: []Port{port}})
		var users sync.WaitGroup
		for range 3 {
			users.Go(func() {
				if status, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/", port.Host)); status != http.StatusOK || body != "awake" {
					t.Errorf("%s: the answer is %d %q", mode, status, body)
				}
			})
		}
		seen := Status{}
		for deadline := time.Now().Add(10 * time.Second); seen.Connected < 3 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			seen, _ = control.Status(t.Context())
		}
		if seen.Connected != 3 {
			t.Errorf("%s: %d users wait", mode, seen.Connected)
		}
		time.Sleep(200 * time.Millisecond) // they wait
		port.Servers = []Server{{Name: "edge-s-1", Address: saying(t, "awake"), Weight: 256}}
		began := time.Now()
		if _, err := control.Apply(t.Context(), []Port{port}); err != nil {
			t.Fatal(err)
		}
		users.Wait()
		t.Logf("%s: answered %v after the instance was there", mode, time.Since(began))
	}
}
