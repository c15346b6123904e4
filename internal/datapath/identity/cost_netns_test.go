//go:build netns

package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// BenchmarkDelays tells what measuring delays costs: the CPU time of a small
// packet from a bridge container through NAT and the uplink's queues, without,
// with, and while paused, in short turns that alternate. It reports medians and
// how much more time a packet takes.
//
//	go test -tags netns -run - -bench Delays -benchtime 100x ./internal/datapath/identity
func BenchmarkDelays(bench *testing.B) {
	b, ns := costBed(bench)
	times := b.packetTimes(bench, ns, b.targets()[0], 3, func(i int) (stop func()) {
		var delays *Delays
		b.inHost(func() (err error) {
			if delays, err = OpenDelays(b.uplink); err != nil || i == 1 {
				return err
			}
			return delays.Pause()
		})
		return func() { delays.Close() }
	})
	off, on, paused := times[0], times[1], times[2]
	bench.ReportMetric(off, "ns/packet")
	bench.ReportMetric(100*(on-off)/off, "%more-on")
	bench.ReportMetric(100*(paused-off)/off, "%more-paused")
}

// BenchmarkOrigins tells what watching origins costs: the CPU time of a small
// packet through the uplink's queues with and without, in short turns that
// alternate, from the host and from a macvlan container, which pass the
// tracepoints of one device and of two, and from a bridge container, which
// passes those of its veth, too. It reports medians.
//
//	go test -tags netns -run - -bench Origins -benchtime 100x ./internal/datapath/identity
func BenchmarkOrigins(bench *testing.B) {
	direct := NumberFirst + 1
	b, bridged := costBed(bench, direct)
	container := b.macvlanContainer("two", 101)
	b.assign(container, v1.ModeMacvlan, direct)
	b.set(container, direct)
	for name, ns := range map[string]string{"host": b.hostNS(), "bridge": bridged, "macvlan": container} {
		bench.Run(name, func(bench *testing.B) {
			times := b.packetTimes(bench, ns, b.targets()[0], 2, func(int) (stop func()) {
				b.watch(1e9)
				return func() { must.Succeed(bench, errors.Join(b.uplink.LimitUnknownOrigins(0), b.origins.Unwatch())) }
			})
			bench.ReportMetric(times[0], "ns/packet")
			bench.ReportMetric(times[1]-times[0], "ns-more")
		})
	}
}

// BenchmarkBridge tells what clearing forged tags at a bridge costs: the CPU time of a
// small packet from a bridge container through NAT and the uplink's queues with and
// without, in short turns that alternate. It reports medians.
//
//	go test -tags netns -run - -bench Bridge -benchtime 100x ./internal/datapath/identity
func BenchmarkBridge(bench *testing.B) {
	b, ns := costBed(bench)
	times := b.packetTimes(bench, ns, b.targets()[0], 2, func(int) (stop func()) {
		b.believeFragments(ns)
		return func() { b.inHost(DetachBridges) }
	})
	bench.ReportMetric(times[0], "ns/packet")
	bench.ReportMetric(times[1]-times[0], "ns-more")
}

