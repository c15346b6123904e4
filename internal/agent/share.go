package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/demand"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/stats"
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

	// cgroupAssigned: the uplink's classifier was told the container's cgroup;
	// cgroupRefused says why it does not know it.
	cgroupAssigned bool
	cgroupRefused  error

	// backlogBytes is what is queued, as last asked; the rest was measured
	// together, for people to look at.
	backlogBytes uint64
	measured     measured
	totals       stats.Totals
	rate         stats.Rate
	delay        delayWindow
}

// measured is what is shown of a share beside its totals.
type measured struct {
	backlogBytes uint64
	rateBPS      uint64
	p50, p99     time.Duration
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
	s.rate.Resume(at)
	s.delay.start(s)
}

// expectedBPS is the rate at which the share's demand is looked at: what it can
// always have, or without a weight, which may be nothing, what it has.
func (s *share) expectedBPS() uint64 {
	if s.policy().Weight == 0 {
		return max(s.entitledBPS, s.allocatedBPS)
	}
	return s.entitledBPS
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

// bridgedPast says whether the uplink is a bridge that the container is a port of.
func (s *share) bridgedPast() bool {
	bridge := s.uplink.bridgeIndex
	return bridge != 0 && slices.ContainsFunc(s.attachments, func(at attachment) bool { return at.BridgeIndex == bridge })
}

// complaints are what the user should know of: an uplink that is not shared out,
// and guarantees that are not in force, as they were refused, or cut.
func (s *share) complaints() (rejected bool, reasons []string) {
	if s.uplink.reason != nil && s.mode != v1.ModeNone {
		reasons = append(reasons, s.uplink.reason.Error())
	}
	if s.bridgedPast() {
		reasons = append(reasons, fmt.Sprintf(
			"what it sends to other ports of %[1]s is not controlled, as it does not pass the bridge itself: name the port that leads out as the uplink instead of %[1]s", s.uplink.name))
	}
	if s.number != 0 && s.guaranteedBPS < s.admittedBPS {
		reasons = append(reasons, fmt.Sprintf("minimum %s is cut to %s: the uplink's rate was lowered and the minimums exceed it",
			policy.FormatRate(s.admittedBPS), policy.FormatRateShort(s.guaranteedBPS)))
	}
	if s.cgroupRefused != nil && s.bringsSockets() {
		reasons = append(reasons, "its sockets cannot be told apart: "+s.cgroupRefused.Error())
	}
	if s.number != 0 && len(s.uplink.followers) > 0 {
		reasons = append(reasons, fmt.Sprintf("%s at egress of %s comes after Weir's and may change whose class packets are in: remove it, or attach it elsewhere",
			strings.Join(s.uplink.followers, ", "), s.uplink.name))
	}
	if s.isRouted() && s.uplink.tunnels != nil {
		reasons = append(reasons, "what it sends through a tunnel is counted as the host's: "+s.uplink.tunnels.Error())
	}
	for _, err := range []error{s.refused, s.refusedLatency} {
		if err != nil {
			rejected = true
			reasons = append(reasons, err.Error())
		}
	}
	return rejected, reasons
}

// hasClass says whether a number has a class at the uplink.
func (u *uplink) hasClass(number uint16) bool { return u.share(number).number == number }

// count takes in what the kernel's counters say of a share at now, and what of
// it people see.
func (s *share) count(now time.Time, read sched.Stats, drops map[uint16]uint32) error {
	directBytes, directPackets, err := s.uplink.classifier.DirectSent(s.number)
	if err != nil {
		return err
	}
	ledger := &s.uplink.ledger
	ledger.CountSent(s.number, stats.Sent{
		ClassBytes: read.SentBytes, ClassPackets: read.SentPackets, DirectBytes: directBytes, DirectPackets: directPackets,
	}, &s.totals)
	if dropped, known := drops[s.number]; known {
		ledger.CountDropped(s.number, dropped, &s.totals)
	}
	s.rate.Observe(now, s.totals.SentBytes)
	s.measured.rateBPS, s.measured.backlogBytes = s.rate.BPS(), read.BacklogBytes
	return nil
}

// view is the share as users see it.
func (s *share) view() v1.Share {
	seen := s.measured
	if s.number == 0 { // its last class is gone
		seen = measured{}
	}
	wantedBPS := s.demand.SteadyBPS()
	wantsMore := wantedBPS == alloc.Unlimited
	if wantsMore {
		wantedBPS = 0
	}
	return v1.Share{
		Uplink:         s.uplink.name,
		Controlled:     s.number != 0,
		AdmittedBPS:    s.admittedBPS,
		LatencyMS:      milliseconds(s.latency),
		WantsMore:      wantsMore,
		WantedBPS:      wantedBPS,
		EntitledBPS:    s.entitledBPS,
		AllocatedBPS:   s.allocatedBPS,
		RateBPS:        seen.rateBPS,
		BacklogBytes:   seen.backlogBytes,
		SentBytes:      s.totals.SentBytes,
		SentPackets:    s.totals.SentPackets,
		DroppedPackets: s.totals.DroppedPackets,
		DelayP50MS:     milliseconds(seen.p50),
		DelayP99MS:     milliseconds(seen.p99),
		MeasuredAt:     s.uplink.measuredAt,
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// delayWindow is how long packets waited in the last two periods in which that
// was measured (delayTurns): the kernel counts since ever, and what it had
// counted before is taken away.
type delayWindow struct {
	older, newer *identity.Histogram
}

// start begins a window: what was counted before is not of it.
func (w *delayWindow) start(s *share) {
	s.measured.p50, s.measured.p99 = 0, 0
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

// turn moves the window on, when a period ended: the median and the 99th
// percentile of the last two are shown.
func (w *delayWindow) turn(s *share) {
	if w.older == nil {
		return
	}
	seen := *w.older
	w.older, w.newer = w.newer, w.older
	if s.uplink.delays == nil || s.uplink.delays.Read(s.number, w.newer) != nil {
		w.older, w.newer = nil, nil
		s.measured.p50, s.measured.p99 = 0, 0
		return
	}
	window := *w.newer
	window.Sub(&seen)
	s.measured.p50, s.measured.p99 = window.Quantile(0.5), window.Quantile(0.99)
}

// rest says that nothing is sent any more.
func (s *share) rest() {
	s.active = false
	s.measured = measured{}
}
