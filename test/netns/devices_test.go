//go:build netns

package netns

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/harness"
)

// checkBothCarry: a bond that sends through one of its links only would prove
// no more than that link does.
func checkBothCarry(t *testing.T, b *harness.Bed) {
	t.Helper()
	var links []struct {
		Name  string `json:"ifname"`
		Stats struct {
			Sent struct{ Bytes uint64 } `json:"tx"`
		} `json:"stats64"`
	}
	out := b.Run("ip", "-s", "-json", "link", "show", "master", b.Host.UplinkName)
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		t.Fatal(err)
	}
	if len(links) != 2 {
		t.Errorf("the bond has %d links: %s", len(links), out)
	}
	for _, l := range links {
		if l.Stats.Sent.Bytes < mbit/8 {
			t.Errorf("%s carried %d bytes only", l.Name, l.Stats.Sent.Bytes)
		}
	}
}

// TestTunnelIsTold: where a route leads through a device on top of the uplink,
// those whose packets may go there are told which device to name.
func TestTunnelIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", labels("max", "10mbit"))
	b.Run("ip", "link", "add", "tunnel", "type", "vxlan", "id", "7", "remote", b.Host.PeerAddr.String(),
		"dev", b.Host.UplinkName, "dstport", "4790")
	b.Run("ip", "link", "set", "tunnel", "up")
	b.Run("ip", "route", "add", "198.19.250.0/24", "dev", "tunnel")
	agent := b.StartAgent(harness.AgentOptions{})
	one := agent.Container("one")
	if one.State != v1.StateDegraded || !strings.Contains(one.Reason, "tunnel (vxlan on "+b.Host.UplinkName+")") {
		t.Errorf("got %s, %q", one.State, one.Reason)
	}
	doctor := b.Weir("doctor").Stdout
	if !regexp.MustCompile(`(?m)^uplink +ok +the classifier loads$`).MatchString(doctor) {
		t.Errorf("weir doctor does not say whether the classifier loads:\n%s", doctor)
	}
	if found := regexp.MustCompile(`(?m)^tunnels .*`).FindString(doctor); !strings.Contains(found, " less ") ||
		!strings.Contains(found, "tunnel (vxlan on "+b.Host.UplinkName+")") || !strings.Contains(found, "an uplink of its own") {
		t.Errorf("weir doctor says:\n%s", doctor)
	}
}
