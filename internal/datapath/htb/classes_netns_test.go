//go:build netns

package htb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Traffic classes on the real kernel: packets say by SO_PRIORITY which leaf they go to,
// as the classifier would. The scheduler's loop runs beside, told what is offered.

// load is one sender: the container's number, its traffic class, and its rate; 0 sends
// more than the link can.
type load struct {
	number       uint16
	kind         sched.TrafficClass
	rateBPS      uint64
	payloadBytes int // 0: of a whole frame
}

// offeredBytes returns what the classifier counts of sent payload.
func (l load) offeredBytes(sentBytes, overheadBytes uint64) uint64 {
	payload := uint64(cmp.Or(l.payloadBytes, traffic.DefaultPayloadBytes))
	return sentBytes / payload * (payload + 42 + overheadBytes)
}

func (l load) String() string {
	name := [...]string{"", " EF", " AF", " BE"}[l.kind]
	if l.rateBPS == 0 {
		return fmt.Sprintf("%d%s too much", l.number, name)
	}
	return fmt.Sprintf("%d%s %.1f Mbit/s", l.number, name, float64(l.rateBPS)/1e6)
}

// traffickers are the senders of a test, and what they offer.
type traffickers struct {
	mu      sync.Mutex
	senders map[load]*traffic.Sender
	voice   *voice
	efBPS   map[uint16]uint64
	minors  map[uint16]sched.Minors
	// overheadBytes is the tree's.
	overheadBytes uint64
}

func (tr *traffickers) OfferedBytes(dst []uint64) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clear(dst)
	for l, s := range tr.senders {
		if int(l.number) < len(dst) {
			dst[l.number] += l.offeredBytes(s.SentBytes(), tr.overheadBytes)
		}
	}
	if tr.voice != nil {
		dst[tr.voice.number] += tr.voice.sentBytes()
	}
	return nil
}
func (tr *traffickers) ArmWakeup() error                             { return nil }
func (tr *traffickers) WokenAt() (none time.Time, _ error)           { return none, nil }
func (tr *traffickers) SetDirect(sched.Bounds, []sched.Direct) error { return nil }
func (tr *traffickers) DirectSent(uint16) (uint64, uint32, error)    { return 0, 0, nil }
func (tr *traffickers) SetMinors(number uint16, minors sched.Minors) error {
	tr.minors[number] = minors
	return nil
}
func (tr *traffickers) SetEFRate(number uint16, bps uint64) error { tr.efBPS[number] = bps; return nil }

// voice sends small packets at a steady rate and sees how long each takes.
type voice struct {
	number   uint16
	out, in  *net.UDPConn
	interval time.Duration
	mu       sync.Mutex
	sent     int
	delays   []time.Duration
	stop     chan struct{}
	done     sync.WaitGroup
}

const voiceBytes = 200 // a G.711 packet of 20 ms with its headers

func (v *voice) sentBytes() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return uint64(v.sent) * voiceBytes
}

// newVoice sends so many bits per second, to a slot of its own.
func newVoice(t *testing.T, b *harness.Bed, number uint16, handle kernel.Handle, bps int) *voice {
	t.Helper()
	target := net.UDPAddrFromAddrPort(b.Target(-1, false))
	v := &voice{number: number, interval: voiceBytes * 8 * time.Second / time.Duration(bps), stop: make(chan struct{})}
	must.Succeed(t, kernel.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		v.in, err = net.ListenUDP("udp4", target)
		return err
	}))
	must.Succeed(t, kernel.InNetNS(b.Host.NetNSPath(), func() (err error) {
		v.out, err = net.DialUDP("udp4", nil, target)
		return err
	}))
	raw, err := v.out.SyscallConn()
	must.Succeed(t, err)
	must.Succeed(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, int(handle))
	}))
	must.Succeed(t, err)
	return v
}

func (v *voice) start() {
	v.done.Go(func() {
		traffic.Urgently(func() {
			packet := make([]byte, 1500)
			for {
				n, err := v.in.Read(packet)
				now := traffic.MonotonicNS()
				if err != nil {
					return
				}
				if n >= 8 {
					v.mu.Lock()
					v.delays = append(v.delays, time.Duration(now-int64(binary.BigEndian.Uint64(packet))))
					v.mu.Unlock()
				}
			}
		})
	})
	v.done.Go(func() {
		traffic.Urgently(func() {
			packet := make([]byte, voiceBytes-42)
			nextNS := traffic.MonotonicNS()
			for {
				select {
				case <-v.stop:
					return
				default:
				}
				traffic.SleepUntil(nextNS)
				nextNS = max(nextNS, traffic.MonotonicNS()-1e6) + v.interval.Nanoseconds()
				binary.BigEndian.PutUint64(packet, uint64(traffic.MonotonicNS()))
				if _, err := v.out.Write(packet); err == nil {
					v.mu.Lock()
					v.sent++
					v.mu.Unlock()
				}
			}
		})
	})
}

