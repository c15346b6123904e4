//go:build netns

package netns

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestResponseTime: what the agent says of a service's users is what they measure on the other side
// of the uplink, on an empty and on a full one, by size of the page and by use of connections.
func TestResponseTime(t *testing.T) {
	if _, err := os.Stat(proxy.Binary); err != nil {
		t.Skip("HAProxy is not installed")
	}
	b := newBed(t)
	b.Run("sysctl", "-qw", "net.unix.max_dgram_qlen=512") // as systemd does for all
	bulk := b.Add("bulk", nil)
	proxies := b.AddMode("proxies", testbed.ModeHost, map[string]string{v1.LabelEdgeRole: v1.EdgeProxy})
	agent := b.StartAgent(harness.AgentOptions{})
	pages := servePages(t, b)
	port := uint16(8000)
	checkStream(t, b, agent, proxies, port, pages)
	checkForger(t, b, agent)
	for _, uplink := range []string{"empty", "full"} {
		if uplink == "full" {
			b.Send(bulk, harness.Load{Protocol: traffic.TCP, Connections: 8})
			b.WarmUp()
		}
		for _, size := range []int{1000, 60_000, 5_000_000} {
			for _, fresh := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/fresh=%t", uplink, size, fresh), func(t *testing.T) {
					harness.CheckSteady(t, func() error {
						port++
						service := fmt.Sprint("pages", port)
						startProxy(t, b, proxies, service, port, pages)
						requests := min(max(20_000_000/3/size, 2), 500)
						url := fmt.Sprintf("http://%v:%d/%d?[1-%d]", b.Host.UplinkAddr(), port, size, requests)
						// A burst is more than the agent reads in its turn: ask again until it knows
						// enough to compare. All requests count.
						var users []float64
						for range 3 {
							users = append(users, askFromPeer(t, b, url, fresh)...)
							if knowsOf(t, agent, service, min(len(users), 50)) {
								break
							}
						}
						return compareResponses(t, agent, service, users)
					})
				})
			}
		}
	}
}

// checkStream: a stream of events is not a long answer.
func checkStream(t *testing.T, b *harness.Bed, agent *harness.Agent, proxies *harness.Container, port uint16, pages netip.AddrPort) {
	startProxy(t, b, proxies, "stream", port, pages)
	for _, path := range []string{"events", "1000"} {
		askFromPeer(t, b, fmt.Sprintf("http://%v:%d/%s", b.Host.UplinkAddr(), port, path), false)
	}
	harness.Await(t, "the agent knows the pages", time.Second, func() error {
		node, err := agent.Client.Node(t.Context())
		i := slices.IndexFunc(node.Measured.Responses, func(r v1.ServiceResponse) bool { return r.Service == "stream" })
		if err != nil || i < 0 || node.Measured.Responses[i].Requests != 3 {
			return fmt.Errorf("responses %+v: %w", node.Measured.Responses, err)
		}
		return nil
	})
}

// checkForger: root's lines from outside a proxy's container do not count.
func checkForger(t *testing.T, b *harness.Bed, agent *harness.Agent) {
	const line = "forged i 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 - --"
	must.Succeed(t, testbed.InNetNS(b.Host.NetNSPath(), func() error {
		socket := "@" + v1.ResponseSocket + strings.Repeat("\x00", len(unix.RawSockaddrUnix{}.Path)-len(v1.ResponseSocket)-1)
		conn, err := net.Dial("unixgram", socket)
		if err == nil {
			defer conn.Close()
			_, err = conn.Write([]byte(line))
		}
		return err
	}))
	time.Sleep(200 * time.Millisecond) // until the agent has read it
	node, err := agent.Client.Node(t.Context())
	if err != nil || slices.ContainsFunc(node.Measured.Responses, func(r v1.ServiceResponse) bool { return r.Service == "forged" }) {
		t.Errorf("responses %+v, %v", node.Measured.Responses, err)
	}
}

