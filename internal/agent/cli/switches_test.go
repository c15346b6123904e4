package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

// fakeDaemon answers every request to a socket with what the function returns.
func fakeDaemon(t *testing.T, socket string, answer func() any) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(answer())
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
}

// TestAtSwitches: a container whose packets have marks is told what the switch's port at its uplink does with
// them, and of no other port.
func TestAtSwitches(t *testing.T) {
	dir := t.TempDir()
	port := func(name, host string, trust *v1.SDNTrust) v1.SDNPort {
		return v1.SDNPort{Name: name, Hosts: []string{host}, Trust: trust}
	}
	network := v1.SDN{Switches: []v1.SDNSwitch{{DPID: "00000000000000ab", Ports: []v1.SDNPort{
		port("p1", "eth0's", &v1.SDNTrust{EFBoundBPS: 5e6, EFDroppedPackets: 17}), port("p2", "another", &v1.SDNTrust{EFBoundBPS: 5e6, EFDroppedPackets: 9}),
		port("p3", "eth1's", &v1.SDNTrust{Refused: "the switch has no meters"}), port("p4", "eth0's", nil), port("p5", "eth2's", &v1.SDNTrust{EFBoundBPS: 5e6}), {Name: "p6", Trust: &v1.SDNTrust{EFDroppedPackets: 9}},
	}}}}
	for _, state := range []string{"ok", "refused"} {
		q := v1.SDNPort{State: state, Queues: []v1.SDNQueue{{ID: 0, Class: "be"}, {ID: 1, Class: "af"}, {ID: 2, Class: "ef"}, {ID: 3, Class: "-", Applications: []string{"VOIP"}}}}
		network.Switches = append(network.Switches, v1.SDNSwitch{DPID: state, Ports: []v1.SDNPort{q, q}})
	}
	fakeDaemon(t, filepath.Join(dir, "sdn.sock"), func() any { return network })
	addressOf := func(device string) string { return device + "'s" }
	const queues = " trusts marks: at each switch they go through queue 2 (EF), queue 1 (AF), queue 0 (BE)"
	dropped := "port p1 of switch ab takes 5mbit of EF from all that is behind it, and has dropped 17 packets above that"
	for _, tc := range []struct {
		socket string
		dscp   v1.DSCP
		uplink []string
		says   []string
	}{
		{"weir.sock", v1.DSCPMark, []string{"eth0"}, []string{"port p1 of switch ab" + queues, dropped}},
		{"weir.sock", v1.DSCPTrust, []string{"eth0", "eth1"}, []string{"port p1 of switch ab" + queues, dropped, "port p3 of switch ab does not trust marks: the switch has no meters"}},
		{"weir.sock", v1.DSCPBoth, []string{"eth2", "eth9"}, []string{"port p5 of switch ab" + queues}},
		{"weir.sock", v1.DSCPNone, []string{"eth0"}, nil},
		{"none/weir.sock", v1.DSCPMark, []string{"eth0"}, nil},
	} {
		c := v1.Container{Direction: v1.Direction{Policy: v1.Policy{DSCP: tc.dscp}}}
		for _, uplink := range tc.uplink {
			c.Shares = append(c.Shares, v1.Share{Uplink: uplink})
		}
		if got := atSwitches(t.Context(), filepath.Join(dir, tc.socket), addressOf, &c); !slices.Equal(got, tc.says) {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}