// finish ends the call, and says how many packets were sent and what delays were seen.
func (v *voice) finish() (sent int, delays []time.Duration) {
	close(v.stop)
	time.Sleep(100 * time.Millisecond)
	v.in.Close()
	v.done.Wait()
	v.out.Close()
	slices.Sort(v.delays)
	return v.sent, v.delays
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return math.MaxInt64
	}
	return sorted[int(float64(len(sorted)-1)*q)]
}

// usualParts are those of a container that asks for no others.
var usualParts = alloc.ClassParts{EFMax: alloc.Part{Percent: 50}, AFMin: alloc.Part{Percent: 30}}

// divided is a container with traffic classes.
func divided(number uint16, weight uint32, parts alloc.ClassParts) sched.Competitor {
	return sched.Competitor{
		Number: number, Weight: weight, CeilingBPS: alloc.Unlimited, OwnDevices: true,
		Traffic: sched.TrafficClasses{Ordered: true, Parts: parts},
	}
}

func undivided(number uint16, weight uint32) sched.Competitor {
	return sched.Competitor{Number: number, Weight: weight, CeilingBPS: alloc.Unlimited, OwnDevices: true}
}

func classTree(rateBPS uint64, classes ...sched.Competitor) sched.Tree {
	host := sched.Competitor{Number: 1, Weight: 100, CeilingBPS: alloc.Unlimited}
	return sched.Tree{RateBPS: rateBPS, ControlNumber: 2, HostNumber: 1, Competitors: append([]sched.Competitor{host}, classes...)}
}

// newBackend returns a scheduler of a bed's uplink.
func newBackend(t *testing.T, b *harness.Bed) *Backend {
	t.Helper()
	var tc *kernel.TC
	must.Succeed(t, kernel.InNetNS(b.Host.NetNSPath(), func() (err error) {
		tc, err = kernel.OpenTC()
		return err
	}))
	t.Cleanup(func() { tc.Close() })
	return New(tc, b.UplinkIndex())
}

// compete sends all loads until the test ends, each to a slot of its own, and runs the scheduler's loop.
func compete(t *testing.T, b *harness.Bed, backend *Backend, tree sched.Tree, tr *traffickers, loads []load) {
	t.Helper()
	must.Succeed(t, backend.Connect(tree, tr))
	must.Succeed(t, backend.Apply(tree))
	tr.mu.Lock()
	tr.overheadBytes = uint64(tree.OverheadBytes)
	tr.senders = map[load]*traffic.Sender{}
	for slot, one := range loads {
		handle := leafClass(one.number)
		if one.kind != sched.Unclassified {
			handle = trafficClass(one.number, one.kind)
		}
		tr.senders[one] = b.SendFrom(b.Host.NetNSPath(), slot, harness.Load{Protocol: traffic.UDP,
			RateBPS: cmp.Or(one.rateBPS, tree.RateBPS*6/5), PayloadBytes: one.payloadBytes, SocketPriority: uint32(handle)})
	}
	tr.mu.Unlock()
	stop, ended := make(chan struct{}), make(chan error, 1)
	t.Cleanup(func() {
		close(stop)
		must.Succeed(t, <-ended)
	})
	go func() {
		for {
			turn, err := backend.Turn(time.Now(), false)
			if err != nil {
				ended <- err
				return
			}
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(turn.Next):
			}
		}
	}()
}

// deviation returns an error if a rate is not as wanted, to a percent of whole and what pauses of the
// machine explain.
func deviation(what string, gotBPS, wantBPS, wholeBPS float64, linkBPS uint64, m harness.Measurement) error {
	if math.Abs(gotBPS-wantBPS) <= 0.01*wholeBPS+m.Slack*float64(linkBPS) {
		return nil
	}
	return fmt.Errorf("%s has %.3f Mbit/s, want %.3f; CPU: %s", what, gotBPS/1e6, wantBPS/1e6, m.CPU)
}

func newTraffickers() *traffickers {
	return &traffickers{efBPS: map[uint16]uint64{}, minors: map[uint16]sched.Minors{}}
}

