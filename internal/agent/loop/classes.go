package loop

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// Traffic classes: which class a container's packets have (for the classifier), in what order the
// classes are sent (for the scheduler), and the counters of each. internal/share/alloc divides a
// share among them; internal/datapath/htb puts the division into force.

// trafficClasses are the classes that a share is divided among.
var trafficClasses = [...]sched.TrafficClass{sched.EF, sched.AF, sched.BE}

// trafficClass returns the traffic class that a policy gives to all packets of a container.
func trafficClass(class v1.Class) sched.TrafficClass {
	if class == v1.ClassAuto {
		return identity.ClassAuto
	}
	of, _ := sched.ParseTrafficClass(string(class))
	return of
}

// ordered reports whether the share is divided into traffic classes. A container that is AF or BE
// as a whole is not divided, as classes only divide one container's share; neither is the host's
// traffic.
func (s *share) ordered() bool {
	class := s.container.policy().Class
	return s.container.Number >= identity.NumberFirst && (class == v1.ClassEF || class == v1.ClassAuto)
}

// traffic returns the traffic classes of the share for the scheduler.
func (s *share) traffic() sched.TrafficClasses {
	if !s.ordered() {
		return sched.TrafficClasses{}
	}
	p := s.container.policy()
	return sched.TrafficClasses{Ordered: true, Parts: alloc.ClassParts{EFMax: alloc.Part(p.EFMax), AFMin: alloc.Part(p.AFMin)}}
}

// classComplaints lists which class settings of the policy are not in force.
func (s *share) classComplaints() (reasons []string) {
	p, refusal := s.policy(), s.uplink.attached.Refusal(&s.container.Container)
	switch {
	case p.Class == v1.ClassNone:
		return nil
	case s.container.Number == identity.NumberHost:
		return []string{"the host's class is not in force: only the traffic of containers is divided into classes"}
	case s.container.Number == 0:
		return nil // another complaint covers uncontrolled containers
	case refusal.Class != nil:
		return []string{"weir.class is not in force: " + refusal.Class.Error()}
	case refusal.Mark != nil:
		return []string{"weir.dscp is not in force: " + refusal.Mark.Error()}
	case !s.ordered():
		return nil
	}
	entitled := s.class.EntitledBPS
	if entitled == 0 {
		return nil
	}
	parts := s.traffic().Parts
	if rates := parts.Of(entitled); parts.AFMin.BPS > rates.AFBPS {
		reasons = append(reasons, fmt.Sprintf("the minimum of AF %s is cut to %s: it is entitled to %s, of which EF may have %s",
			policy.FormatRate(parts.AFMin.BPS), policy.FormatRateShort(rates.AFBPS), policy.FormatRateShort(entitled), policy.FormatRateShort(rates.EFBPS)))
	}
	return reasons
}

// classesSeen holds the counters of a share's traffic classes, and of its EF traffic above the
// maximum.
type classesSeen struct {
	of [sched.NumTrafficClasses]struct {
		totals       stats.Totals
		rate         stats.Rate
		delay        delayWindow
		backlogBytes uint64
		p50, p99     time.Duration
	}
	excess excess
}

// ledgerKey returns the key of a number's traffic class in a ledger.
func ledgerKey(number uint16, class sched.TrafficClass) uint16 {
	return uint16(class)<<numberBits | number
}

// numberBits is the width of a container number.
const numberBits = 12

var _ = [1]int{}[identity.NumberLast>>numberBits] // numbers fit that width

// hasClasses reports whether a ledgerKey belongs to a share that is divided into classes.
func (u *link) hasClasses(key uint16) bool {
	number := key & (1<<numberBits - 1)
	s := u.share(number)
	return s.container.Number == number && s.ordered()
}

// countClasses adds the kernel's current counters of each class.
func (s *share) countClasses(now time.Time) {
	if !s.ordered() {
		s.seen = nil
		return
	}
	if s.seen == nil {
		s.seen = new(classesSeen)
		s.startClassDelays()
	}
	ledger := &s.uplink.classLedger
	for _, class := range trafficClasses {
		seen, counted, key := &s.seen.of[class], &s.class.Traffic[class], ledgerKey(s.container.Number, class)
		ledger.CountSent(key, stats.Sent{ClassBytes: counted.SentBytes, ClassPackets: counted.SentPackets}, &seen.totals)
		if s.class.Counters.QueueKnown {
			ledger.CountQueue(key, stats.Queue{DroppedPackets: counted.DroppedPackets, MarkedPackets: counted.MarkedPackets}, &seen.totals)
		}
		seen.rate.Observe(now, seen.totals.SentBytes)
		seen.backlogBytes = counted.BacklogBytes
	}
	s.countExcess(now)
}

