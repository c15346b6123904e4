package ovsdb

import (
	"maps"
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

// TestBond: the members of a bond are listed, and say why they have no queues; those of another
// program's bond are left alone, too. A tap device has no speed that a bound could follow from.
func TestBond(t *testing.T) {
	dpid, one, two, tap, speed := "00000000000000ab", 1, 2, 3, 10_000_000
	tables := tables{
		bridges: []bridgeRow{{Name: "br0", Ports: []string{"b", "t"}, DatapathID: &dpid}},
		ports: map[string]portRow{
			"b": {UUID: "b", Name: "bond0", Interfaces: []string{"i", "j"}}, "t": {UUID: "t", Name: "tap0", Interfaces: []string{"k"}},
		},
		interfaces: map[string]interfaceRow{
			"i": {UUID: "i", Name: "eth1", OFPort: &one}, "j": {UUID: "j", Name: "eth2", OFPort: &two},
			"k": {UUID: "k", Name: "tap0", OFPort: &tap, LinkSpeed: &speed, Status: map[string]string{"driver_name": "tun"}},
		},
	}
	said := map[string]string{}
	for _, p := range tables.controlled(func(topology.DPID) bool { return true }) {
		state := stateOf(p, qos.Plan(p.seen, qos.Wanted{Type: qos.TypeHTB, RateBPS: p.seen.LinkSpeedBPS, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(), Replace: true}))
		if state.State != "refused" || state.RateBPS != 0 {
			t.Errorf("%s: %+v", p.name, state)
		}
		said[p.name] = state.Reason
	}
	bond := "a bond gets no queues: the port is a member of bond0"
	if want := (map[string]string{"eth1": bond, "eth2": bond, "tap0": "the link's speed is not known: give it with --rate tap0=RATE"}); !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
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
	_, err := Remove(t.Context(), address, "")
	if err == nil {
		t.Fatal("no error")
	}
	if n := strings.Count(err.Error(), "no.sock"); n != 1 || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the socket is named %d times: %v", n, err)
	}
}
