//go:build netns

package ovsdb

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// database starts a real database without a switch, of a bridge with two ports.
func database(t *testing.T) (address string, vsctl func(args ...string) string, server *exec.Cmd) {
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s to test against: install openvswitch-switch (scripts/install-deps.sh test)", program)
		}
	}
	dir := t.TempDir()
	address = "unix:" + filepath.Join(dir, "db.sock")
	must := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", program, args, err, out)
		}
		return string(out)
	}
	vsctl = func(args ...string) string {
		t.Helper()
		return must("ovs-vsctl", append([]string{"--db=" + address, "--no-wait", "--timeout=10"}, args...)...)
	}
	must("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
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
		change := qos.Plan(p.seen, 1e8, qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(), true)
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

func TestCheckAddress(t *testing.T) {
	for address, good := range map[string]bool{"unix:/x": true, "tcp:127.0.0.1:6640": true, "": false, "unix:": false, "/x": false, "ssl:x:1": false} {
		if err := CheckAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
