//go:build docker

package edge

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestUploads: what users may send is promised where the agent shares what comes in, within that, and nowhere
// else, which weir-edge says.
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
	must.Succeed(t, s.deploy(t, specification("uploads", pagesImage, 8120, 10, map[string]string{"weir.in.min": "20mbit"})))
	explained("uploads", "start its Weir agent with --in-rate")
	s.agent.Stop()
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket(), Args: []string{"--in-rate", "50mbit"}})
	if i := s.awaitRunning(t, "uploads", 1, 30*time.Second)[0]; i.InMinBPS != 20e6 || i.ServiceInMinBPS != 20e6 || i.ServiceMinBPS != 0 {
		t.Errorf("%+v", i)
	}
	explained("uploads", "Minimum in 20mbit", "uplink in  20mbit    in force")
	harness.Await(t, "the agent has admitted it for the proxy alone", 10*time.Second, func() error {
		proxy, instance := s.agent.Container("edgeproxy-uploads"), s.agent.Container("edge-uploads-1")
		if proxy.In == nil || len(proxy.In.Shares) != 1 || proxy.In.Shares[0].AdmittedBPS != 20e6 || proxy.Policy.MinBPS != 0 || instance.In == nil || instance.In.Policy.MinBPS != 0 {
			return errNot(s.MustWeir("ps"))
		}
		return nil
	})
	// What is left of 50 Mbit/s less the reserve is not enough.
	must.Succeed(t, s.deploy(t, specification("more", pagesImage, 8121, 10, map[string]string{"weir.in.min": "40mbit"})))
	explained("more", "cannot promise 40mbit more of what it receives")
	if nodes := s.must(t, "nodes"); !strings.Contains(nodes, "0bit, in 20mbit") {
		t.Error(nodes)
	}
	s.must(t, "rm", "uploads")
	s.awaitRunning(t, "more", 1, 30*time.Second)
}
