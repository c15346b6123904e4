package ovsdb

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// TestDatapathIgnoresQueues: rows in the database are not queues on a datapath
// that sends nothing to them.
func TestDatapathIgnoresQueues(t *testing.T) {
	dpid, number := "00000000000000ab", 1
	for datapath, want := range map[string]string{"": "ok", "system": "ok", "netdev": "degraded"} {
		tables := tables{
			bridges:    []bridgeRow{{Name: "br0", Ports: []string{"p"}, DatapathID: &dpid, DatapathType: datapath}},
			ports:      map[string]portRow{"p": {UUID: "p", Name: "p1", Interfaces: []string{"i"}}},
			interfaces: map[string]interfaceRow{"i": {UUID: "i", Name: "p1", OFPort: &number}},
		}
		ports := tables.controlled(func(topology.DPID) bool { return true })
		if len(ports) != 1 {
			t.Fatalf("%d ports", len(ports))
		}
		p := ports[0]
		state := stateOf(p, qos.Plan(p.seen, qos.Wanted{Type: qos.TypeHTB, RateBPS: 100e6, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map()}))
		if state.State != want || (want == "ok") != (state.Reason == "") || len(state.Queues) != 3 {
			t.Errorf("datapath_type %q: %+v", datapath, state)
		}
		if want == "degraded" && !strings.Contains(state.Reason, "netdev") {
			t.Errorf("the reason does not name the datapath: %s", state.Reason)
		}
	}
}

// TestPatchPort: a port without a link has no queues, and lacks none.
func TestPatchPort(t *testing.T) {
	wanted := qos.Wanted{Type: qos.TypeHTB, RateBPS: 100e6, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map()}
	for kind, want := range map[string]string{"patch": "", "internal": "refused"} {
		p := port{seen: qos.Port{Name: "p", Kind: kind, QoS: &qos.Row{Type: "linux-hfsc"}}}
		if state := stateOf(p, qos.Plan(p.seen, wanted)); state.State != want || state.Reason == "" || state.Queues != nil {
			t.Errorf("%s: %+v, want %q", kind, state, want)
		}
	}
}

// TestStatusAges: what was known of ports is not said for long after the
// database is lost.
func TestStatusAges(t *testing.T) {
	at := topology.Port{Switch: 1, Number: 1}
	m := New(Options{})
	m.status, m.looked = map[topology.Port]qos.PortState{at: {State: "ok", RateBPS: 1}}, time.Now()
	if s := m.Status()[at]; s.State != "ok" {
		t.Errorf("at once: %+v", s)
	}
	m.looked = time.Now().Add(-statusAge - time.Second)
	if s := m.Status()[at]; s.State != "unknown" || !strings.Contains(s.Reason, "database") || s.RateBPS != 1 {
		t.Errorf("later: %+v", s)
	}
	if m.status[at].State != "ok" {
		t.Error("what was seen was changed")
	}
}

// TestNoDatabase: the error names the socket once, and what to do.
func TestNoDatabase(t *testing.T) {
	address := "unix:" + t.TempDir() + "/no.sock"
	_, err := Remove(t.Context(), address)
	if err == nil {
		t.Fatal("no error")
	}
	if n := strings.Count(err.Error(), "no.sock"); n != 1 || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the socket is named %d times: %v", n, err)
	}
}
