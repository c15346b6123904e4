package agent

import (
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/demand"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// share is what one container, or the host class, gets at one uplink.
type share struct {
	*container
	uplink *uplink

	// admittedBPS is the minimum that is guaranteed; refused says why it is
	// less than what the policy asks for.
	admittedBPS uint64
	refused     error
	// latency is the bound on delay that is in force; refusedLatency says why
	// it is not what the policy asks for.
	latency        time.Duration
	refusedLatency error

	demand demand.Meter
	// active: it sent something lately, or has something queued.
	active bool
	// entitledBPS is what it can always have, guaranteedBPS what of that the
	// scheduler holds by itself, allocatedBPS what it may send now.
	entitledBPS   uint64
	guaranteedBPS uint64
	allocatedBPS  uint64

	// cgroupTied: the uplink's classifier was told the container's cgroup.
	cgroupTied bool

	counters sched.Stats
	// sentBytes is what went through its class and what went direct.
	sentBytes uint64
	rate      rateMeter
	delay     delayWindow
}

// addShares gives a container its share of every uplink.
func (a *Agent) addShares(c *container) {
	for _, u := range a.uplinks {
		s := &share{container: c, uplink: u}
		c.shares = append(c.shares, s)
		if c == a.host {
			u.host = s
		}
	}
}

// wake makes a share active again that has offered nothing until at.
func (s *share) wake(at time.Time) {
	s.active = true
	s.demand.Resume(at)
	s.rate.resume(at)
	s.delay.start(s)
}

// competitor is the share as the ideal allocation sees it, with a demand of
// demandBPS.
func (s *share) competitor(demandBPS uint64) alloc.Container {
	p := s.policy()
	return alloc.Container{
		Weight:     p.Weight,
		FloorBPS:   s.admittedBPS,
		CeilingBPS: ceilingBPS(p),
		Priority:   p.Priority,
		DemandBPS:  demandBPS,
	}
}

func ceilingBPS(p v1.Policy) uint64 {
	if p.MaxBPS == 0 {
		return alloc.Unlimited
	}
	return p.MaxBPS
}

// guaranteeSteps: guarantees are cut to steps of that part of themselves, and
// stay while they are at most two steps too low, so that a container that comes
// or goes among a thousand does not change all of them in the kernel. The
// allocation makes up for it while anybody looks after that.
const guaranteeSteps = 256

// guarantee takes what the entitlement allows the scheduler to guarantee.
func (s *share) guarantee(bps uint64) {
	floor := min(s.admittedBPS, bps)
	if s.guaranteedBPS <= bps && s.guaranteedBPS >= max(floor, bps-2*(bps/guaranteeSteps)) {
		return
	}
	step := uint64(1)
	for step*2*guaranteeSteps <= bps {
		step *= 2
	}
	s.guaranteedBPS = max(bps/step*step, floor)
}

func (s *share) class() sched.Class {
	p := s.policy()
	return sched.Class{
		Number:        s.number,
		GuaranteedBPS: s.guaranteedBPS,
		AllocatedBPS:  s.allocatedBPS,
		CeilingBPS:    ceilingBPS(p),
		Weight:        p.Weight,
		Priority:      p.Priority,
		Latency:       s.latency,
		PacketBytes:   s.packetBytes(),
	}
}

// packetBytes is what the container's devices are limited to for this uplink; 0
// where it sends through the host's, which have the uplink's limit.
func (s *share) packetBytes() uint32 {
	if s.mode == v1.ModeHost {
		return 0
	}
	return sched.MaxPacketBytes(min(s.uplink.rateBPS, ceilingBPS(s.policy())), s.entitledBPS)
}

// complaints are what the user should know of: an uplink that is not shared out,
// and guarantees that are not in force, as they were refused, or cut.
func (s *share) complaints() (rejected bool, reasons []string) {
	if s.uplink.reason != nil && s.mode != v1.ModeNone {
		reasons = append(reasons, s.uplink.reason.Error())
	}
	if s.number != 0 && s.guaranteedBPS < s.admittedBPS {
		reasons = append(reasons, fmt.Sprintf("minimum %s is cut to %s: the uplink's rate was lowered and the minimums exceed it",
			policy.FormatRate(s.admittedBPS), policy.FormatRateShort(s.guaranteedBPS)))
	}
	for _, err := range []error{s.refused, s.refusedLatency} {
		if err != nil {
			rejected = true
			reasons = append(reasons, err.Error())
		}
	}
	return rejected, reasons
}

// view is the share as users see it.
func (s *share) view() v1.Share {
	p50, p99 := s.delay.quantiles(s)
	return v1.Share{
		Uplink:         s.uplink.name,
		EntitledBPS:    s.entitledBPS,
		AllocatedBPS:   s.allocatedBPS,
		RateBPS:        s.rate.bps(),
		BacklogBytes:   s.counters.BacklogBytes,
		SentBytes:      s.sentBytes,
		DroppedPackets: s.uplink.drops[s.number],
		DelayP50MS:     milliseconds(p50),
		DelayP99MS:     milliseconds(p99),
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// rateMeter is what a class sent in the last second.
type rateMeter struct {
	samples []sentSample
}

type sentSample struct {
	at    time.Time
	bytes uint64
}

func (m *rateMeter) observe(now time.Time, bytes uint64) {
	m.samples = append(m.samples, sentSample{now, bytes})
	first := 0
	for first+1 < len(m.samples) && now.Sub(m.samples[first+1].at) >= time.Second {
		first++
	}
	m.samples = append(m.samples[:0], m.samples[first:]...)
}

// resume says that nothing was sent from the last sample until at.
func (m *rateMeter) resume(at time.Time) {
	if n := len(m.samples); n > 0 {
		m.samples = append(m.samples[:0], sentSample{at, m.samples[n-1].bytes})
	}
}

// bps is the mean rate over the last second, in bits per second.
func (m *rateMeter) bps() uint64 {
	if len(m.samples) < 2 {
		return 0
	}
	oldest, newest := m.samples[0], m.samples[len(m.samples)-1]
	elapsed := newest.at.Sub(oldest.at)
	if elapsed <= 0 || newest.bytes < oldest.bytes {
		return 0
	}
	// A container that is younger than a second has sent nothing before.
	elapsed = max(elapsed, time.Second)
	return uint64(float64(newest.bytes-oldest.bytes) * 8 / elapsed.Seconds())
}

// delayWindow is how long packets waited in the last one to two periods in which
// that was measured (delayTurns): the kernel counts since ever, and what it had
// counted before is taken away.
type delayWindow struct {
	older, newer *identity.Histogram
}

// start begins a window: what was counted before is not of it.
func (w *delayWindow) start(s *share) {
	if s.uplink.delays == nil {
		return
	}
	if w.older == nil {
		w.older, w.newer = new(identity.Histogram), new(identity.Histogram)
	}
	if s.uplink.delays.Read(s.number, w.newer) != nil {
		w.older, w.newer = nil, nil
		return
	}
	*w.older = *w.newer
}

// turn moves the window on, when a period ended.
func (w *delayWindow) turn(s *share) {
	if w.older == nil {
		return
	}
	w.older, w.newer = w.newer, w.older
	if s.uplink.delays.Read(s.number, w.newer) != nil {
		w.older, w.newer = nil, nil
	}
}

// quantiles are the median and the 99th percentile; 0 while nothing is sent.
func (w *delayWindow) quantiles(s *share) (p50, p99 time.Duration) {
	if !s.active || w.older == nil || s.uplink.delays == nil {
		return 0, 0
	}
	var now identity.Histogram
	if s.uplink.delays.Read(s.number, &now) != nil {
		return 0, 0
	}
	now.Sub(w.older)
	return now.Quantile(0.5), now.Quantile(0.99)
}
