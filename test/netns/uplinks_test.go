//go:build netns

package netns

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// backup is a second uplink, of 20 Mbit/s, to the same neighbour.
const backup = "backup"

// Addresses of the second link; the range for benchmarks has no others so high.
var backupPeer = netip.MustParseAddr("198.19.255.254")

func addBackup(b *harness.Bed) {
	b.Run("ip", "link", "add", backup, "type", "veth", "peer", "name", "backup-peer", "netns", b.Host.PeerNetNSPath())
	addressBackup(b)
}

// addVLAN is addBackup, as another VLAN of a card that the uplink is a VLAN of.
func addVLAN(b *harness.Bed) {
	b.Run("ip", "link", "add", "link", "wire0", "name", backup, "type", "vlan", "id", "19")
	b.RunPeer("sh", "-c", "ip link del backup-peer 2>/dev/null; ip link add link wire0 name backup-peer type vlan id 19")
	addressBackup(b)
}

func addressBackup(b *harness.Bed) {
	b.Run("ip", "addr", "add", "198.19.255.253/30", "dev", backup)
	b.Run("ip", "link", "set", backup, "up")
	b.RunPeer("ip", "addr", "add", backupPeer.String()+"/30", "dev", "backup-peer")
	b.RunPeer("ip", "link", "set", "backup-peer", "up")
}

func uplinks(list ...map[string]any) map[string]any { return map[string]any{"uplinks": list} }

func uplinkAt(name, rate string) map[string]any {
	return map[string]any{"interface": name, "rate": rate}
}

// TestDefaultRouteOutside: where the default route leads through no uplink, uplink and routed
// containers are degraded, unless the operator has written that it is meant so.
func TestDefaultRouteOutside(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	addBackup(b)
	b.Add("bridged", nil)
	b.AddMode("service", testbed.ModeHost, nil)
	b.AddMode("below", testbed.ModeMacvlan, nil)
	agent := b.StartAgent(harness.AgentOptions{})
	states := func(what string, limit time.Duration, want v1.State) {
		b.Await(what, limit, func() (bool, string) {
			status, containers := agent.Status(), agent.Containers()
			const said = "the default route leads through " + backup + ", which is no uplink"
			fits := status.State == want && strings.Contains(status.Reason, said) == (want != v1.StateOK) && containers["below"].State == v1.StateOK
			for _, name := range []string{"bridged", "service"} {
				c := containers[name]
				fits = fits && c.State == want && strings.Contains(c.Reason, said) == (want != v1.StateOK)
			}
			return fits, fmt.Sprintf("%+v\n%+v", status, containers)
		})
	}
	states("all to be ok", 2*checkInterval, v1.StateOK)
	b.Run("ip", "route", "add", "default", "via", backupPeer.String(), "dev", backup, "table", "100")
	b.Run("ip", "rule", "add", "from", "198.19.255.253", "lookup", "100")
	b.Run("ip", "rule", "add", "iif", "containers", "lookup", "100")
	states("the rule to be seen", 10*time.Second+noticed, v1.StateDegraded)
	b.Run("ip", "rule", "del", "iif", "containers")
	states("answers of the address to be as they should", 10*time.Second+noticed, v1.StateOK)
	b.Run("ip", "route", "replace", "default", "via", backupPeer.String(), "dev", backup)
	states("the route to be seen", 10*time.Second+noticed, v1.StateDegraded)
	b.WriteConfig(map[string]any{"ignore_default_route": true})
	b.MustWeir("reload")
	states("it to be ignored", noticed, v1.StateOK)
}

// TestSeveralUplinks: each is shared out by itself, by the same policies.
func TestSeveralUplinks(t *testing.T) {
	t.Parallel()
	t.Run("two cards", func(t *testing.T) { severalUplinks(t, testbed.LinkVeth, addBackup) })
	t.Run("VLANs of one card", func(t *testing.T) { severalUplinks(t, testbed.LinkVLAN, addVLAN) })
}

