package agent

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/stats"
)

// Traffic classes: of which class a container's packets are, which the classifier is
// told, in what order they go, which the scheduler is told, and what is seen of each.
// How a share is divided among them is in internal/alloc, how that is put into force
// in internal/sched/htb.

// trafficClasses are those that a share is divided among.
var trafficClasses = [...]sched.TrafficClass{sched.EF, sched.AF, sched.BE}

// trafficClass is what a policy's class makes all packets of a container.
func trafficClass(class v1.Class) sched.TrafficClass {
	if class == v1.ClassAuto {
		return identity.ClassAuto
	}
	of, _ := sched.ParseTrafficClass(string(class))
	return of
}

// ordered says whether packets of the share have an order among themselves. Those of a
// container that is AF or BE as a whole are all alike: classes divide one container's
// share. The host's traffic is not divided.
func (s *share) ordered() bool {
	class := s.policy().Class
	return s.number >= identity.NumberFirst && (class == v1.ClassEF || class == v1.ClassAuto)
}

// traffic is what the scheduler is to do for the share's classes.
func (s *share) traffic() sched.TrafficClasses {
	if !s.ordered() {
		return sched.TrafficClasses{}
	}
	p := s.policy()
	return sched.TrafficClasses{Ordered: true, Parts: alloc.ClassParts{EFMax: alloc.Part(p.EFMax), AFMin: alloc.Part(p.AFMin)}}
}

// assignClasses makes the classifier of an uplink know of which class containers'
// packets are.
func (a *Agent) assignClasses(u *link) {
	if !u.installed() {
		return
	}
	for _, s := range u.controlled {
		want, mark := trafficClass(s.policy().Class), policy.MarksDSCP(s.policy())
		if s.classAssigned && s.classRefused == nil && s.markRefused == nil && s.assignedClass == want && s.markAssigned == mark {
			continue
		}
		s.markRefused, s.markAssigned = u.classifier.SetMarkDSCP(s.number, mark), mark
		s.classRefused = u.classifier.SetTrafficClass(s.number, want)
		s.classAssigned, s.assignedClass = true, want
		if s.classRefused != nil {
			a.log.Debug("assign a traffic class", "name", s.Name, "error", s.classRefused)
		}
	}
}

// classComplaints say what of the policy's classes is not in force.
func (s *share) classComplaints() (reasons []string) {
	p := s.policy()
	switch {
	case p.Class == v1.ClassNone:
		return nil
	case s.number == identity.NumberHost:
		return []string{"the host's class is not in force: only the traffic of containers is divided into classes"}
	case s.number == 0:
		return nil // why it is not controlled is said elsewhere
	case s.classRefused != nil:
		return []string{"weir.class is not in force: " + s.classRefused.Error()}
	case s.markRefused != nil:
		return []string{"weir.dscp is not in force: " + s.markRefused.Error()}
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

// classesSeen is what is seen of a share's traffic classes, by class, and of EF that
// was too much.
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

// ledgerKey is a traffic class of a number among the numbers of a ledger.
func ledgerKey(number uint16, class sched.TrafficClass) uint16 {
	return uint16(class)<<numberBits | number
}

// numberBits are those of a container's number.
const numberBits = 12

var _ = [1]int{}[identity.NumberLast>>numberBits] // it has no more

// hasClasses says whether a ledgerKey is of a share whose traffic is divided.
func (u *link) hasClasses(key uint16) bool {
	number := key & (1<<numberBits - 1)
	s := u.share(number)
	return s.number == number && s.ordered()
}

// countClasses takes in what the kernel counted of each class until now.
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
		seen, counted, key := &s.seen.of[class], &s.class.Traffic[class], ledgerKey(s.number, class)
		ledger.CountSent(key, stats.Sent{ClassBytes: counted.SentBytes, ClassPackets: counted.SentPackets}, &seen.totals)
		if s.class.Counters.QueueKnown {
			ledger.CountQueue(key, stats.Queue{DroppedPackets: counted.DroppedPackets, MarkedPackets: counted.MarkedPackets}, &seen.totals)
		}
		seen.rate.Observe(now, seen.totals.SentBytes)
		seen.backlogBytes = counted.BacklogBytes
	}
	s.countExcess(now)
}

// classViews are the share's traffic classes as users see them.
func (s *share) classViews(all v1.Share) []v1.ClassShare {
	class := s.policy().Class
	if s.number < identity.NumberFirst || class == v1.ClassNone {
		return nil
	}
	if !s.ordered() { // all of it is of one class
		return []v1.ClassShare{{
			Class: class, RateBPS: all.RateBPS, BacklogBytes: all.BacklogBytes, SentBytes: all.SentBytes, SentPackets: all.SentPackets,
			DroppedPackets: all.DroppedPackets, MarkedPackets: all.MarkedPackets, DelayP50MS: all.DelayP50MS, DelayP99MS: all.DelayP99MS,
		}}
	}
	rates := s.traffic().Parts.Of(max(s.class.AllocatedBPS, s.class.EntitledBPS))
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

// addClasses adds what is seen of traffic classes at one uplink to what was at others.
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

// startClassDelays and turnClassDelays are for each class what delayWindow's start and
// turn are for all.
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

// classDelays reads those of one class.
func (s *share) classDelays(class sched.TrafficClass) func(*identity.Histogram) error {
	return func(dst *identity.Histogram) error {
		if s.uplink.delays == nil {
			return errNoDelays
		}
		return s.uplink.delays.ReadClass(s.number, class, dst)
	}
}

// restClasses says that nothing is sent any more.
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
