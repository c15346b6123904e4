package ovsdb

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/htb"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// TestNoPlace: where queues cannot be made the reason says what to do instead.
func TestNoPlace(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	for says, p := range map[string]port{
		"datapath_type=system":       {bridge: "br0", datapath: netdev, device: device{name: "lo", ifindex: lo.Index}},
		"no-such is not on this":     {device: device{name: "no-such", ifindex: 7, mac: "02:00:00:00:00:01"}},
		"use --qos linux-htb":        {device: device{name: "no-such", ifindex: 7, mac: "02:00:00:00:00:01"}},
		"lo is not on this host":     {device: device{name: "lo", ifindex: lo.Index, mac: "02:00:00:00:00:01"}},
		"device lo is not on this h": {device: device{name: "lo", ifindex: lo.Index + 1000}},
	} {
		var q trees
		if _, err := q.prepare(p, true); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", p, err, says)
		}
		if q.tc != nil {
			t.Errorf("%+v: the kernel was asked", p)
		}
	}
}

// TestOwner: --replace puts another program's queueing aside, and never an agent's uplink.
func TestOwner(t *testing.T) {
	for _, replace := range []bool{false, true} {
		for owner, want := range map[htb.PortOwner]string{htb.PortFree: "", htb.PortOurs: "", htb.PortUplink: "uplink of weir agent", htb.PortForeign: "--replace"} {
			if owner == htb.PortForeign && replace {
				want = ""
			}
			err := checkOwner(owner, "p1", "tbf", replace)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("owner %d, replace %v: %v, want %q", owner, replace, err, want)
			}
		}
	}
}

// TestCounted: counters go on where numbers of packets wrap, and where queues are made
// anew.
func TestCounted(t *testing.T) {
	var q trees
	at, start := topology.Port{Switch: 1, Number: 2}, time.Unix(1000, 0)
	for i, step := range []struct {
		now  htb.PortCounters
		want qos.Counters
	}{
		{htb.PortCounters{SentBytes: 1000, SentPackets: 1<<32 - 1, DroppedPackets: 3}, qos.Counters{SentBytes: 1000, SentPackets: 1<<32 - 1, DroppedPackets: 3}},
		{htb.PortCounters{SentBytes: 2000, SentPackets: 1, DroppedPackets: 3}, qos.Counters{SentBytes: 2000, SentPackets: 1<<32 + 1, DroppedPackets: 3, RateBPS: 4000}},
		{htb.PortCounters{SentBytes: 2000, SentPackets: 1, DroppedPackets: 5}, qos.Counters{SentBytes: 2000, SentPackets: 1<<32 + 1, DroppedPackets: 5}},
		{htb.PortCounters{SentBytes: 500, SentPackets: 2}, qos.Counters{SentBytes: 2500, SentPackets: 1<<32 + 3, DroppedPackets: 5, RateBPS: 2000}},
	} {
		got := q.count(at, start.Add(time.Duration(i)*2*time.Second), map[int]htb.PortCounters{1: step.now})
		if got[1] != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got[1], step.want)
		}
	}
}

// TestAbandoned: devices are given back when their ports are gone, and not before.
func TestAbandoned(t *testing.T) {
	row := func(name, aside string) qosRow {
		return qosRow{ExternalIDs: map[string]string{qos.OwnerKey: qos.Owner, qos.DeviceKey: name, qos.AddressKey: "02:00:00:00:00:0" + name[1:], qos.AsideKey: aside}}
	}
	foreign := row("p4", "")
	foreign.ExternalIDs[qos.OwnerKey] = "somebody"
	t1 := tables{
		qos:        map[string]qosRow{"a": row("p1", ""), "b": row("p2", "[]"), "c": {ExternalIDs: map[string]string{qos.OwnerKey: qos.Owner}}, "d": foreign},
		interfaces: map[string]interfaceRow{"x": {Name: "p1"}},
	}
	if got := t1.abandoned(); len(got) != 1 || got[device{name: "p2", mac: "02:00:00:00:00:02"}] != "[]" {
		t.Errorf("%v", got)
	}
}
