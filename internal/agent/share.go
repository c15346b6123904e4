package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/stats"
)

// share is what one container, or the host class, gets at one uplink.
type share struct {
	*container
	uplink *link

	// admittedBPS is the minimum that is guaranteed; refused says why it is
	// less than what the policy asks for.
	admittedBPS uint64
	refused     error
	// latency is the bound on delay that is in force; refusedLatency says why
	// it is not what the policy asks for.
	latency        time.Duration
	refusedLatency error

	// class is what the scheduler knows of it, as last asked.
	class sched.State
	// active: it was, when the scheduler was last asked.
	active bool

	// cgroupAssigned: the uplink's classifier was told the container's cgroup;
	// cgroupRefused says why it does not know it.
	cgroupAssigned bool
	cgroupRefused  error

	// publishedRefused says why the uplink's classifier does not know all of the
	// ports that the container publishes.
	publishedRefused error

	// assignedClass: the uplink's classifier was told that the packets are of this
	// class, if classAssigned; classRefused says why it does not know it.
	classAssigned bool
	assignedClass sched.TrafficClass
	classRefused  error
	// markAssigned: it was told to write the class into the packets' DSCP field, or
	// (before anything was said of it) not to; markRefused says why it was not.
	markAssigned bool
	markRefused  error

	// What people look at, all measured together.
	measured measured
	totals   stats.Totals
	rate     stats.Rate
	delay    delayWindow
	// seen is what is seen of each traffic class; nil where there are none.
	seen *classesSeen
}

// measured is what is shown of a share beside its totals.
type measured struct {
	backlogBytes uint64
	rateBPS      uint64
	p50, p99     time.Duration
}

// wake makes a share active again that has offered nothing until at.
func (s *share) wake(at time.Time) {
	s.active = true
	s.rate.Resume(at)
	s.delay.start(s)
}

// competitor is the share as the ideal allocation sees it, when it wants all that it
// can get.
func (s *share) competitor() alloc.Container {
	c := s.wanted()
	return alloc.Container{
		Weight: c.Weight, FloorBPS: c.FloorBPS, CeilingBPS: c.CeilingBPS, Priority: c.Priority, DemandBPS: alloc.Unlimited,
	}
}

// wanted is what the scheduler is to do for the share.
func (s *share) wanted() sched.Competitor {
	p := s.policy()
	class := sched.Competitor{
		Number:     s.number,
		FloorBPS:   s.admittedBPS,
		CeilingBPS: p.MaxBPS,
		Weight:     p.Weight,
		Priority:   p.Priority,
		Latency:    s.latency,
		OwnDevices: s.hasOwnDevices(),
		Traffic:    s.traffic(),
	}
	if p.MaxBPS == 0 {
		class.CeilingBPS = alloc.Unlimited
	}
	return class
}

// hasOwnDevices says whether the container sends through devices of its own, which
// can be limited, and not through the host's, which have the uplink's limit.
func (s *share) hasOwnDevices() bool { return s.mode != v1.ModeHost }

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
	if s.number != 0 && s.class.GuaranteedBPS < s.admittedBPS {
		reasons = append(reasons, fmt.Sprintf("minimum %s is cut to %s: the uplink's rate was lowered and the minimums exceed it",
			policy.FormatRate(s.admittedBPS), policy.FormatRateShort(s.class.GuaranteedBPS)))
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
	if complaint := s.publishedComplaint(); complaint != "" {
		reasons = append(reasons, complaint)
	}
	reasons = append(reasons, s.classComplaints()...)
	for _, err := range []error{s.refused, s.refusedLatency} {
		if err != nil {
			rejected = true
			reasons = append(reasons, err.Error())
		}
	}
	return rejected, reasons
}

// hasClass says whether a number has a class at the uplink.
func (u *link) hasClass(number uint16) bool { return u.share(number).number == number }

// count takes in what the kernel counted of a share until now, and what of it
// people see.
func (s *share) count(now time.Time) {
	ledger, counted := &s.uplink.ledger, &s.class.Counters
	ledger.CountSent(s.number, stats.Sent{
		ClassBytes: counted.SentBytes, ClassPackets: counted.SentPackets,
		DirectBytes: counted.DirectBytes, DirectPackets: counted.DirectPackets,
	}, &s.totals)
	if counted.QueueKnown {
		ledger.CountQueue(s.number, stats.Queue{DroppedPackets: counted.DroppedPackets, MarkedPackets: counted.MarkedPackets}, &s.totals)
	}
	s.rate.Observe(now, s.totals.SentBytes)
	s.measured.rateBPS, s.measured.backlogBytes = s.rate.BPS(), s.class.BacklogBytes
	s.countClasses(now)
}

// view is the share as users see it.
func (s *share) view() v1.Share {
	seen := s.measured
	if s.number == 0 { // its last class is gone
		seen = measured{}
	}
	wantedBPS := s.class.DemandBPS
	wantsMore := wantedBPS == alloc.Unlimited
	if wantsMore {
		wantedBPS = 0
	}
	view := v1.Share{
		Uplink:         s.uplink.name,
		Controlled:     s.number != 0,
		AdmittedBPS:    s.admittedBPS,
		LatencyMS:      milliseconds(s.latency),
		WantsMore:      wantsMore,
		WantedBPS:      wantedBPS,
		EntitledBPS:    s.class.EntitledBPS,
		AllocatedBPS:   s.class.AllocatedBPS,
		RateBPS:        seen.rateBPS,
		BacklogBytes:   seen.backlogBytes,
		SentBytes:      s.totals.SentBytes,
		SentPackets:    s.totals.SentPackets,
		DroppedPackets: s.totals.DroppedPackets,
		MarkedPackets:  s.totals.MarkedPackets,
		DelayP50MS:     milliseconds(seen.p50),
		DelayP99MS:     milliseconds(seen.p99),
		MeasuredAt:     s.uplink.measuredAt,
	}
	view.Classes = s.classViews(view)
	return view
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
	w.begin(s.readDelays)
	s.startClassDelays()
}

// turn moves the window on, when a period ended: the median and the 99th
// percentile of the last two are shown.
func (w *delayWindow) turn(s *share) {
	s.measured.p50, s.measured.p99 = w.advance(s.readDelays)
	s.turnClassDelays()
}

// errNoDelays: this kernel cannot measure them.
var errNoDelays = errors.New("delays are not measured")

func (s *share) readDelays(dst *identity.Histogram) error {
	if s.uplink.delays == nil {
		return errNoDelays
	}
	return s.uplink.delays.Read(s.number, dst)
}

// begin begins a window over what read reads.
func (w *delayWindow) begin(read func(*identity.Histogram) error) {
	var now identity.Histogram
	if read(&now) != nil {
		w.older, w.newer = nil, nil
		return
	}
	if w.older == nil {
		w.older, w.newer = new(identity.Histogram), new(identity.Histogram)
	}
	*w.older, *w.newer = now, now
}

// advance moves a window on; both are 0 while nothing was measured.
func (w *delayWindow) advance(read func(*identity.Histogram) error) (p50, p99 time.Duration) {
	if w.older == nil {
		return 0, 0
	}
	seen := *w.older
	w.older, w.newer = w.newer, w.older
	if read(w.newer) != nil {
		w.older, w.newer = nil, nil
		return 0, 0
	}
	window := *w.newer
	window.Sub(&seen)
	return window.Quantile(0.5), window.Quantile(0.99)
}

// rest says that nothing is sent any more.
func (s *share) rest() {
	s.measured = measured{}
	s.restClasses()
}