// BenchmarkPath tells what a packet pays on its way from a bridge container through NAT to the neighbour:
// the CPU time of a datagram of 64 bytes, and of one that stays a packet of 45 frames until there. Each step
// adds a program or a level of queues to those before, or puts what others use in its place. No packet waits.
// In a virtual machine, whose nanosecond is an instruction (test/vm), it counts instructions:
//
//	WEIR_VM_SUITE=bench go test -tags vm -run TestBenchmarks -v ./test/vm
//	go test -tags netns -run - -bench Path -benchtime 10x ./internal/datapath/identity
func BenchmarkPath(bench *testing.B) {
	const htb, one, fifo = "htb rate 100gbit burst 1mb cburst 1mb quantum 65536", "classid 7e0f:1 ", "bfifo limit 10mb"
	outer := []string{"root handle 7e0f: htb default 1", "parent 7e0f: " + one + htb}
	bucket := slices.Concat(outer, []string{"parent 7e0f:1 handle 7e10: tbf rate 100gbit burst 1mb limit 100mb"})
	inner := slices.Concat(bucket, []string{"parent 7e10:1 handle 7e11: htb default 1",
		"parent 7e11: classid 7e11:ffff " + htb, "parent 7e11:ffff classid 7e11:4010 " + htb, "parent 7e11:4010 classid 7e11:10 " + htb})
	with := func(tree []string, queue string) []string { return slices.Concat(tree, []string{queue}) }
	b := newBed(bench)
	ns, target := b.bridgeContainer("one"), b.targets()[0]
	b.listen(target.Port())
	var delays *Delays
	mayGoDirect := func(bounds sched.Bounds) {
		must.Succeed(bench, b.uplink.SetDirect(bounds, []sched.Direct{{Number: NumberFirst, May: true}}))
	}
	for _, step := range []struct {
		name   string
		add    func()
		queues []string
		needs  func() error
	}{
		{"nothing", func() { b.inHost(func() error { return DetachUplink(b.ifindex) }) }, nil, nil},
		{"FIFO", nil, []string{"root " + fifo}, nil},
		{"tap", func() { b.assign(ns, v1.ModeBridge, NumberFirst) }, nil, nil},
		{"classifier", b.open, nil, nil},
		{"bridge", func() { b.believeFragments(ns) }, nil, nil},
		{"outer-HTB", nil, with(outer, "parent 7e0f:1 handle 7e10: "+fifo), nil},
		{"direct", func() { mayGoDirect(fastLink) }, with(outer, "parent 7e0f:1 handle 7e10: "+fifo), ProbeDirect},
		{"TBF", func() { mayGoDirect(sched.Bounds{}) }, with(bucket, "parent 7e10:1 handle 7e11: "+fifo), nil},
		{"inner-HTB", nil, with(inner, "parent 7e11:10 handle 10: "+fifo), nil},
		{"fq_codel", nil, with(inner, "parent 7e11:10 handle 10: fq_codel"), nil},
		{"delays", func() {
			b.inHost(func() (err error) {
				delays, err = OpenDelays(b.uplink)
				return err
			})
		}, with(inner, "parent 7e11:10 handle 10: "+fifo), ProbeDelays},
		{"HTB-by-hand", func() {
			b.inHost(func() error {
				_, err := DetachTaps()
				if delays != nil {
					err = errors.Join(err, delays.Close())
				}
				return errors.Join(err, DetachBridges(), DetachUplink(b.ifindex))
			})
			b.run("ip", "netns", "exec", b.hostNS(), "iptables", "-w", "-t", "mangle", "-A", "POSTROUTING",
				"-o", b.host.UplinkName, "-j", "CLASSIFY", "--set-class", "1:10")
		}, []string{"root handle 1: htb default ffff", "parent 1: classid 1:1 " + htb, "parent 1:1 classid 1:10 " + htb}, nil},
	} {
		bench.Run(step.name, func(bench *testing.B) {
			if step.needs != nil {
				if err := step.needs(); err != nil {
					bench.Skip(err)
				}
			}
			if step.add != nil {
				step.add()
			}
			if err := b.setQueues(step.queues); err != nil {
				bench.Skip(err) // a kernel without fq_codel
			}
			shapes := []datagram{{payloadBytes: 64}, {payloadBytes: 45 * 1400, segmentBytes: 1400}}
			times := make([][]float64, len(shapes))
			for bench.Loop() {
				for i, shape := range shapes {
					must.Succeed(bench, testbed.InNetNS(path(ns), func() error {
						ns, err := shape.cpuTime(target, 100*time.Millisecond)
						times[i] = append(times[i], ns)
						return err
					}))
				}
			}
			for i, shape := range shapes {
				slices.Sort(times[i])
				bench.ReportMetric(times[i][len(times[i])/2], fmt.Sprintf("ns/%dB", shape.payloadBytes))
			}
			bench.ReportMetric(0, "ns/op")
		})
	}
}

// setQueues gives the uplink these queueing disciplines and classes in place of all others.
func (b *bed) setQueues(added []string) error {
	tc := func(kind, verb, what string) error {
		args := append([]string{"-n", b.hostNS(), kind, verb, "dev", b.host.UplinkName}, strings.Fields(what)...)
		if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("tc %v: %s", args, out)
		}
		return nil
	}
	_ = tc("qdisc", "del", "root") // none at first
	for _, what := range added {
		kind := "qdisc"
		if strings.Contains(what, "classid") {
			kind = "class"
		}
		if err := tc(kind, "add", what); err != nil {
			return err
		}
	}
	return nil
}

// costBed is a bed with a bridge container of NumberFirst, and queues that never fill for it and
// for more numbers.
func costBed(bench *testing.B, more ...uint16) (b *bed, ns string) {
	bench.Helper()
	b = newBed(bench)
	ns = b.bridgeContainer("one")
	b.assign(ns, v1.ModeBridge, NumberFirst)
	b.tree("10gbit", 1<<20, append([]uint16{NumberHost, NumberControl, NumberFirst}, more...)...)
	b.listen(b.targets()[0].Port())
	return b, ns
}

