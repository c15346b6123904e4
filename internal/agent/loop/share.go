package loop

import (
	"errors"
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// share is the part of one container, or of the host class, at one uplink.
type share struct {
	container *container
	uplink    *link

	// admittedBPS is the guaranteed minimum; refused is the reason if that is less than the policy
	// asks for.
	admittedBPS uint64
	refused     error
	// latency is the delay bound in force; refusedLatency is the reason if that is not the
	// policy's.
	latency        time.Duration
	refusedLatency error

	// class is the scheduler's state of the share at the last query.
	class sched.State
	// active: the share was active at the last query.
	active bool

	// Values for users, all measured at one moment.
	measured measured
	totals   stats.Totals
	rate     stats.Rate
	delay    delayWindow
	// seen holds the counters of traffic classes; nil if the share has none.
	seen *classesSeen
}

// measured holds the values shown of a share beside its totals.
type measured struct {
	backlogBytes uint64
	rateBPS      uint64
	p50, p99     time.Duration
}

// wake makes a share active again that had offered nothing until at.
func (s *share) wake(at time.Time) {
	s.active = true
	s.rate.Resume(at)
	s.delay.start(s)
}

// competitor returns the share as input of the ideal allocation, with unlimited demand.
func (s *share) competitor() alloc.Container {
	c := s.wanted()
	return alloc.Container{
		Weight: c.Weight, FloorBPS: c.FloorBPS, CeilingBPS: c.CeilingBPS, Priority: c.Priority, DemandBPS: alloc.Unlimited,
	}
}

// wanted returns the scheduler's instructions for the share.
func (s *share) wanted() sched.Competitor {
	p := s.policy()
	class := sched.Competitor{
		Number:     s.container.Number,
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

// policy returns the policy of the container for the share's direction.
func (s *share) policy() v1.Policy {
	if s.uplink.of != nil {
		return s.container.resolved.In
	}
	return s.container.policy()
}

// hasOwnDevices reports whether the container sends through its own devices, whose packet size can
// be limited. Host-mode containers use the host's devices, which have the uplink's limit; what comes
// in is sent elsewhere.
func (s *share) hasOwnDevices() bool {
	return s.uplink.of == nil && s.container.Mode != v1.ModeHost
}

// complaints lists the problems to show to the user: an uplink that is not shared, and guarantees
// that were refused or cut.
func (s *share) complaints() (rejected bool, reasons []string) {
	if s.uplink.device.Problem() != nil && s.container.Mode != v1.ModeNone {
		reasons = append(reasons, s.uplink.device.Problem().Error())
	}
	if s.container.Number != 0 && s.class.GuaranteedBPS < s.admittedBPS {
		reasons = append(reasons, fmt.Sprintf("minimum %s is cut to %s: all minimums together exceed the uplink's rate less the reserve, since one of these was changed",
			policy.FormatRate(s.admittedBPS), policy.FormatRateShort(s.class.GuaranteedBPS)))
	}
	reasons = append(reasons, s.uplink.attached.Complaints(&s.container.Container)...)
	reasons = append(reasons, s.classComplaints()...)
	for _, err := range []error{s.refused, s.refusedLatency} {
		if err != nil {
			rejected = true
			reasons = append(reasons, err.Error())
		}
	}
	return rejected, reasons
}

// hasClass reports whether a number has a class at the uplink.
func (u *link) hasClass(number uint16) bool { return u.share(number).container.Number == number }

// count adds the kernel's current counters of a share, for users.
func (s *share) count(now time.Time) {
	ledger, counted := &s.uplink.ledger, &s.class.Counters
	ledger.CountSent(s.container.Number, stats.Sent{
		ClassBytes: counted.SentBytes, ClassPackets: counted.SentPackets,
		DirectBytes: counted.DirectBytes, DirectPackets: counted.DirectPackets,
	}, &s.totals)
	if counted.QueueKnown {
		ledger.CountQueue(s.container.Number, stats.Queue{DroppedPackets: counted.DroppedPackets, MarkedPackets: counted.MarkedPackets}, &s.totals)
	}
	s.rate.Observe(now, s.totals.SentBytes)
	s.measured.rateBPS, s.measured.backlogBytes = s.rate.BPS(), s.class.BacklogBytes
	s.countClasses(now)
}

// view returns the share for the API.
func (s *share) view() v1.Share {
	seen := s.measured
	if s.container.Number == 0 { // its last class is gone
		seen = measured{}
	}
	wantedBPS := s.class.DemandBPS
	wantsMore := wantedBPS == alloc.Unlimited
	if wantsMore {
		wantedBPS = 0
	}
	controlled := s.container.Number != 0 && s.uplink.installed()
	entitledBPS, allocatedBPS, heldBackBPS := s.class.EntitledBPS, s.class.AllocatedBPS, s.class.HeldBackBPS
	if !controlled { // what it would have, were the uplink shared
		entitledBPS, allocatedBPS, heldBackBPS = 0, 0, 0
	}
	view := v1.Share{
		Uplink:         s.uplink.name(),
		Controlled:     controlled,
		AdmittedBPS:    s.admittedBPS,
		LatencyMS:      milliseconds(s.latency),
		WantsMore:      wantsMore,
		WantedBPS:      wantedBPS,
		EntitledBPS:    entitledBPS,
		AllocatedBPS:   allocatedBPS,
		HeldBackBPS:    heldBackBPS,
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

// delayWindow computes queueing delays over the last two measured periods (delayTurns). It
// subtracts earlier readings, because the kernel's counters never restart.
type delayWindow struct {
	older, newer *identity.Histogram
}

// start begins a window; earlier delays do not count.
func (w *delayWindow) start(s *share) {
	s.measured.p50, s.measured.p99 = 0, 0
	w.begin(s.readDelays)
	s.startClassDelays()
}

// turn advances the window at the end of a period, and stores the median and the 99th percentile of
// the last two periods. A window that was forgotten, or whose last reading failed, begins again.
func (w *delayWindow) turn(s *share) {
	if w.older == nil {
		if s.active {
			w.start(s)
		}
		return
	}
	s.measured.p50, s.measured.p99 = w.advance(s.readDelays)
	s.turnClassDelays()
}

// errNoDelays: this kernel cannot measure delays.
var errNoDelays = errors.New("delays are not measured")

func (s *share) readDelays(dst *identity.Histogram) error {
	if s.uplink.device.Delays() == nil {
		return errNoDelays
	}
	return s.uplink.device.Delays().Read(s.container.Number, dst)
}

// begin begins a window over the histograms that read returns.
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

// advance advances a window and returns its percentiles; both are 0 while nothing was measured.
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

// rest resets all rates: the share sends nothing any more.
func (s *share) rest() {
	s.measured = measured{}
	s.restClasses()
}