// askFromPeer has three users at the neighbour ask for pages one after the other, and returns how
// long each request took, in seconds.
func askFromPeer(t *testing.T, b *harness.Bed, url string, fresh bool) (seconds []float64) {
	args := []string{"-s", "-o", "/dev/null", "-w", `%{time_total}\n`, url}
	if fresh {
		args = append(args, "-H", "Connection: close")
	}
	said := make(chan string)
	for range 3 {
		go func() {
			out, err := b.Host.PeerCommand(t.Context(), "curl", args...).Output()
			if err != nil {
				t.Error(err)
			}
			said <- string(out)
		}()
	}
	for range 3 {
		for _, field := range strings.Fields(<-said) {
			took, err := strconv.ParseFloat(field, 64)
			must.Succeed(t, err)
			seconds = append(seconds, took)
		}
	}
	return seconds
}

// responsesOf returns what the agent says of a service; nothing if it knows none of its requests.
func responsesOf(t *testing.T, agent *harness.Agent, service string) v1.ServiceResponse {
	node, err := agent.Client.Node(t.Context())
	must.Succeed(t, err)
	i := slices.IndexFunc(node.Measured.Responses, func(r v1.ServiceResponse) bool { return r.Service == service && r.Instance == "" })
	if i < 0 {
		return v1.ServiceResponse{}
	}
	return node.Measured.Responses[i]
}

// knowsOf reports whether the agent knows that number of requests within a second.
func knowsOf(t *testing.T, agent *harness.Agent, service string, requests int) bool {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if responsesOf(t, agent, service).Requests >= requests {
			return true
		}
	}
	return false
}

// compareResponses compares what the agent says with what users measured.
func compareResponses(t *testing.T, agent *harness.Agent, service string, users []float64) error {
	const least = 50 // of requests in a hurry some are left out
	seen := responsesOf(t, agent, service)
	if seen.Requests < min(len(users), least) {
		t.Fatalf("the agent knows %d of %d requests", seen.Requests, len(users))
	}
	slices.Sort(users)
	sum := 0.0
	for _, took := range users {
		sum += took
	}
	// What the agent leaves out may be any requests, so its 95th percentile is somewhere between these.
	rank := min(seen.Requests, len(users)) * 95 / 100
	low, high := users[rank], users[min(rank+max(len(users)-seen.Requests, 0), len(users)-1)]
	mean := sum / float64(len(users))
	t.Logf("%d of %d requests: users %.4f, 95 %% %.4f to %.4f; agent %.4f, 95 %% %.4f, delivery %.4f s",
		seen.Requests, len(users), mean, low, high, seen.MeanSeconds, seen.P95Seconds, seen.DeliverySeconds)
	for _, c := range []struct {
		what            string
		low, high, said float64
	}{{"mean", mean, mean, seen.MeanSeconds}, {"95 %", low, high, seen.P95Seconds}} {
		if c.said < c.low-max(0.003, 0.1*c.low) || c.said > c.high+max(0.003, 0.1*c.high) {
			return fmt.Errorf("%s of %d of %d requests: users waited %.4f to %.4f s, the agent says %.4f s",
				c.what, seen.Requests, len(users), c.low, c.high, c.said)
		}
	}
	return nil
}

// servePages serves pages of as many bytes as their path says, on the host.
func servePages(t *testing.T, b *harness.Bed) netip.AddrPort {
	var listener net.Listener
	must.Succeed(t, testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
		listener, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	}))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		size, _ := strconv.Atoi(r.URL.Path[1:])
		_, _ = w.Write(bytes.Repeat([]byte("."), size))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return netip.MustParseAddrPort(listener.Addr().String())
}

// startProxy starts a service's proxy in the container of proxies.
func startProxy(t *testing.T, b *harness.Bed, proxies *harness.Container, service string, port uint16, pages netip.AddrPort) {
	dir := t.TempDir()
	config := proxy.Config{
		Service: service, Mode: proxy.ModeHTTP, Control: filepath.Join(dir, "socket"), QueueTimeout: time.Minute,
		Ports: []proxy.Port{{Host: port, Servers: []proxy.Server{{Name: "pages", Address: pages, Weight: 1}}}},
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, proxy.File), []byte(config.File()), 0o600))
	ctx, stop := context.WithCancel(context.Background())
	cmd := b.Host.Command(ctx, proxy.Binary, "-db", "-f", filepath.Join(dir, proxy.File))
	cmd.Stderr = os.Stderr
	must.Succeed(t, proxies.Enter(cmd.Start))
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // killed
	})
	harness.Await(t, "the proxy listens", 5*time.Second, func() error {
		_, err := os.Stat(config.Control)
		return err
	})
}
