//go:build netns

package identity

import (
	"os"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// Interfaces that lead out of a container past the taps are not passed over.
func TestInspectOutOfReach(t *testing.T) {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no device of a rootless engine's can be made here: %v", err)
	}
	b := newBed(t)
	ns := b.netNS("user")
	b.run("ip", "-n", ns, "tuntap", "add", "dev", "tap0", "mode", "tap")
	if found := b.inspect(ns); len(found) != 0 {
		t.Errorf("a device that is down: found %+v", found)
	}
	b.run("ip", "-n", ns, "link", "set", "tap0", "up")
	found := b.inspect(ns)
	if len(found) != 1 || found[0].Mode != v1.ModeNone || found[0].Interface != "tap0" ||
		found[0].Tap.Ifindex != 0 || !strings.Contains(found[0].Obstacle, "slirp4netns") {
		t.Errorf("the device of a rootless engine: found %+v", found)
	}

	// Beside another device it is a VPN of the container's own.
	b.run("ip", "-n", b.hostNS(), "link", "add", "vuser", "type", "veth", "peer", "name", "eth0", "netns", ns)
	b.run("ip", "-n", ns, "link", "set", "eth0", "up")
	b.run("ip", "-n", ns, "link", "add", "br0", "type", "bridge")
	b.run("ip", "-n", ns, "link", "set", "br0", "up")
	if found := b.inspect(ns); len(found) != 1 || found[0].Mode != v1.ModeBridge || found[0].Obstacle != "" {
		t.Errorf("beside a veth: found %+v, want that alone", found)
	}

	// A tunnel that was made in the host's namespace sends from there.
	b.run("ip", "-n", b.hostNS(), "link", "add", "vx9", "type", "vxlan", "id", "9", "dstport", "4790", "remote", b.host.PeerAddr.String())
	b.run("ip", "-n", b.hostNS(), "link", "set", "vx9", "netns", ns)
	b.run("ip", "-n", ns, "link", "set", "vx9", "up")
	found = b.inspect(ns)
	if len(found) != 2 || found[1].Interface != "vx9" || !strings.Contains(found[1].Obstacle, "another network namespace") {
		t.Errorf("a tunnel made outside: found %+v", found)
	}
}
