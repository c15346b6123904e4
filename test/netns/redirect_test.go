//go:build netns

package netns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

// TestRedirected: a filter of others that sends packets through an ifb, as is usual to shape uploads, leaves
// the device's choice of a queue where the tag was. At the bridge the maximum holds all the same; behind the
// tap of a container that container is told.
func TestRedirected(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"bridge", "veth"} {
		t.Run(at, func(t *testing.T) {
			b := newBed(t)
			one := b.Add("one", labels("max", "5mbit"))
			agent := b.StartAgent(harness.AgentOptions{})
			device := "containers"
			if at == "veth" {
				device = strings.Fields(strings.ReplaceAll(b.Run("ip", "-o", "link", "show", "master", "containers"), "@", " "))[1]
			}
			b.Run("ip", "link", "add", "ifb0", "numtxqueues", "2", "type", "ifb")
			b.Run("ip", "link", "set", "ifb0", "up")
			if at == "bridge" {
				b.Run("tc", "qdisc", "replace", "dev", device, "clsact")
			}
			b.Run("tc", "filter", "add", "dev", device, "ingress", "protocol", "all", "u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "ifb0")
			for _, v6 := range []bool{false, true} {
				b.Send(one, harness.Load{Protocol: harness.Flood.Protocol, RateBPS: 20 * mbit, V6: v6})
			}
			if at == "veth" {
				agent.AwaitContainer("one", "told", 2*tapsInterval, func(c v1.Container) bool {
					return c.State == v1.StateDegraded && strings.Contains(c.Reason, "u32")
				})
				b.Run("tc", "filter", "del", "dev", device, "ingress", "pref", "49152")
				filter := []string{"tc", "filter", "add", "dev", device, "ingress", "pref", "50", "u32", "match", "u32", "0", "0"}
				b.Run(append(filter, "action", "mirred", "egress", "mirror", "dev", "ifb0")...)
				agent.AwaitContainer("one", "ok again", 2*tapsInterval, func(c v1.Container) bool { return c.State == v1.StateOK })
				b.Run(append(filter, "flowid", "1:7")...)
				agent.AwaitContainer("one", "told of the class", 2*tapsInterval, func(c v1.Container) bool {
					return c.State == v1.StateDegraded && strings.Contains(c.Reason, "may overwrite their tag")
				})
			}
			b.Check(500*time.Millisecond, func(m harness.Measurement) error {
				if m.BPS[0] > (1.02+m.Slack)*5*mbit || m.BPS[0] < mbit {
					return fmt.Errorf("sends %.2f Mbit/s with a maximum of 5", m.BPS[0]/mbit)
				}
				return nil
			})
		})
	}
}

// TestOverwrittenAtBridges: where the uplink is a port of a bridge, filters of others that take the tag of
// what passes the containers' bridge, or the uplink's, are told as the container's reason.
func TestOverwrittenAtBridges(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{Attachment: testbed.AttachNATBridged})
	b.Add("one", labels("max", "5mbit"))
	agent := b.StartAgent(harness.AgentOptions{})
	b.Run("ip", "link", "add", "ifb0", "numtxqueues", "2", "type", "ifb")
	const above = "count as the host's: u32 filter at egress of lan, which they pass before uplink,"
	for _, at := range []struct{ device, way, does, reason string }{
		{"containers", "ingress", "flowid 1:7", "count as the host's: u32 filter behind Weir's program at containers may overwrite their tag"},
		{"lan", "egress", "flowid 1:7", above},
		{"lan", "egress", "action mirred egress redirect dev ifb0", above},
	} {
		b.Run("tc", "qdisc", "replace", "dev", at.device, "clsact")
		b.Run(append([]string{"tc", "filter", "add", "dev", at.device, at.way, "pref", "50", "u32", "match", "u32", "0", "0"}, strings.Fields(at.does)...)...)
		agent.AwaitContainer("one", "told of "+at.does+" at "+at.device, 2*tapsInterval, func(c v1.Container) bool {
			return c.State == v1.StateDegraded && strings.Contains(c.Reason, at.reason)
		})
		b.Run("tc", "filter", "del", "dev", at.device, at.way, "pref", "50")
		agent.AwaitContainer("one", "ok again", 2*tapsInterval, func(c v1.Container) bool { return c.State == v1.StateOK })
	}
}

// tapsInterval is how often an agent looks at each tap.
const tapsInterval = 8 * time.Second
