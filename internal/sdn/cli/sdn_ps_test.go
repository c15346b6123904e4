package cli

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// twoSwitches is a link between two switches, with a port of every kind.
func twoSwitches() v1.SDN {
	return v1.SDN{
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Switches: []v1.SDNSwitch{
			{
				DPID: "0000000000000001", Connected: true, Role: "equal", Flows: 1, State: "ok", Ports: []v1.SDNPort{
					{
						Number: 1, Name: "p1", Up: true, State: "ok", RateBPS: 100e6, Hosts: []string{"02:00:00:00:00:01"}, Trust: &v1.SDNTrust{EFBoundBPS: 50e6, EFDroppedPackets: 12},
						Queues: []v1.SDNQueue{
							{ID: 0, Class: "be", MinBPS: 20e6, MaxBPS: 100e6, RateBPS: 19_980_000, SentBytes: 5_000_000, SentPackets: 5000, DroppedPackets: 77},
							{ID: 1, Class: "af", MinBPS: 30e6, MaxBPS: 100e6},
							{ID: 2, Class: "ef", Applications: []string{"VOIP"}, MinBPS: 50e6, MaxBPS: 100e6, RateBPS: 1e6},
						},
					},
					{Number: 2, Name: "p2", Up: true, State: "refused", Reason: "somebody else made its queues: give --replace", PeerDPID: "0000000000000002", PeerPort: 7, SentBPS: 4e6, Trust: &v1.SDNTrust{Refused: "the port leads to a switch"}},
					{Number: 3, Name: "p3", Up: true, Trust: &v1.SDNTrust{EFBoundBPS: 5e6}},
					{Number: 0xfffffffe, Name: "br0"},
				},
			},
			{DPID: "0000000000000002", Role: "slave", State: "lost", Ports: []v1.SDNPort{
				{Number: 7, Name: "x\x1b[2J\ny", Up: true, State: "blocked", Reason: "a loop\x1b]0;owned\a"},
				{Number: 8, Name: "p8", Up: true, Hosts: []string{"02:00:00:00:00:02", "02:00:00:00:00:03"}},
			}},
			{DPID: "0000000000000003", Connected: true, TableFull: true, State: "table full"},
		},
		Links: []v1.SDNLink{{ADPID: "0000000000000001", APort: 2, BDPID: "0000000000000002", BPort: 7}},
	}
}

func sdnFlows() []v1.SDNFlow {
	return []v1.SDNFlow{
		{
			ID: 1, Flow: "udp 198.18.1.1:40000 > 198.18.1.2:5060", Application: "VOIP", Class: "ef", Confidence: 0.9, SecondLook: true,
			Path: []v1.SDNHop{{DPID: "0000000000000001", In: 1, Out: 2}, {DPID: "000000000000000a", In: 7, Out: 0xfffffffe}}, RateBPS: 1e6, SentPackets: 12, SentBytes: 3400,
		},
		{ID: 2, Flow: "tcp 198.18.1.2:80 > 198.18.1.1:9", Application: "-", Class: "be"},
	}
}

func sdnLinks() v1.SDNLinks {
	node, peer := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	return v1.SDNLinks{
		Links: []v1.SDNLinkDirection{
			{DPID: "0000000000000001", Port: 1, Name: "p1", PeerDPID: "0000000000000002", PeerPort: 7, RateBPS: 100e6, SentBPS: 61e6, PromisedBPS: 10e6, FreeMinBPS: 5e6, State: "ok"},
			{DPID: "0000000000000001", Port: 2, Name: "p2", Hosts: []string{"02:00:00:00:00:01"}, State: "refused", Reason: "port 2 (p2\x1b[2J) has no queues"},
		},
		Promises: []v1.SDNPromise{
			{SDNPromiseRequest: v1.SDNPromiseRequest{ID: "1", Service: "web", Node: node, Peer: peer, Protocol: "tcp", Port: 80, MinBPS: 10e6, BackBPS: 1e6}, State: v1.PromiseInForce, Path: []v1.SDNHop{{DPID: "0000000000000001", In: 2, Out: 1}}},
			{SDNPromiseRequest: v1.SDNPromiseRequest{ID: "2", Service: "db\a", Node: node, Peer: peer, Protocol: "tcp", Port: 81, MinBPS: 10e6}, State: v1.PromiseBroken, Reason: "port 1 has 5mbit left to promise"},
		},
	}
}

// serveSDN answers as weir sdn run does, and returns the socket.
func serveSDN(t *testing.T, status, flows, links any) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "sdn.sock")
	listener, err := httpapi.Listen("weir sdn run", socket, "")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for path, answer := range map[string]any{"GET /v1/sdn": status, "GET /v1/sdn/flows": flows, "GET /v1/links": links} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		_ = s.Serve(listener)
		close(ended)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return socket
}