func severalUplinks(t *testing.T, link testbed.LinkKind, add func(*harness.Bed)) {
	b := harness.NewBed(t, testbed.HostOptions{Link: link})
	add(b)
	one := b.Add("one", labels("weight", "100", "min", "12mbit"))
	two := b.Add("two", labels("weight", "300"))
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true,
		Settings: uplinks(uplinkAt("uplink", slowRate), uplinkAt(backup, "10mbit"))})

	// The minimum fits the one link and not the other.
	if got := agent.Container("one"); got.State != v1.StateRejected || !strings.Contains(got.Reason, backup+": minimum 12mbit cannot be guaranteed") {
		t.Errorf("one: %+v", got)
	}
	if status := agent.Status(); status.Uplink != "uplink, backup" || status.RateBPS != 30*mbit || len(status.Uplinks) != 2 {
		t.Errorf("status: %+v", status)
	}

	for _, c := range []*harness.Container{one, two} {
		load := harness.Load{Protocol: traffic.UDP, RateBPS: 2 * slowBPS, PayloadBytes: 1400}
		b.Send(c, load)
		b.SendTo(c, netip.AddrPortFrom(backupPeer, uint16(harness.BasePort+c.Slot)), load)
	}
	b.WarmUp()
	b.CheckIdeal(harness.SteadyTolerance, slowBPS, []uint64{12 * mbit, 8 * mbit}, harness.Duration)
	b.MeterAt("backup-peer")
	b.CheckIdeal(harness.SteadyTolerance, 10*mbit, []uint64{2.5 * mbit, 7.5 * mbit}, harness.Duration)
	b.MeterAt(b.Host.PeerInterface)
	agent.AwaitContainer("two", "shows what it sends through both", 2*time.Second, func(c v1.Container) bool {
		at := func(i int, bps float64) bool { return math.Abs(float64(c.Shares[i].RateBPS)-bps) < 0.03*bps }
		return at(0, 8*mbit) && at(1, 7.5*mbit)
	})

	// One link goes and comes back; the other does not notice.
	b.Run("ip", "link", "del", backup)
	b.Await("the loss of one link", 2*time.Second, func() (bool, string) {
		status := agent.Status()
		return status.State == v1.StateDegraded && status.Uplinks[0].State == v1.StateOK &&
			status.Uplinks[1].State == v1.StateDegraded, fmt.Sprintf("%+v", status)
	})
	add(b)
	b.Await("the link to be shared out again", 2*time.Second, func() (bool, string) {
		status := agent.Status()
		return status.State == v1.StateOK, fmt.Sprintf("%+v", status)
	})
	if tree := b.Run("tc", "class", "show", "dev", backup); !strings.Contains(tree, "htb 7e11:10 ") {
		t.Errorf("classes of the link that came back:\n%s", tree)
	}

	// An agent that is told of one link only gives the other back.
	agent.Kill()
	agent = b.StartAgent(harness.AgentOptions{})
	if left := b.Run("tc", "qdisc", "show", "dev", backup); strings.Contains(left, "7e1") {
		t.Errorf("queueing of the link that is not shared out any more: %s", left)
	}
	b.MustWeir("down")
	agent.Ended()
	checkNothingLeft(t, b)
}

// TestMissingUplink: one of several may be missing when the agent starts, the
// only one may not.
func TestMissingUplink(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", nil)
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true,
		Settings: uplinks(uplinkAt("uplink", "100mbit"), uplinkAt(backup, "20mbit"))})
	if status := agent.Status(); status.Uplinks[0].State != v1.StateOK ||
		!strings.Contains(status.Uplinks[1].Reason, `no network device "backup"`) {
		t.Errorf("status: %+v", status)
	}
	addBackup(b)
	b.Await("the link to be shared out", 2*time.Second, func() (bool, string) {
		status := agent.Status()
		return status.State == v1.StateOK, fmt.Sprintf("%+v", status)
	})
	agent.Kill()

	refused := b.RefusedAgent(harness.AgentOptions{UplinksInConfig: true,
		Settings: uplinks(uplinkAt("nowhere", "100mbit"))})
	if !strings.Contains(refused.Stderr, `there is no network device "nowhere"`) {
		t.Errorf("refused with %q", refused.Stderr)
	}
	b.MustWeir("down", "--state-dir", b.Files.StateDir())
	checkNothingLeft(t, b)
	if left, err := filepath.Glob(b.Files.StateDir() + "/*"); err != nil || len(left) > 0 {
		t.Errorf("state left: %v (%v)", left, err)
	}
}
