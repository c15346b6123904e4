//go:build netns

package htb

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
)

// line is a device with a scheduler on it, and the neighbour behind it, each in
// a network namespace.
type line struct {
	near, far string // paths of the namespaces
	ifindex   int
	tc        *kernel.TC
}

const (
	nearAddress = "198.18.0.1"
	farAddress  = "198.18.0.2"
)

func newLine(t *testing.T) *line {
	t.Helper()
	near, far := fmt.Sprintf("weir-htb-near-%d", os.Getpid()), fmt.Sprintf("weir-htb-far-%d", os.Getpid())
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	for _, name := range []string{near, far} {
		ip("netns add " + name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	ip("-n " + near + " link add wire type veth peer name wire netns " + far)
	for name, address := range map[string]string{near: nearAddress, far: farAddress} {
		ip("-n " + name + " link set wire up")
		ip("-n " + name + " address add " + address + "/24 dev wire")
	}
	l := &line{near: "/run/netns/" + near, far: "/run/netns/" + far}
	if err := kernel.InNetNS(l.near, func() (err error) {
		device, err := net.InterfaceByName("wire")
		if err != nil {
			return err
		}
		l.ifindex = device.Index
		l.tc, err = kernel.OpenTC()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.tc.Close() })
	return l
}

func (l *line) dial(t *testing.T, port int) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	if err := kernel.InNetNS(l.near, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(farAddress), Port: port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestSparseFlows: forty flows of a container that send a packet at the same moment,
// twice a second, lose none: its link is idle in between. CoDel drops a packet of a flow
// whose last one has waited longer than its target, too.
func TestSparseFlows(t *testing.T) {
	const (
		linkBPS, containerBPS = 10_000_000, 1_000_000
		flows, rounds         = 40, 6
		payloadBytes, port    = 1000, 9
	)
	l := newLine(t)
	tree := treeOf(linkBPS, container(16, 100, containerBPS, ceiling(containerBPS)))
	tree.hostNumber = 16
	backend := New(l.tc, l.ifindex)
	must.Succeed(t, backend.program(tree))
	if backend.device.leaf == leafBFIFO {
		t.Skip("this kernel has no fq_codel")
	}
	var in *net.UDPConn
	if err := kernel.InNetNS(l.far, func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(farAddress), Port: port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	senders := make([]*net.UDPConn, flows)
	for i := range senders {
		senders[i] = l.dial(t, port)
	}
	arrived := 0
	for range rounds {
		deadline := time.Now().Add(500 * time.Millisecond)
		for _, out := range senders {
			if _, err := out.Write(make([]byte, payloadBytes)); err != nil {
				t.Fatal(err)
			}
		}
		must.Succeed(t, in.SetReadDeadline(deadline))
		for {
			if _, err := in.Read(make([]byte, payloadBytes)); err != nil {
				break
			}
			arrived++
		}
	}
	t.Logf("%d of %d packets arrived", arrived, flows*rounds)
	if arrived != flows*rounds {
		t.Errorf("%d of %d packets were lost", flows*rounds-arrived, flows*rounds)
	}
}

// queued is what tc tells of a queue: the bytes of its packets, and all that the
// kernel keeps for them, where it tells that.
var queued = regexp.MustCompile(`qdisc (?:fq_codel|bfifo) .*\n.*\n backlog (\d+)(K?)b .*\n(?:.* memory_used (\d+))?`)

// TestQueueMemory: a hundred containers that flood do not hold more memory than all
// queues may together.
func TestQueueMemory(t *testing.T) {
	const (
		containers  = 100
		packets     = 400
		budgetBytes = 16 << 20
		eachBytes   = 24_224 * 5 / 4
	)
	l := newLine(t)
	tree := treeOf(1_000_000)
	for i := range containers {
		tree.classes = append(tree.classes, container(uint16(16+i), 100, 9000))
	}
	backend := New(l.tc, l.ifindex)
	must.Succeed(t, backend.program(tree))
	for i := range containers {
		conn := l.dial(t, 9)
		raw, err := conn.SyscallConn()
		must.Succeed(t, err)
		if err := raw.Control(func(fd uintptr) {
			// The limit of a socket is none: a container has as many as it likes.
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, int(leafClass(uint16(16+i)))))
		}); err != nil {
			t.Fatal(err)
		}
		for range packets {
			_, _ = conn.Write(make([]byte, 1400)) // that it was dropped is no error here
		}
	}
	out, err := exec.Command("ip", "netns", "exec", filepath.Base(l.near), "tc", "-s", "qdisc", "show", "dev", "wire").CombinedOutput()
	if err != nil {
		t.Fatalf("tc: %v: %s", err, out)
	}
	sum, queues := 0, 0
	for _, m := range queued.FindAllStringSubmatch(string(out), -1) {
		text := cmp.Or(m[3], m[1])
		bytes, err := strconv.Atoi(text)
		must.Succeed(t, err)
		if m[3] == "" {
			bytes *= memoryFactor
			if m[2] != "" {
				bytes *= 1024
			}
		}
		sum += bytes
		queues++
	}
	t.Logf("%s: %d queues hold %d bytes", backend.Name(), queues, sum)
	if queues < containers || sum < containers*leastFrames*1400 {
		t.Fatalf("%d queues hold %d bytes: no flood; tc says\n%s", queues, sum, out)
	}
	if limit := budgetBytes + containers*eachBytes; sum > limit {
		t.Errorf("the queues hold %d bytes, want at most %d", sum, limit)
	}
}