// TestClassShares: however a container's traffic is of classes, it and others have what
// they would have without, and within it the parts are kept.
func TestClassShares(t *testing.T) {
	const linkBPS = 20_000_000
	third := float64(linkBPS) * 0.999 / 3
	for _, tc := range []struct {
		name    string
		classes []sched.Competitor
		loads   []load
		want    map[uint16]float64 // of containers
	}{
		{"all classes, all that they can", []sched.Competitor{divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100)},
			[]load{{number: 16, kind: sched.EF, rateBPS: 3.2e6}, {number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}, {number: 17}, {number: 18}},
			map[uint16]float64{16: third, 17: third, 18: third}},
		{"no EF", []sched.Competitor{divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100)},
			[]load{{number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}, {number: 17}, {number: 18}},
			map[uint16]float64{16: third, 17: third, 18: third}},
		{"AF alone", []sched.Competitor{divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100)},
			[]load{{number: 16, kind: sched.AF}, {number: 17}, {number: 18}},
			map[uint16]float64{16: third, 17: third, 18: third}},
		{"BE alone", []sched.Competitor{divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100)},
			[]load{{number: 16, kind: sched.BE}, {number: 17}, {number: 18}},
			map[uint16]float64{16: third, 17: third, 18: third}},
		{"others are idle", []sched.Competitor{divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100), undivided(19, 100)},
			[]load{{number: 16, kind: sched.EF, rateBPS: 7e6}, {number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}, {number: 17, rateBPS: 4e6}},
			map[uint16]float64{16: 16e6, 17: 4e6}},
		{"by weight, everybody with classes", []sched.Competitor{divided(16, 100, usualParts), divided(17, 200, usualParts), divided(18, 300, usualParts)},
			[]load{{number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}, {number: 17, kind: sched.EF, rateBPS: 2e6}, {number: 17, kind: sched.BE}, {number: 18, kind: sched.AF}},
			map[uint16]float64{16: linkBPS * 0.999 / 6, 17: linkBPS * 0.999 / 3, 18: linkBPS * 0.999 / 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{})
			compete(t, b, newBackend(t, b), classTree(linkBPS, tc.classes...), newTraffickers(), tc.loads)
			b.WarmUp()
			b.Check(4*time.Second, func(m harness.Measurement) error {
				var wrong []error
				sums, classes := map[uint16]float64{}, map[sched.TrafficClass]float64{}
				wants := map[sched.TrafficClass]uint64{}
				for slot, one := range tc.loads {
					t.Logf("%-22s %7.3f Mbit/s", one, m.BPS[slot]/1e6)
					sums[one.number] += m.BPS[slot]
					if one.number == 16 {
						classes[one.kind] = m.BPS[slot]
						wants[one.kind] = cmp.Or(one.rateBPS, alloc.Unlimited)
					}
				}
				for number, want := range tc.want {
					wrong = append(wrong, deviation(fmt.Sprintf("container %d", number), sums[number], want, want, linkBPS, m))
				}
				r := usualParts.Of(uint64(tc.want[16]))
				ef, af, be := r.Divide(wants[sched.EF], wants[sched.AF], wants[sched.BE])
				for kind, want := range map[sched.TrafficClass]uint64{sched.EF: ef, sched.AF: af, sched.BE: be} {
					wrong = append(wrong, deviation(fmt.Sprintf("class %d of container 16", kind), classes[kind], float64(want), tc.want[16], linkBPS, m))
				}
				return errors.Join(wrong...)
			})
		})
	}
}

// TestClassDelay: EF that is within its maximum waits for no bulk, its own container's
// or another's, and loses nothing.
func TestClassDelay(t *testing.T) {
	const linkBPS = 100_000_000
	for _, tc := range []struct {
		name  string
		loads []load
	}{
		{"nobody else sends", nil},
		{"its container's AF and BE", []load{{number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}}},
		{"all containers", []load{{number: 16, kind: sched.AF}, {number: 16, kind: sched.BE}, {number: 17}, {number: 18}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{})
			tr := newTraffickers()
			tree := classTree(linkBPS, divided(16, 100, usualParts), undivided(17, 100), undivided(18, 100))
			tr.voice = newVoice(t, b, 16, trafficClass(16, sched.EF), 2_000_000)
			compete(t, b, newBackend(t, b), tree, tr, tc.loads)
			b.WarmUp()
			tr.voice.start()
			m := b.MeasureFor(4 * time.Second)
			sent, delays := tr.voice.finish()
			p50, p99 := quantile(delays, 0.5), quantile(delays, 0.99)
			t.Logf("%d packets, %d lost, delay p50 %v, p99 %v, most %v", sent, sent-len(delays), p50, p99, quantile(delays, 1))
			if (len(delays) != sent || p50 > time.Millisecond) && m.Paused > m.Duration/200 {
				harness.SkipBusy(t, fmt.Sprintf("a processor stood still for %v of %v", m.Paused, m.Duration))
			}
			if len(delays) != sent {
				t.Errorf("%d of %d packets were lost", sent-len(delays), sent)
			}
			// A queue of bulk is longer than this on any machine.
			if p50 > time.Millisecond {
				t.Errorf("the median delay is %v; CPU: %s", p50, m.CPU)
			}
		})
	}
}
