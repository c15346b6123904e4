//go:build netns

package netns

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestOpenVSwitch: maximums hold, and weir ps says ok, where the uplink is a port of Open vSwitch, whose
// internal port br-ex has the host's address and routes; and where the containers are ports of it as well.
func TestOpenVSwitch(t *testing.T) {
	if _, err := os.Stat("/sys/module/openvswitch"); err != nil {
		t.Skip("this kernel has no module openvswitch loaded: the suite vm has one that has")
	}
	if program := testbed.MissingOVSProgram(); program != "" {
		t.Skipf("no %s: install openvswitch-switch (scripts/install-deps.sh test)", program)
	}
	must.Succeed(t, testbed.AwaitOVSProcessors())
	for _, ports := range []bool{false, true} {
		name := "containers on a bridge"
		if ports {
			name = "containers as ports"
		}
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			one, two := b.Add("one", labels("max", "10mbit")), b.Add("two", labels("max", "5mbit"))
			vsctl := startOVS(t, b)
			vsctl("add-br", "br-ex", "--", "add-port", "br-ex", "uplink")
			moveAddresses(b, "uplink", "br-ex")
			b.Run("ip", "route", "replace", "default", "via", b.Host.PeerAddr.String())
			b.Run("ip", "-6", "route", "replace", "default", "via", b.Host.PeerAddr6.String())
			for _, iptables := range []string{"iptables", "ip6tables"} {
				b.Run(iptables, "-w", "-t", "nat", "-A", "POSTROUTING", "-o", "br-ex", "-j", "MASQUERADE")
			}
			if ports {
				vsctl("add-br", "br-int")
				moveAddresses(b, "containers", "br-int")
				for _, c := range []*harness.Container{one, two} {
					b.Run("ip", "link", "set", c.HostInterface, "nomaster")
					vsctl("add-port", "br-int", c.HostInterface)
				}
			}
			checkMaximums(t, b, "uplink", one, two)
		})
	}
}

// startOVS starts Open vSwitch in the host's network, and returns what runs ovs-vsctl.
func startOVS(t *testing.T, b *harness.Bed) (vsctl func(args ...string)) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "db.sock")
	command := func(program string, args ...string) *exec.Cmd {
		cmd := b.Host.Command(context.Background(), program, args...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir, "OVS_DBDIR="+dir, "OVS_SYSCONFDIR="+dir)
		return cmd
	}
	run := func(program string, args ...string) {
		t.Helper()
		if out, err := command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
		}
	}
	start := func(program string, args ...string) {
		p, err := testbed.StartProcess(program, command(program, args...))
		must.Succeed(t, err)
		t.Cleanup(func() {
			if err := p.End(syscall.SIGTERM, 10*time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	run("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	start("ovsdb-server", filepath.Join(dir, "conf.db"), "--remote=punix:"+socket, "-vconsole:off")
	b.Await("Open vSwitch's database", 10*time.Second, func() (bool, string) {
		_, err := os.Stat(socket)
		return err == nil, "no socket"
	})
	vsctl = func(args ...string) {
		t.Helper()
		run("ovs-vsctl", append([]string{"--db=unix:" + socket, "--timeout=15"}, args...)...)
	}
	vsctl("--no-wait", "init")
	logged := filepath.Join(dir, "vswitchd.log")
	start("ovs-vswitchd", "unix:"+socket, "-vconsole:off", "--log-file="+logged)
	t.Cleanup(func() {
		if text, err := os.ReadFile(logged); err == nil && t.Failed() {
			t.Logf("ovs-vswitchd: %s", text[max(0, len(text)-3000):])
		}
	})
	return vsctl
}

// moveAddresses moves the host's addresses from one device to another.
func moveAddresses(b *harness.Bed, from, to string) {
	b.Run("ip", "link", "set", to, "up")
	for line := range strings.Lines(b.Run("ip", "-o", "addr", "show", "dev", from, "scope", "global")) {
		address := strings.Fields(line)[3]
		b.Run("ip", "addr", "del", address, "dev", from)
		b.Run("ip", "addr", "add", address, "dev", to)
	}
}
