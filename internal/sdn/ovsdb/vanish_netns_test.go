//go:build netns

package ovsdb

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// ovsSchema is the schema of Open vSwitch's database.
const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// database starts a real database without a switch, of a bridge with two ports.
func database(t *testing.T) (address string, vsctl func(args ...string) string, server *exec.Cmd) {
	return databaseOf(t, ovsSchema)
}

func databaseOf(t *testing.T, schema string) (address string, vsctl func(args ...string) string, server *exec.Cmd) {
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s to test against: install openvswitch-switch (scripts/install-deps.sh test)", program)
		}
	}
	dir := t.TempDir()
	address = "unix:" + filepath.Join(dir, "db.sock")
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", program, args, err, out)
		}
		return string(out)
	}
	vsctl = func(args ...string) string {
		t.Helper()
		return run("ovs-vsctl", append([]string{"--db=" + address, "--no-wait", "--timeout=10"}, args...)...)
	}
	run("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), schema)
	server = exec.Command("ovsdb-server", filepath.Join(dir, "conf.db"), "--remote=p"+address, "--unixctl="+filepath.Join(dir, "ctl"), "-vconsole:off", "--no-chdir")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if exec.Command("ovs-vsctl", "--db="+address, "--no-wait", "--timeout=1", "init").Run() == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the database does not answer")
		}
	}
	vsctl("add-br", "br0", "--", "set", "bridge", "br0", `datapath_id="00000000000000ab"`,
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "ofport=1", "link_speed=1000000000",
		"--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "ofport=2", "link_speed=1000000000")
	return address, vsctl, server
}

// TestPortVanishes: a port that goes, or that somebody else configures, between
// the look at it and the transaction leaves no rows behind.
func TestPortVanishes(t *testing.T) {
	address, vsctl, _ := database(t)
	c, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen, err := read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]port{}
	for _, p := range seen.controlled(func(d topology.DPID) bool { return d == 0xab }) {
		ports[p.name] = p
	}
	if len(ports) != 2 {
		t.Fatalf("%d ports: %+v", len(ports), ports)
	}
	vsctl("del-port", "br0", "p1")
	vsctl("set", "port", "p2", "qos=@q", "--", "--id=@q", "create", "qos", "type=linux-htb")
	for name, p := range ports {
		change := qos.Plan(p.seen, qos.Wanted{Type: qos.TypeHTB, RateBPS: 1e8, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(), Replace: true})
		err := transact(t.Context(), c, func(c client.Client) (operations, error) { return create(c, p, change) })
		if err == nil || !strings.Contains(err.Error(), "meanwhile") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := vsctl("list", "queue"); left != "" {
		t.Errorf("rows are left: %s", left)
	}
	if left := strings.Count(vsctl("list", "qos"), "_uuid"); left != 1 {
		t.Errorf("%d rows of QoS, want the one of somebody else", left)
	}
}

// TestRefusedHalfWay: a database that has room for the queues of one port refuses those of the other
// whole: no row of it is left, the first keeps its own, and when there is room the other gets them.
func TestRefusedHalfWay(t *testing.T) {
	text, err := os.ReadFile(ovsSchema)
	if err != nil {
		t.Skipf("no schema of Open vSwitch to test with: %v", err)
	}
	var schema struct {
		Name    string                    `json:"name"`
		Version string                    `json:"version"`
		Tables  map[string]map[string]any `json:"tables"`
	}
	must.Succeed(t, json.Unmarshal(text, &schema))
	schema.Tables["Queue"]["maxRows"] = 4
	text, err = json.Marshal(schema)
	must.Succeed(t, err)
	narrow := filepath.Join(t.TempDir(), "schema")
	must.Succeed(t, os.WriteFile(narrow, text, 0o600))
	address, vsctl, _ := databaseOf(t, narrow)
	m := New(Options{
		Address: address, RateBPS: 1e8, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(),
		Controls: func(topology.DPID) bool { return true }, Log: slog.New(slog.DiscardHandler),
	})
	c, err := connect(t.Context(), address)
	must.Succeed(t, err)
	defer c.Close()
	for range 3 {
		must.Succeed(t, m.reconcile(t.Context(), c))
	}
	var has, lacks string
	for at, state := range m.Status() {
		switch name := fmt.Sprint("p", at.Number); {
		case state.State == "ok":
			has = name
		case state.State == "waiting" && strings.Contains(state.Reason, "change the database: "):
			lacks = name
		default:
			t.Errorf("%s is %+v", name, state)
		}
	}
	if has == "" || lacks == "" {
		t.Fatalf("states %+v", m.Status())
	}
	if qos, queues := strings.Count(vsctl("list", "qos"), "_uuid"), strings.Count(vsctl("list", "queue"), "_uuid"); qos != 1 || queues != 3 {
		t.Errorf("%d rows of QoS and %d queues, want those of %s alone", qos, queues, has)
	}
	vsctl("del-port", "br0", has)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		must.Succeed(t, m.reconcile(t.Context(), c))
		if status := m.Status(); len(status) == 1 && strings.Contains(fmt.Sprint(status), "ok") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s still lacks its queues: %+v", lacks, m.Status())
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for address, good := range map[string]bool{"unix:/x": true, "tcp:127.0.0.1:6640": true, "": false, "unix:": false, "/x": false, "ssl:x:1": false} {
		if err := CheckAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
