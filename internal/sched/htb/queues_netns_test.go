//go:build netns

package htb

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/kernel"
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

// received is what reached the neighbour at a port.
type received struct {
	packets   atomic.Int64
	longestNS atomic.Int64
}

func (l *line) receive(t *testing.T, port int) *received {
	t.Helper()
	var conn *net.UDPConn
	if err := kernel.InNetNS(l.far, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(farAddress), Port: port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &received{}
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			if sent, err := strconv.ParseInt(strings.TrimRight(string(buffer[:n]), "\x00"), 10, 64); err == nil {
				r.longestNS.Store(max(r.longestNS.Load(), time.Now().UnixNano()-sent))
			}
			r.packets.Add(1)
		}
	}()
	return r
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

// stamped is a packet that says when it was made.
func stamped(bytes int) []byte {
	b := make([]byte, bytes)
	copy(b, strconv.FormatInt(time.Now().UnixNano(), 10))
	return b
}

// TestSparseFlows: flows that send a packet now and then lose none, when they wait for
// each other and for bulk of the same container, which has a queue that is full. CoDel
// before Linux 7.1 drops one of theirs for having waited twice.
func TestSparseFlows(t *testing.T) {
	const linkBPS, containerBPS = 10_000_000, 1_000_000
	for _, test := range []struct {
		name                     string
		bulkFlows, flows, rounds int
		every                    time.Duration
		bytes                    int
	}{
		{"one beside bulk", 4, 1, 25, 200 * time.Millisecond, 100},
		{"forty at once", 0, 40, 8, 500 * time.Millisecond, 1000},
		{"ten beside bulk", 4, 10, 12, 400 * time.Millisecond, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLine(t)
			tree := treeOf(linkBPS, container(16, 100, containerBPS, ceiling(containerBPS)))
			tree.DefaultNumber = 16
			backend := New(l.tc, l.ifindex)
			if err := backend.Apply(tree); err != nil {
				t.Fatal(err)
			}
			if backend.leaf == leafBFIFO {
				t.Skip("this kernel has no fq_codel")
			}
			bulk, sparse := l.receive(t, 9), l.receive(t, 10)
			for range test.bulkFlows {
				conn := l.dial(t, 9)
				go func() {
					for {
						if _, err := conn.Write(stamped(1400)); err != nil {
							return
						}
					}
				}()
			}
			flows := make([]*net.UDPConn, test.flows)
			for i := range flows {
				flows[i] = l.dial(t, 10)
			}
			time.Sleep(time.Second)
			for range test.rounds {
				for _, conn := range flows {
					if _, err := conn.Write(stamped(test.bytes)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(test.every)
			}
			sent := int64(test.flows * test.rounds)
			for deadline := time.Now().Add(time.Second); sparse.packets.Load() < sent && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("%d of %d packets arrived, after %v at most; %d of bulk, after %v at most", sparse.packets.Load(), sent,
				time.Duration(sparse.longestNS.Load()), bulk.packets.Load(), time.Duration(bulk.longestNS.Load()))
			if sparse.packets.Load() != sent {
				t.Errorf("%d of %d packets were lost", sent-sparse.packets.Load(), sent)
			}
		})
	}
}

// used is what tc tells of a queue: its packets with all that the kernel keeps for
// them, or their bytes alone.
var used = regexp.MustCompile(`memory_used (\d+)|qdisc bfifo .*\n.*\n backlog (\d+)b`)

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
		tree.Classes = append(tree.Classes, container(uint16(16+i), 100, 9000))
	}
	backend := New(l.tc, l.ifindex)
	if err := backend.Apply(tree); err != nil {
		t.Fatal(err)
	}
	for i := range containers {
		conn := l.dial(t, 9)
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
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
	for _, m := range used.FindAllStringSubmatch(string(out), -1) {
		bytes, err := strconv.Atoi(m[1] + m[2])
		if err != nil {
			t.Fatal(err)
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
