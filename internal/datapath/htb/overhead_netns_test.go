//go:build netns

package htb

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestOverhead: a flood of the shortest frames does not fill the card behind the uplink, and leaves
// a container of lower priority its minimum. A bucket that counts what Ethernet sends besides each
// frame stands in for the card.
func TestOverhead(t *testing.T) {
	const cardBPS, minimumBPS, rateBPS = 10_000_000, 6_000_000, 9_800_000
	b := harness.NewBed(t, testbed.HostOptions{})
	card := b.Host.UplinkName
	run := func(command string) string { return b.Run(strings.Fields(command)...) }
	run("tc qdisc add dev " + card + " root tbf rate 10mbit burst 4000 limit 30000 overhead 24 mpu 84")
	address := strings.Fields(run("ip -4 -o address show dev " + card))[3]
	run("ip link add above link " + card + " type macvlan mode bridge")
	run("ip address flush dev " + card)
	run("ip address add " + address + " dev above")
	run("ip link set up above")

	backend := newBackend(t, b)
	must.Succeed(t, kernel.InNetNS(b.Host.NetNSPath(), func() error {
		above, err := kernel.LinkByName("above")
		backend.device.ifindex = above.Index
		return err
	}))
	tree := classTree(rateBPS,
		sched.Competitor{Number: 16, Weight: 1, FloorBPS: minimumBPS, CeilingBPS: minimumBPS},
		sched.Competitor{Number: 17, Weight: 100, Priority: 10, CeilingBPS: cardBPS})
	tree.OverheadBytes = kernel.FrameOverheadBytes
	must.Succeed(t, backend.Apply(tree))
	backend.Forget()
	if ops, err := backend.changes(backend.device.applied); err != nil || len(ops) > 0 {
		t.Errorf("what the kernel has is changed again: %v (%v)", ops, err)
	}
	compete(t, b, backend, tree, newTraffickers(), []load{{number: 16}, {number: 17, payloadBytes: 18}})
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		promised, small := m.BPS[0]*(1514+24)/1514, m.BPS[1]*(60+24)/60
		t.Logf("with what Ethernet sends besides: the promised %.3f Mbit/s, small frames %.3f", promised/1e6, small/1e6)
		return errors.Join(
			deviation("container 16", promised, minimumBPS, minimumBPS, rateBPS, m),
			deviation("container 17", small, float64(shared(rateBPS)-minimumBPS), rateBPS, rateBPS, m))
	})
	text := run("tc -s qdisc show dev " + card + " root")
	dropped := regexp.MustCompile(`dropped (\d+)`).FindStringSubmatch(text)
	if dropped == nil {
		t.Fatal(fmt.Errorf("tc prints %s", text))
	}
	if dropped[1] != "0" {
		t.Errorf("the card dropped %s packets: it is the bottleneck", dropped[1])
	}
}
