//go:build netns

package sdn

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// ofOthers makes the bridge br0, which Weir does not control, with two hosts.
func (b *bed) ofOthers() (h1, h2 *testbed.Process) {
	b.t.Helper()
	b.bridge("br0", 0xab)
	b.vsctl("del-controller", "br0", "--", "set", "bridge", "br0", "fail_mode=standalone")
	h1, h2 = b.host("br0", "p1", 1, "198.18.66.1"), b.host("br0", "p2", 2, "198.18.66.2")
	b.must("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+b.path("br0.mgmt"), "priority=0,actions=NORMAL")
	b.reach(h1, "198.18.66.2")
	return h1, h2
}

// queues runs weir sdn queues br0 where the switch runs.
func (b *bed) queues(args ...string) (string, error) {
	all := append([]string{"--net=" + b.Space.NetNSPath(), harness.Program(b.t), "sdn", "queues", "br0", "--ovsdb", b.database()}, args...)
	return b.do("nsenter", all...)
}

// TestQueuesByMark: the ports of a bridge that others control get queues, without OpenFlow entries;
// what others configured stays, and all is given back.
func TestQueuesByMark(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.ofOthers()
	before := b.entries("br0")
	foreign := strings.TrimSpace(b.vsctl("--", "--id=@q", "create", "qos", "type=linux-codel", "--", "set", "port", "p1", "qos=@q"))
	out, err := b.queues("--rate", "20mbit")
	if err == nil || !strings.Contains(out, "another program configured QoS "+foreign) || !strings.Contains(out, "use the kernel datapath") || !strings.Contains(err.Error(), "2 ports of bridge br0 without queues in force") {
		t.Errorf("%v: %s", err, out)
	}
	rows := func() string { return b.vsctl("--format=csv", "--columns=type,external_ids,queues", "list", "qos") }
	if made := rows(); strings.Count(made, "owner=weir") != 1 || strings.TrimSpace(b.vsctl("get", "port", "p1", "qos")) != foreign {
		t.Errorf("rows %s", made)
	}
	if queues := b.vsctl("list", "queue"); strings.Count(queues, "owner=weir") != 3 || !strings.Contains(queues, `min-rate="10000000"`) {
		t.Errorf("queues %s", queues)
	}
	if b.entries("br0") == "" || strings.Count(b.entries("br0"), "\n") != strings.Count(before, "\n") {
		t.Errorf("entries %s, before %s", b.entries("br0"), before)
	}
	if out, err := b.queues("--remove"); err != nil || !strings.Contains(out, "p2 given back") || strings.Contains(out, "p1") {
		t.Errorf("removed: %v: %s", err, out)
	}
	if left := rows(); strings.Contains(left, "weir") || !strings.Contains(left, "linux-codel") || strings.Contains(b.vsctl("list", "queue"), "weir") {
		t.Errorf("left are %s", left)
	}
	b.watchQueues()
	if out, err := b.do(harness.Program(t), "sdn", "queues", "br7", "--ovsdb", b.database(), "--rate", "20mbit"); err == nil || !strings.Contains(err.Error(), "has no bridge br7") {
		t.Errorf("of no bridge: %v: %s", err, out)
	}
}

// watchQueues has weir sdn queues --watch give queues to a new port, and again to one that lost them.
func (b *bed) watchQueues() {
	b.t.Helper()
	watch, err := b.Start(b.Space, harness.Program(b.t), "sdn", "queues", "br0", "--ovsdb", b.database(), "--rate", "20mbit", "--by", "pcp", "--watch")
	must.Succeed(b.t, err)
	queues := func(port string) {
		b.t.Helper()
		b.wait("queues of "+port, 10*time.Second, func() error {
			if got := strings.TrimSpace(b.vsctl("get", "port", port, "qos")); got == "[]" || !strings.Contains(b.vsctl("get", "qos", got, "external_ids"), "owner=weir") {
				return fmt.Errorf("has %s", got)
			}
			return nil
		})
	}
	queues("p2")
	b.host("br0", "p3", 3, "198.18.66.3")
	queues("p3")
	b.vsctl("clear", "port", "p2", "qos")
	queues("p2")
	b.vsctl("del-port", "br0", "p3")
	b.wait("rows of the port that is gone", 10*time.Second, func() error {
		if rows := b.vsctl("--format=csv", "--columns=external_ids", "list", "qos"); strings.Count(rows, "owner=weir") != 1 {
			return fmt.Errorf("are %s", rows)
		}
		return nil
	})
	if err := watch.End(syscall.SIGTERM, 10*time.Second); err != nil {
		b.t.Errorf("ended: %v", err)
	}
	if out, err := b.queues("--remove"); err != nil || !strings.Contains(out, "p2 given back") {
		b.t.Errorf("removed: %v: %s", err, out)
	}
}

// TestQueuesByMarkKernel: on a bridge with NORMAL packets are served by their marks (DSCP, PCP,
// skb->mark), except those for which an entry chose a queue.
func TestQueuesByMarkKernel(t *testing.T) {
	b := newKernelBed(t)
	h1, h2 := b.ofOthers()
	if out, err := b.do(harness.Program(t), "sdn", "queues", "br0", "--ovsdb", b.database(), "--rate", "20mbit"); err == nil || !strings.Contains(out, "run this where the switch runs") {
		t.Errorf("elsewhere: %v: %s", err, out)
	}
	for range 2 {
		if out, err := b.queues("--rate", "20mbit"); err != nil || strings.Count(out, "ok") != 2 {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b.must("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+b.path("br0.mgmt"), "priority=9,udp,tp_dst=7000,actions=set_queue:1,NORMAL")
	ef, be, chosen := b.voice(h1, h2, efPort, 3e6), b.voice(h1, h2, bePort, 3e6), b.voice(h1, h2, 7000, 1e6)
	for _, v := range []*voice{ef, chosen} {
		setTOS(t, v.client.(*net.UDPConn), tosEF)
	}
	_, stop := b.bulk(h1, h2, afPort, 8)
	time.Sleep(2 * time.Second)
	before := b.queueBytes("p2")
	for _, v := range []*voice{ef, be} {
		v.measuring.Store(true)
	}
	time.Sleep(4 * time.Second)
	after := b.queueBytes("p2")
	efDelay, efP99, _ := ef.delays()
	beDelay, beP99, _ := be.delays()
	efSent, efLost := ef.stop()
	be.stop()
	chosen.stop()
	stop()
	var bps [3]float64
	for i := range bps {
		bps[i] = 8 * (after[i] - before[i]) / 4
	}
	t.Logf("EF %v (p99 %v), lost %d of %d; BE %v (p99 %v); queues 0 to 2: %.2f Mbit/s", efDelay, efP99, efLost, efSent, beDelay, beP99, [3]float64{bps[0] / 1e6, bps[1] / 1e6, bps[2] / 1e6})
	if efLost > 0 || efP99 > beP99/4 {
		t.Errorf("EF lost %d and waits %v, BE %v", efLost, efP99, beP99)
	}
	if bps[2] < 0.9*3e6 || bps[2] > 1.2*3e6 || bps[1] < 0.9*1e6 || bps[1] > 1.2*1e6 || bps[0] < 10e6 {
		t.Errorf("by queue %.0f bit/s", bps)
	}
	for _, c := range []struct {
		by, actions string
		queue       int
	}{
		{"pcp", "push_vlan:0x8100,set_field:4103->vlan_vid,set_field:5->vlan_pcp", 2},
		{"mark/0xf00", "set_field:0x100->pkt_mark", 1},
	} {
		if out, err := b.queues("--rate", "20mbit", "--by", c.by); err != nil {
			t.Fatalf("by %s: %v: %s", c.by, err, out)
		}
		b.must("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+b.path("br0.mgmt"), "priority=9,udp,tp_dst=7001,actions="+c.actions+",output:2")
		before := b.queueBytes("p2")
		v := b.voice(h1, h2, 7001, 1e6)
		time.Sleep(2 * time.Second)
		v.stop()
		after := b.queueBytes("p2")
		for i := range after {
			if sent := after[i] - before[i]; (sent > 150e3) != (i == c.queue) {
				t.Errorf("by %s: %.0f bytes in queue %d", c.by, sent, i)
			}
		}
	}
	if out, err := b.queues("--remove"); err != nil || strings.Count(out, "given back") != 2 {
		t.Errorf("%v: %s", err, out)
	}
	b.wait("nothing is left", 10*time.Second, func() error {
		if left := b.inSpace(b.Space, "tc", "qdisc", "show", "dev", "p2"); strings.Contains(left, "htb") {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
}

// queueBytes are what the first three queues of a port have sent.
func (b *bed) queueBytes(port string) (bytes [3]float64) {
	b.t.Helper()
	for line := range strings.Lines(b.must("ovs-ofctl", "-O", "OpenFlow13", "queue-stats", "unix:"+b.path("br0.mgmt"), port)) {
		_, rest, found := strings.Cut(line, "queue ")
		var id int
		var n float64
		if _, err := fmt.Sscanf(rest, "%d: bytes=%f,", &id, &n); found && err == nil && id < len(bytes) {
			bytes[id] = n
		}
	}
	return bytes
}