func TestSDNTables(t *testing.T) {
	socket := serveSDN(t, twoSwitches(), sdnFlows(), sdnLinks())
	for _, command := range []string{"ps", "flows", "topology", "links"} {
		code, stdout, stderr := run(command, "--socket", socket)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d, %q", command, code, stderr)
		}
		if strings.ContainsAny(stdout, "\x1b\a") {
			t.Errorf("%s prints what drives the terminal: %q", command, stdout)
		}
		compareGolden(t, "sdn-"+command, stdout)
	}
	code, stdout, _ := run("topology", "-o", "svg", "--socket", socket)
	if code != 0 || !strings.HasPrefix(stdout, "<svg") || strings.ContainsAny(stdout, "\x1b\a") {
		t.Errorf("drawn with exit code %d: %q", code, stdout)
	}
}

// TestSDNEmpty: a table without a line says why it is empty, but not to programs.
func TestSDNEmpty(t *testing.T) {
	socket := serveSDN(t, v1.SDN{}, []v1.SDNFlow{}, v1.SDNLinks{})
	for command, says := range map[string]string{"ps": "ovs-vsctl set-controller", "topology": "ovs-vsctl set-controller", "flows": "weir sdn ps", "links": "weir sdn ps"} {
		if code, _, stderr := run(command, "--socket", socket); code != 0 || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit code %d, %q, want %q", command, code, stderr, says)
		}
		if code, _, stderr := run(command, "-o", "json", "--socket", socket); code != 0 || stderr != "" {
			t.Errorf("%s -o json: exit code %d, %q", command, code, stderr)
		}
	}
}

// TestSDNMissingPorts: a port of --trust that no switch has is named.
func TestSDNMissingPorts(t *testing.T) {
	s := twoSwitches()
	s.MissingPorts = []string{"eth9\x1b[2J"}
	code, stdout, stderr := run("ps", "--socket", serveSDN(t, s, sdnFlows(), nil))
	if code != 0 || stdout == "" || !strings.Contains(stderr, `--trust eth9\x1b[2J: no known switch has this port`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// TestSDNJSON: what programs read has the names that docs/sdn.md and the API have.
func TestSDNJSON(t *testing.T) {
	socket := serveSDN(t, twoSwitches(), sdnFlows(), sdnLinks())
	ask := func(command string, into any) {
		t.Helper()
		code, stdout, stderr := run(command, "-o", "json", "--socket", socket)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d, %q", command, code, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), into); err != nil {
			t.Errorf("%s: %v in %s", command, err, stdout)
		}
	}
	has := func(what string, object map[string]any, names ...string) {
		t.Helper()
		for _, name := range names {
			if _, ok := object[name]; !ok {
				t.Errorf("%s has no %s: %v", what, name, object)
			}
		}
	}
	var status struct {
		Switches []map[string]any
		Links    []map[string]any
	}
	ask("ps", &status)
	if len(status.Switches) != 3 || len(status.Links) != 1 {
		t.Fatalf("%+v", status)
	}
	has("a switch", status.Switches[0], "dpid", "connected", "role", "flows", "ports")
	port := status.Switches[0]["ports"].([]any)[0].(map[string]any)
	has("a port", port, "number", "name", "up", "hosts", "rate_bps", "sent_bytes", "dropped_packets", "queues", "state")
	queue := port["queues"].([]any)[2].(map[string]any)
	has("a queue", queue, "id", "class", "applications", "min_bps", "max_bps", "rate_bps", "sent_bytes", "dropped_packets")
	if queue["class"] != "ef" || queue["min_bps"] != 50e6 {
		t.Errorf("EF's queue is %v", queue)
	}
	var flows, links []map[string]any
	ask("flows", &flows)
	if len(flows) != 2 || flows[0]["application"] != "VOIP" || flows[0]["second_look"] != true {
		t.Fatalf("flows: %v", flows)
	}
	has("a flow", flows[0], "id", "flow", "application", "class", "path", "rate_bps", "sent_packets", "sent_bytes")
	ask("topology", &links)
	if len(links) != 1 || links[0]["b_dpid"] != "0000000000000002" {
		t.Errorf("links: %v", links)
	}
}

func TestSDNWithoutController(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "sdn.sock")
	for _, command := range []string{"ps", "flows", "topology", "links"} {
		code, stdout, stderr := run(command, "--socket", nowhere)
		if code != cmdline.Failed || stdout != "" || !strings.Contains(stderr, "no controller is running on "+nowhere) {
			t.Errorf("%s: exit code %d, %q, %q", command, code, stdout, stderr)
		}
		if code, _, stderr := run(command, "extra"); code != cmdline.Usage || !strings.Contains(stderr, "unexpected argument") {
			t.Errorf("%s extra: exit code %d, %q", command, code, stderr)
		}
		if code, _, stderr := run(command, "-o", "xml"); code != cmdline.Usage || !strings.Contains(stderr, "xml") {
			t.Errorf("%s -o xml: exit code %d, %q", command, code, stderr)
		}
	}
	// Somebody else's answer is told as one.
	strange := serveSDN(t, "a text", "a text", "a text")
	if code, _, stderr := run("ps", "--socket", strange); code != cmdline.Failed || !strings.Contains(stderr, "controller") {
		t.Errorf("another server's answer: exit code %d, %q", code, stderr)
	}
}
