//go:build netns

package netns

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

func address(raw [16]byte) string { return netip.AddrFrom16(raw).String() }

// attachVeth adds a veth from the host's bridge to a container and returns the
// name of its end in there.
func attachVeth(t *testing.T, b *harness.Bed, netNSPath, name string) string {
	t.Helper()
	b.Run("ip", "link", "add", "v"+name, "type", "veth", "peer", "name", name, "netns", netNSPath)
	b.Run("ip", "link", "set", "v"+name, "master", "containers", "up")
	b.Run("nsenter", "--net="+netNSPath, "--", "ip", "link", "set", name, "up")
	return name
}

// counters are what tc says of one qdisc or class.
type counters struct {
	bytes, packets, dropped uint64
}

var (
	objectLine  = regexp.MustCompile(`^(qdisc \S+ \S+|class \S+ \S+) `)
	counterLine = regexp.MustCompile(`^ Sent (\d+) bytes (\d+) pkt \(dropped (\d+),`)
)

// queueing reads the counters of every qdisc and class of the uplink from tc;
// keys are such as "qdisc bfifo 10:" and "class htb 7e11:10".
func queueing(t *testing.T, b *harness.Bed) map[string]counters {
	t.Helper()
	all := map[string]counters{}
	object := ""
	for _, what := range []string{"qdisc", "class"} {
		for line := range strings.Lines(b.Run("tc", "-s", what, "show", "dev", b.Host.UplinkName)) {
			if m := objectLine.FindStringSubmatch(line); m != nil {
				object = m[1]
			} else if m := counterLine.FindStringSubmatch(line); m != nil {
				all[object] = counters{number(t, m[1]), number(t, m[2]), number(t, m[3])}
			}
		}
	}
	return all
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	must.Succeed(t, err)
	return n
}

// directPackets is a counter that tc shows among the parameters of HTB.
var directPackets = regexp.MustCompile(` direct_packets_stat (\d+)`)

// tcConfig is the uplink's queueing as tc describes it, without counters.
func tcConfig(b *harness.Bed) string {
	var lines []string
	for _, what := range []string{"qdisc", "class"} {
		for line := range strings.Lines(b.Run("tc", "-d", what, "show", "dev", b.Host.UplinkName)) {
			if strings.HasPrefix(line, "class fq_codel ") {
				continue // a flow with packets, of those that a queue sees at present
			}
			lines = append(lines, directPackets.ReplaceAllString(strings.TrimSpace(line), ""))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// bpfPrograms lists Weir's programs on the host's interfaces, such as
// "uplink: weir_uplink".
func bpfPrograms(t *testing.T, b *harness.Bed) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"weir_uplink", "weir_tap", "weir_bridge", "weir_below", "weir_clear"} {
		all = append(all, b.Programs(name)...)
	}
	return all
}

// gsoMaxBytes is the largest packet that a container's interface hands over.
func gsoMaxBytes(t *testing.T, c *harness.Container) uint32 {
	t.Helper()
	ns, err := kernel.OpenNetNS(c.NetNSPath())
	must.Succeed(t, err)
	defer ns.Close()
	links, err := ns.Links()
	must.Succeed(t, err)
	for _, l := range links {
		if l.Name == c.Interface() {
			return l.GSOMaxBytes
		}
	}
	t.Fatalf("container %s has no %s", c.Name, c.Interface())
	return 0
}

// checkNothingLeft fails when something of Weir's is on the host.
func checkNothingLeft(t *testing.T, b *harness.Bed) {
	t.Helper()
	if left := bpfPrograms(t, b); len(left) > 0 {
		t.Errorf("programs left: %v", left)
	}
	if left := b.Run("tc", "qdisc", "show"); strings.Contains(left, "7e1") || strings.Contains(left, "clsact") {
		t.Errorf("queueing left: %s", left)
	}
}

// set is the elements of a list, as a set.
func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range list {
		m[s] = true
	}
	return m
}

// netNSName is the name of a container's namespace, as ip-netns takes it.
func netNSName(c *harness.Container) string { return filepath.Base(c.NetNSPath()) }

// detachUplink takes the classifier off the uplink.
func detachUplink(t *testing.T, b *harness.Bed) {
	t.Helper()
	index := b.UplinkIndex()
	err := testbed.InNetNS(b.Host.NetNSPath(), func() error {
		return kernel.Hook{Ifindex: index, Egress: true}.Detach("weir_uplink")
	})
	must.Succeed(t, err)
}