// packetTimes returns the median CPU time of a packet from a namespace to target, in nanoseconds, in each of
// some ways. Their turns alternate; start puts all but the first in place, until stop.
func (b *bed) packetTimes(bench *testing.B, netNS string, target netip.AddrPort, ways int, start func(way int) (stop func())) []float64 {
	bench.Helper()
	turns, medians := make([][]float64, ways), make([]float64, ways)
	for bench.Loop() {
		for way := range turns {
			stop := func() {}
			if way > 0 {
				stop = start(way)
			}
			err := testbed.InNetNS(path(netNS), func() error {
				ns, err := datagram{payloadBytes: 64}.cpuTime(target, 100*time.Millisecond)
				turns[way] = append(turns[way], ns)
				return err
			})
			stop()
			must.Succeed(bench, err)
		}
	}
	for way, times := range turns {
		slices.Sort(times)
		medians[way] = times[len(times)/2]
	}
	bench.ReportMetric(0, "ns/op")
	return medians
}

// BenchmarkInspect tells how long it takes to find out how a container is
// attached.
func BenchmarkInspect(bench *testing.B) {
	b := newBed(bench)
	hidden := b.overlay("hid", 77, b.host.PeerAddr.Prev(), b.host.PeerAddr)
	for mode, ns := range map[v1.Mode]string{
		v1.ModeBridge:  b.bridgeContainer("bridged"),
		v1.ModeMacvlan: b.macvlanContainer("mv", 101),
		v1.ModeOverlay: b.overlayContainer(hidden, "ov"),
	} {
		bench.Run(string(mode), func(bench *testing.B) {
			b.inHost(func() error {
				inspector := NewInspector()
				for bench.Loop() {
					found, err := inspector.Inspect(path(ns), "")
					if err != nil || len(found) != 1 || found[0].Mode != mode {
						return fmt.Errorf("found %+v, %w", found, err)
					}
				}
				return nil
			})
		})
	}
}

// datagram is what is sent: in one packet, or of segmentBytes in a GSO packet.
type datagram struct{ payloadBytes, segmentBytes int }

// cpuTime sends datagrams as fast as possible, and returns the
// CPU time of one, in nanoseconds: all that happens to it on this machine
// happens in the system call that sends it, or in the softirq that follows.
func (d datagram) cpuTime(target netip.AddrPort, duration time.Duration) (float64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()}); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, d.segmentBytes); err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	payload := make([]byte, d.payloadBytes)
	start, before := time.Now(), threadCPUTime()
	sent := 0
	for time.Since(start) < duration {
		for range 100 {
			if _, err := unix.Write(fd, payload); err == nil {
				sent++
			}
		}
	}
	return float64(threadCPUTime()-before) / float64(sent), nil
}

func threadCPUTime() time.Duration {
	var ts unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// listen takes what is sent to a port of the neighbour, which would send answers
// otherwise.
func (b *bed) listen(port uint16) {
	b.t.Helper()
	err := testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		// A socket that nobody reads drops what is too much for it.
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		if err == nil {
			b.t.Cleanup(func() { conn.Close() })
		}
		return err
	})
	must.Succeed(b.t, err)
}

// tree gives the uplink queues as the agent does: HTB around TBF around HTB, and
// a FIFO for each number.
func (b *bed) tree(rate string, queueBytes int, numbers ...uint16) {
	b.t.Helper()
	tc := func(args ...string) {
		b.run("tc", append([]string{"-n", b.hostNS()}, args...)...)
	}
	dev := b.host.UplinkName
	tc("qdisc", "add", "dev", dev, "root", "handle", "7e0f:", "htb", "default", "1")
	tc("class", "add", "dev", dev, "parent", "7e0f:", "classid", "7e0f:1", "htb", "rate", "1tbit", "quantum", "65536")
	tc("qdisc", "add", "dev", dev, "parent", "7e0f:1", "handle", "7e10:", "tbf", "rate", "10gbit", "burst", "1mb", "limit", "100mb")
	tc("qdisc", "add", "dev", dev, "parent", "7e10:1", "handle", "7e11:", "htb", "default", "1")
	for _, number := range numbers {
		class := fmt.Sprintf("%x", number)
		tc("class", "add", "dev", dev, "parent", "7e11:", "classid", "7e11:"+class, "htb", "rate", rate, "burst", "2000", "cburst", "2000")
		tc("qdisc", "add", "dev", dev, "parent", "7e11:"+class, "handle", class+":", "bfifo", "limit", fmt.Sprint(queueBytes))
	}
}
