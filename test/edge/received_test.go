//go:build docker

package edge

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestUploads: what users may send is promised where the agent shares received traffic, within that, and nowhere
// else, which weir-edge says. Beside uploads of far more weight an instance receives just that.
func TestUploads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	s.start(t)
	explained := func(service string, words ...string) {
		t.Helper()
		harness.Await(t, "weir-edge explains "+service, 30*time.Second, func() error {
			out := s.must(t, "explain", service)
			for _, want := range words {
				if !strings.Contains(out, want) {
					return errNot(out)
				}
			}
			t.Logf("explain %s\n%s", service, out)
			return nil
		})
	}
	const minBPS = 20e6
	must.Succeed(t, s.deploy(t, specification("uploads", pagesImage, 8120, 100, map[string]string{"weir.in.min": "20mbit", "weir.in.weight": "1"})))
	explained("uploads", "start its Weir agent with --in-rate")
	s.agent.Stop()
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Args: []string{"--in-rate", "50mbit"}})
	if i := s.awaitRunning(t, "uploads", 1, 30*time.Second)[0]; i.InMinBPS != minBPS || i.ServiceInMinBPS != minBPS || i.ServiceMinBPS != 0 {
		t.Errorf("%+v", i)
	}
	explained("uploads", "Minimum in 20mbit", "uplink in  20mbit    in force")
	harness.Await(t, "the agent has admitted it for the proxy alone", 10*time.Second, func() error {
		proxy, instance := s.agent.Container("edgeproxy-uploads"), s.agent.Container("edge-uploads-1")
		if proxy.In == nil || len(proxy.In.Shares) != 1 || proxy.In.Shares[0].AdmittedBPS != minBPS || proxy.Policy.MinBPS != 0 || instance.In == nil || instance.In.Policy.MinBPS != 0 {
			return errNot(s.MustWeir("ps"))
		}
		return nil
	})
	must.Succeed(t, s.deploy(t, specification("bulk", pagesImage, 8122, 100, map[string]string{"weir.in.weight": "10000"})))
	s.awaitRunning(t, "bulk", 1, 30*time.Second)
	_, end := s.uploaders(8122, 24)
	received, leave := s.uploaders(8120, 12)
	time.Sleep(3 * time.Second) // in which TCP finds its share
	harness.CheckReceived(t, received, 5*time.Second, func(m harness.Measurement) error {
		const frameBytes, segmentBytes = 1448 + 66, 1448 // TCP sends some of it again: a FIFO has 20 packets
		t.Logf("the instance receives %.2f Mbit/s of pages", m.BPS[0]/1e6)
		if bps := m.BPS[0] * frameBytes / segmentBytes; bps < 0.75*minBPS {
			return fmt.Errorf("beside uploads of more weight the instance receives %.2f Mbit/s; CPU: %s", bps/1e6, m.CPU)
		}
		return nil
	})
	leave()
	end()
	// What is left of 50 Mbit/s less the reserve is not enough.
	must.Succeed(t, s.deploy(t, specification("more", pagesImage, 8121, 10, map[string]string{"weir.in.min": "40mbit"})))
	explained("more", "cannot promise 40mbit more of what it receives")
	if nodes := s.must(t, "nodes"); !strings.Contains(nodes, "0bit, in 20mbit") {
		t.Error(nodes)
	}
	s.must(t, "rm", "uploads")
	s.awaitRunning(t, "more", 1, 30*time.Second)
}

// uploaders send pages to a port, one after the other, until leave is called. received counts the bytes that an
// instance has read.
func (s *site) uploaders(port, users int) (received *atomic.Uint64, leave func()) {
	received = &atomic.Uint64{}
	ctx, leave := context.WithCancel(context.Background())
	page := make([]byte, 100_000)
	for range users {
		go func() {
			user := http.Client{Transport: &http.Transport{DialContext: s.dial}}
			defer user.CloseIdleConnections()
			for ctx.Err() == nil {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url(port), bytes.NewReader(page))
				if err != nil {
					panic(err)
				}
				answer, err := user.Do(request)
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				if answer.Body.Close(); answer.StatusCode == http.StatusOK {
					received.Add(uint64(len(page)))
				}
			}
		}()
	}
	return received, leave
}
