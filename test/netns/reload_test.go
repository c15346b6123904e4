//go:build netns

package netns

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestReload: rates, rules and the host's policy change while traffic flows, without
// a packet lost of a container within its share, and classes and queues stay. A file
// with a mistake, or with what takes a restart, changes nothing. TERM is the last
// thing that is said.
func TestReload(t *testing.T) {
	b := newBed(t)
	careful, flooding := b.Add("careful", labels("min", "20mbit")), b.Add("flooding", nil)
	settings := func(rate string, more map[string]any) map[string]any {
		all := map[string]any{"uplink": b.Host.UplinkName, "rate": rate}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	capped := map[string]any{
		"host":     map[string]any{"weight": 50},
		"policies": []any{map[string]any{"name": "flood*", "policy": map[string]any{"max": "10mbit"}}},
	}
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings("100mbit", nil)})
	b.Send(flooding, harness.Flood)
	sequence := startSequence(t, b, careful)
	time.Sleep(200 * time.Millisecond)
	handles := tcClasses(b)
	check := func(when string) {
		t.Helper()
		got, host := agent.Container("flooding"), agent.Container("host")
		if rate := agent.Status().RateBPS; rate != 60*mbit || got.Policy.MaxBPS != 10*mbit || got.PolicyFrom.Max != v1.LayerPolicies || host.Policy.Weight != 50 {
			t.Errorf("%s: rate %d, %+v, host %+v", when, rate, got, host)
		}
	}

	b.WriteConfig(settings("60mbit", capped))
	b.MustWeir("reload")
	check("read again")

	b.WriteConfig(settings("60", capped))
	if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, b.Files.ConfigPath()+":") || !strings.Contains(refused.Stderr, "did you mean 60mbit?") {
		t.Errorf("a wrong rate: %+v", refused)
	}
	check("a wrong rate")
	b.WriteConfig(map[string]any{"uplink": "nowhere", "rate": "10mbit"})
	if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, `no network device "nowhere"`) {
		t.Errorf("an uplink that is not there: %+v", refused)
	}
	check("an uplink that is not there")
	b.WriteConfig(settings("60mbit", map[string]any{"socket_group": "root"}))
	if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, "socket_group: restart the agent") {
		t.Errorf("another group: %+v", refused)
	}
	check("another group")
	// The maximum holds in the kernel.
	m := b.MeasureFor(time.Second)
	if m.BPS[1] > 10.2*mbit {
		t.Errorf("a maximum of 10 Mbit/s from the file: %.2f Mbit/s", m.BPS[1]/mbit)
	}

	b.WriteConfig(settings("100mbit", nil))
	must.Succeed(t, syscall.Kill(agent.Pid(), syscall.SIGHUP))
	b.Await("the rate before", 2*time.Second, func() (bool, string) {
		status, got := agent.Status(), agent.Container("flooding")
		return status.RateBPS == 100*mbit && got.Policy.MaxBPS == 0, agent.Said()
	})
	time.Sleep(200 * time.Millisecond)
	sequence.stop(t)
	if now := tcClasses(b); !slices.Equal(now, handles) {
		t.Errorf("classes and queues were %v, are %v", handles, now)
	}
	agent.Stop()
	if said := strings.TrimSpace(agent.Said()); !strings.Contains(said[strings.LastIndex(said, "\n")+1:], "stopping;") {
		t.Errorf("it ended without a word: %s", said)
	}
}