// classViews returns the share's traffic classes for the API.
func (s *share) classViews(all v1.Share) []v1.ClassShare {
	class := s.container.policy().Class
	if s.container.Number < identity.NumberFirst || class == v1.ClassNone {
		return nil
	}
	if !s.ordered() { // all traffic has one class
		return []v1.ClassShare{{
			Class: class, RateBPS: all.RateBPS, BacklogBytes: all.BacklogBytes, SentBytes: all.SentBytes, SentPackets: all.SentPackets,
			DroppedPackets: all.DroppedPackets, MarkedPackets: all.MarkedPackets, DelayP50MS: all.DelayP50MS, DelayP99MS: all.DelayP99MS,
		}}
	}
	rates := s.traffic().Parts.Of(s.class.MayHaveBPS())
	var views []v1.ClassShare
	for _, class := range trafficClasses {
		view := v1.ClassShare{Class: v1.Class(class.String())}
		switch class {
		case sched.EF:
			view.MaxBPS = rates.EFBPS
		case sched.AF:
			view.MinBPS = rates.AFBPS
		}
		if s.seen != nil {
			seen := &s.seen.of[class]
			view.RateBPS, view.BacklogBytes = seen.rate.BPS(), seen.backlogBytes
			view.SentBytes, view.SentPackets = seen.totals.SentBytes, seen.totals.SentPackets
			view.DroppedPackets, view.MarkedPackets = seen.totals.DroppedPackets, seen.totals.MarkedPackets
			view.DelayP50MS, view.DelayP99MS = milliseconds(seen.p50), milliseconds(seen.p99)
			if class == sched.EF {
				s.showExcess(&view)
			}
		}
		views = append(views, view)
	}
	return views
}

// addClasses adds the traffic class counters of one uplink to the sums.
func addClasses(sums []v1.ClassShare, at []v1.ClassShare) []v1.ClassShare {
	for _, c := range at {
		i := slices.IndexFunc(sums, func(sum v1.ClassShare) bool { return sum.Class == c.Class })
		if i < 0 {
			sums = append(sums, c)
			continue
		}
		sum := &sums[i]
		sum.MaxBPS += c.MaxBPS
		sum.MinBPS += c.MinBPS
		sum.RateBPS += c.RateBPS
		sum.BacklogBytes += c.BacklogBytes
		sum.ExcessBPS += c.ExcessBPS
		sum.ExcessBytes += c.ExcessBytes
		sum.Held = sum.Held || c.Held
		sum.SentBytes += c.SentBytes
		sum.SentPackets += c.SentPackets
		sum.DroppedPackets += c.DroppedPackets
		sum.MarkedPackets += c.MarkedPackets
		sum.DelayP50MS = max(sum.DelayP50MS, c.DelayP50MS)
		sum.DelayP99MS = max(sum.DelayP99MS, c.DelayP99MS)
	}
	return sums
}

// startClassDelays and turnClassDelays start and advance the delay windows of all classes, as start
// and turn of delayWindow do for the whole share.
func (s *share) startClassDelays() {
	if s.seen == nil {
		return
	}
	for _, class := range trafficClasses {
		seen := &s.seen.of[class]
		seen.p50, seen.p99 = 0, 0
		seen.delay.begin(s.classDelays(class))
	}
}

func (s *share) turnClassDelays() {
	if s.seen == nil {
		return
	}
	for _, class := range trafficClasses {
		seen := &s.seen.of[class]
		seen.p50, seen.p99 = seen.delay.advance(s.classDelays(class))
	}
}

func (s *share) forgetClassDelays() {
	if s.seen == nil {
		return
	}
	for i := range s.seen.of {
		s.seen.of[i].delay = delayWindow{}
	}
}

// classDelays returns a function that reads the delays of one class.
func (s *share) classDelays(class sched.TrafficClass) func(*identity.Histogram) error {
	return func(dst *identity.Histogram) error {
		if s.uplink.device.Delays() == nil {
			return errNoDelays
		}
		return s.uplink.device.Delays().ReadClass(s.container.Number, class, dst)
	}
}

// restClasses resets the rates of all classes: the share sends nothing any more.
func (s *share) restClasses() {
	if s.seen == nil {
		return
	}
	for i := range s.seen.of {
		seen := &s.seen.of[i]
		seen.rate, seen.backlogBytes, seen.p50, seen.p99 = stats.Rate{}, 0, 0, 0
	}
	s.restExcess()
}
