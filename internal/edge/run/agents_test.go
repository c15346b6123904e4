package run

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/monitor"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestAgents: one node with an agent that answers over TLS, one whose agent nobody
// reaches, one without an address.
func TestAgents(t *testing.T) {
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	var counted atomic.Value
	mux.HandleFunc("GET /v1/node", func(w http.ResponseWriter, r *http.Request) {
		counted.Store(r.URL.Query().Get("connections"))
		answer(w, v1.Node{Measured: v1.Measured{
			At: time.Now(), Hostname: "near", CPUs: 4, CPUUsedPercent: 12, MemoryBytes: 1 << 30, MemoryUsedBytes: 1 << 29,
		}})
	})
	var role atomic.Value
	role.Store("read")
	mux.HandleFunc("GET /v1/access", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, v1.Access{Name: "token hub", Role: role.Load().(string)})
	})
	mux.HandleFunc("GET /v1/snapshot", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, v1.Snapshot{
			Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, Present: true}, {Name: "gone0", RateBPS: 1e9}}},
			// A task of the Swarm service that is the proxy of s, and somebody else.
			Containers: []v1.Container{
				{ID: "1", Name: "edgeproxy-s.x2bkq.9fjw", Groups: []string{"edgeproxy-s"}, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: 40e6}}}},
				{ID: "2", Name: "edgeproxy-other.x2bkq.7a0c", Groups: []string{"edgeproxy-other"}, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: 7e6}}}},
			},
		})
	})
	agent := httptest.NewTLSServer(mux)
	defer agent.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(agent.Certificate())
	near, far := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	nodes := []runtime.Node{{Name: "far", Address: far, Ready: true}, {Name: "near", Address: near, Ready: true}, {Name: "nowhere", Ready: true}}
	pods := []runtime.Instance{{Node: "near", ContainerID: "shop/a"}, {Node: "near"}, {Node: "far", ContainerID: "shop/b"}, {Node: "near", ContainerID: "shop/c"}}
	clients := map[netip.Addr]*client.Client{}
	for address, url := range map[netip.Addr]string{near: agent.URL, far: "https://127.0.0.1:1"} {
		c, err := client.New(url, client.Options{TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}})
		if err != nil {
			t.Fatal(err)
		}
		clients[address] = c
	}
	agents := NewAgents(t.Context(), func(a netip.Addr) (*client.Client, error) { return clients[a], nil })
	var found []Measured
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found = agents.Measure(t.Context(), nodes, pods); found[1].Reported.State == monitor.StateReady {
			break
		}
	}
	if names := counted.Load(); names != "shop/a,shop/c" {
		t.Errorf("it was asked to count %v", names)
	}
	decider, err := engine.New(engine.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	// In the first round in which it is ready it is known that weir-edge may only look.
	if found[1].Agent == nil {
		t.Fatal("it cannot be told anything")
	}
	first := (&Manager{presence: newPresence(nil)}).node(&observation{}, &found[1])
	shop := engine.Service{Spec: spec.Spec{Name: "shop", Image: "i:1", Algorithm: "hybrid", Labels: map[string]string{"weir.min": "1mbit"}}}
	result := decider.Round(engine.Input{At: time.Now(), Nodes: []engine.Node{first}, Services: []engine.Service{shop}})
	if d := result.Decisions; len(d) != 1 || d[0].Action != engine.Keep || !first.ReadOnly || !strings.Contains(d[0].Reason, "has only the role read") {
		t.Errorf("of %+v it decides %+v", first, d)
	}
	role.Store("admin")
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found = agents.Measure(t.Context(), nodes, pods); found[1].Reported.State == monitor.StateReady && !found[1].isReadOnly() {
			break
		}
	}
	promises := engine.Promises{"s-1": {Service: "s", Node: "near"}, "s@near": {Service: "s", Node: "near", MinBPS: 40e6, Claim: true}}
	m := &Manager{presence: newPresence(nil)}
	is := func(i int) engine.Node { return m.node(&observation{promises: promises}, &found[i]) }
	// What weir-edge itself has promised is not others'; an uplink that is not there gives nothing.
	if n := is(1); !n.Weir || n.ReadOnly || n.State != engine.NodeReady || n.CPUs != 4 || n.UplinkBPS != 100e6 || n.Out.BudgetBPS != 95e6 || n.Out.OtherMinBPS != 7e6 || !found[1].isThere() {
		t.Errorf("the one that answers: %+v", n)
	}
	if n := is(0); n.Weir {
		t.Errorf("the one that nobody reaches: %+v", n)
	}
	if n := is(2); n.Weir || n.State != engine.NodeReady || n.Reason != "" || !found[2].isThere() {
		t.Errorf("the one without an address: %+v", n)
	}
}

// TestAway: a node that is down counts for a partition of the network, unless it is drained, or has
// been down for minutes.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t)
		nodes := []Measured{{Node: runtime.Node{Name: "down"}}, {Node: runtime.Node{Name: "drained", Draining: true}}, {Node: runtime.Node{Name: "ready", Ready: true}}}
		for _, want := range []string{"[false true false]", "[false true false]", "[true true false]"} {
			m.presence.note(nodes, func(error) {})
			var away []bool
			for i := range nodes {
				away = append(away, m.node(&observation{}, &nodes[i]).Away)
			}
			if fmt.Sprint(away) != want {
				t.Errorf("away: %v, want %s", away, want)
			}
			time.Sleep(awayAfter / 2)
		}
		nodes[0].Node.Ready = true
		m.presence.note(nodes, func(error) {})
		if n := m.node(&observation{}, &nodes[0]); n.Away || n.State == engine.NodeGone {
			t.Errorf("it is back: %+v", n)
		}
	})
}

// TestLocal: without an agent this host is measured, and nothing is promised at its uplinks.
func TestLocal(t *testing.T) {
	local := NewLocal(t.Context(), filepath.Join(t.TempDir(), "missing.sock"))
	var n engine.Node
	for deadline := time.Now().Add(10 * time.Second); n.State != engine.NodeReady && time.Now().Before(deadline); {
		// The first look does not wait for a question that the monitor asks at that moment.
		found := local.Measure(t.Context(), []runtime.Node{{Name: "here", Ready: true}}, nil)
		n = (&Manager{presence: newPresence(nil)}).node(&observation{}, &found[0])
	}
	if n.State != engine.NodeReady || n.Reason != "" || n.Weir || n.CPUs < 1 || n.MemoryBytes == 0 || n.Out.BudgetBPS != 0 {
		t.Errorf("%+v", n)
	}
}