// TestPrecision: each precision shares by weight and cuts packets to its size, and a reload from one
// to the other loses no packet of a container within its share.
func TestPrecision(t *testing.T) {
	b := newBed(t)
	light, heavy := b.Add("light", nil), b.Add("heavy", labels("weight", "300"))
	careful := b.Add("careful", labels("min", "10mbit", "latency", "2ms"))
	settings := func(precision string) map[string]any {
		return map[string]any{"uplink": b.Host.UplinkName, "rate": "100mbit", "precision": precision}
	}
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings("exact")})
	b.Send(light, harness.TCP)
	b.Send(heavy, harness.TCP)
	for _, tc := range []struct {
		precision                 string
		lightBytes, ofUplinkBytes uint32
		bounded                   bool // the link can keep the latency of 2 ms
	}{
		{"exact", 3125, 3125, true},
		{"low", 24224, 65536, false},
		{"balanced", 6250, 6250, true},
		{"exact", 3125, 3125, true},
	} {
		b.WriteConfig(settings(tc.precision))
		sequence := startSequence(t, b, careful)
		time.Sleep(400 * time.Millisecond)
		b.MustWeir("reload")
		time.Sleep(400 * time.Millisecond)
		sequence.stop(t)
		if u := agent.Status().Uplinks[0]; string(u.Precision) != tc.precision {
			t.Errorf("%s: the agent says %s", tc.precision, u.Precision)
		}
		b.Await("packets of that size", 2*time.Second, func() (bool, string) {
			got, uplink := gsoMaxBytes(t, light), b.Run("ip", "-d", "link", "show", b.Host.UplinkName)
			return got == tc.lightBytes && strings.Contains(uplink, fmt.Sprintf("gso_max_size %d ", tc.ofUplinkBytes)), fmt.Sprintf("%s: light %d, %s", tc.precision, got, uplink)
		})
		b.CheckSharesFor(100*mbit, []harness.Claim{{DemandBPS: harness.Unlimited}, {Labels: labels("weight", "300"), DemandBPS: harness.Unlimited}}, 2*time.Second)
		got := agent.Container("careful")
		if got.Shares[0].LatencyMS > 0 != tc.bounded {
			t.Errorf("%s: a latency of 2 ms: %+v", tc.precision, got)
		}
		if said := b.MustWeir("explain", "light"); strings.Contains(said, "precision "+tc.precision) != (tc.precision != "exact") {
			t.Errorf("%s: %s", tc.precision, said)
		}
	}
	b.WriteConfig(settings("fine"))
	if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, "exact, balanced or low") {
		t.Errorf("an unknown precision: %+v", refused)
	}
}

// TestReloadUplinks: an uplink is added and removed while traffic flows through
// another one, which loses no packet and keeps its classes. What was on the device is
// put aside and put back; without leave to do that, nothing changes.
func TestReloadUplinks(t *testing.T) {
	b := newBed(t)
	addBackup(b)
	b.Run("tc", "qdisc", "add", "dev", backup, "root", "handle", "77:", "pfifo", "limit", "777")
	theirs := b.Run("tc", "qdisc", "show", "dev", backup)
	careful, flooding := b.Add("careful", labels("min", "20mbit")), b.Add("flooding", nil)
	main := uplinkAt("uplink", "100mbit")
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: uplinks(main)})
	b.Send(flooding, harness.Flood)
	sequence := startSequence(t, b, careful)
	time.Sleep(200 * time.Millisecond)
	handles := tcClasses(b)
	expect := func(when string, names ...string) {
		t.Helper()
		var have []string
		for _, u := range agent.Status().Uplinks {
			have = append(have, u.Name)
			if u.State != v1.StateOK {
				t.Errorf("%s: %+v", when, u)
			}
		}
		if shares := agent.Container("careful").Shares; !slices.Equal(have, names) || len(shares) != len(names) {
			t.Errorf("%s: shared out are %v; a container has %+v", when, have, shares)
		}
	}

	b.WriteConfig(uplinks(main, uplinkAt(backup, "30mbit")))
	if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, backup+" carries a pfifo qdisc") {
		t.Errorf("somebody else's queueing: %+v", refused)
	}
	expect("somebody else's queueing", "uplink")
	if now := b.Run("tc", "qdisc", "show", "dev", backup); now != theirs {
		t.Errorf("it was %s, is %s", theirs, now)
	}

	added := uplinkAt(backup, "30mbit")
	added["replace"] = true
	b.WriteConfig(uplinks(main, added))
	b.MustWeir("reload")
	expect("added", "uplink", backup)
	b.SendTo(flooding, netip.AddrPortFrom(backupPeer, uint16(harness.BasePort+flooding.Slot)), harness.Load{Protocol: traffic.UDP, RateBPS: 90 * mbit})
	b.Await("the rate of the new uplink", 10*time.Second, func() (bool, string) {
		shares := agent.Container("flooding").Shares
		got := float64(shares[1].RateBPS)
		return math.Abs(got-30*mbit) < 1.5*mbit, fmt.Sprintf("%+v", shares)
	})

	b.WriteConfig(uplinks(main))
	must.Succeed(t, syscall.Kill(agent.Pid(), syscall.SIGHUP))
	b.Await("the uplink to be given back", 2*time.Second, func() (bool, string) {
		return len(agent.Status().Uplinks) == 1, agent.Said()
	})
	expect("removed", "uplink")
	if now := b.Run("tc", "qdisc", "show", "dev", backup); now != theirs {
		t.Errorf("it was %s, is %s", theirs, now)
	}
	time.Sleep(200 * time.Millisecond)
	sequence.stop(t)
	if now := tcClasses(b); !slices.Equal(now, handles) {
		t.Errorf("classes and queues were %v, are %v", handles, now)
	}
	agent.Kill()
	agent = b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: uplinks(main)})
	b.MustWeir("down")
	agent.Ended()
	checkNothingLeft(t, b)
}
