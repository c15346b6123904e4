package run

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
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
	uplink := v1.MeasuredUplink{Name: "eth0", RateBPS: 100e6, SentBPS: 7e6, AdmittedBPS: 20e6, FreeBPS: 75e6}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/node", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, v1.Node{Measured: v1.Measured{
			At: time.Now(), Hostname: "near", CPUs: 4, CPUUsedPercent: 12, MemoryBytes: 1 << 30, MemoryUsedBytes: 1 << 29, Uplinks: []v1.MeasuredUplink{uplink},
		}})
	})
	mux.HandleFunc("GET /v1/snapshot", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, v1.Snapshot{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, Present: true}}}})
	})
	agent := httptest.NewTLSServer(mux)
	defer agent.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(agent.Certificate())
	near, far := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	nodes := []runtime.Node{{Name: "far", Address: far, Ready: true}, {Name: "near", Address: near, Ready: true}, {Name: "nowhere", Ready: true}}
	agents, err := NewAgents(t.Context(), func(a netip.Addr) (*client.Client, error) {
		url := agent.URL
		if a == far {
			url = "https://127.0.0.1:1"
		}
		return client.New(url, client.Options{TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}})
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []Measured
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if seen = agents.Measure(t.Context(), nodes); seen[1].Weir {
			break
		}
	}
	if m := seen[1]; !m.Weir || m.State != engine.NodeReady || m.Values.CPUs != 4 || m.RoundTrip == 0 || m.Error != nil {
		t.Errorf("the one that answers: %+v", m)
	}
	if m := seen[0]; m.Weir {
		t.Errorf("the one that nobody reaches: %+v", m)
	}
	if m := seen[2]; m.Weir || m.Error != nil {
		t.Errorf("the one without an address: %+v", m)
	}
}
