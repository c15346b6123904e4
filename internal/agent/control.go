package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/sched"
)

// hostReserveDivisor is the part of the uplink that the host class can always
// have, like the part that control traffic has: what a host without heavy
// traffic of its own needs (name look-ups, an ssh session). It competes as a
// container does, by its policy, only while it wants more than that; so an
// idle host does not lower what containers are entitled to.
const hostReserveDivisor = 100

// significantDivisor: an allocation that changes by less than this part of
// itself is left as it is.
const significantDivisor = 500

// reconcile brings classes, minimums and veths in line with who is running.
func (a *Agent) reconcile() {
	a.plan()
	if !a.uplink.lost() {
		a.apply()
		a.tie()
	}
	if err := a.save(); err != nil {
		a.log.Error("keep the agent's state", "error", err)
	}
}

// plan computes who gets what.
func (a *Agent) plan() {
	a.controlled = a.registry.controlled()
	a.participants = append(slices.Clone(a.controlled), a.host)
	a.admit()
	a.entitle()
	a.allocate(true)
}

// apply brings the scheduler to the plan. A failure is not the end: it is
// shown, and check tries again.
func (a *Agent) apply() {
	err := a.uplink.backend.Apply(a.tree())
	if err != nil && a.uplink.reason == nil {
		a.log.Error("set up the scheduler", "uplink", a.uplink.name, "error", err)
	}
	a.uplink.reason = err
	if err != nil {
		// Perhaps the device is gone.
		a.uplinkMayHaveChanged()
	}
}

// admission is the rule for minimums on this uplink. The host class's own
// minimum comes out of the same budget.
func (a *Agent) admission() alloc.Admission {
	return alloc.Admission{CapacityBPS: a.uplink.rateBPS, ReserveBPS: a.reserveBPS()}
}

func (a *Agent) reserveBPS() uint64 {
	return a.uplink.rateBPS / 10_000 * uint64(a.config.ReserveBasisPoints)
}

// admit decides which minimums are guaranteed. What is admitted stays; who
// was refused is asked again in order of start.
func (a *Agent) admit() {
	a.admitHost()
	total := a.host.admittedBPS
	for _, c := range a.registry.byKey {
		if c.number == 0 {
			c.admittedBPS = 0
		}
		// A lower minimum needs no one's leave.
		c.admittedBPS = min(c.admittedBPS, c.policy().MinBPS)
		c.refused = nil
		total += c.admittedBPS
	}
	for _, c := range a.registry.all() {
		asked := c.policy().MinBPS
		if c.number == 0 || asked <= c.admittedBPS {
			continue
		}
		if err := a.admission().Admit(total-c.admittedBPS, c.admittedBPS, asked); err != nil {
			c.refused = err
			continue
		}
		total += asked - c.admittedBPS
		c.admittedBPS = asked
	}
}

// admitHost guarantees the host class's own minimum before all others, if the
// uplink has that much.
func (a *Agent) admitHost() {
	asked := a.host.policy().MinBPS
	if a.host.refused = a.admission().Admit(0, 0, asked); a.host.refused != nil {
		asked = 0
	}
	a.host.admittedBPS = asked
}

// hostCompetes says whether the host class wants more than its reserve.
func (a *Agent) hostCompetes() bool {
	return a.host.demand.demandBPS > a.hostReserveBPS()
}

func (a *Agent) hostReserveBPS() uint64 {
	return max(a.uplink.rateBPS/hostReserveDivisor, a.host.admittedBPS)
}

// entitle computes what everybody can always have.
func (a *Agent) entitle() {
	capacity := a.uplink.rateBPS
	// The kernel's guarantees leave room for control traffic and the host's
	// reserve, so that they fit the link also when nobody adjusts anything.
	guaranteeable := capacity - sched.ControlBPS(capacity)
	a.competing = a.competing[:0]
	for _, c := range a.controlled {
		a.competing = append(a.competing, c.competitor(alloc.Unlimited))
	}
	if a.hostCompetes() {
		a.competing = append(a.competing, a.host.competitor(alloc.Unlimited))
		shares := a.allocator.Entitle(nil, capacity, a.competing)
		guarantees := a.allocator.Entitle(nil, guaranteeable, a.competing)
		for i, c := range a.participants {
			c.entitledBPS, c.guaranteed = shares[i], guarantees[i]
		}
		return
	}
	shares := a.allocator.Entitle(nil, capacity-a.host.admittedBPS, a.competing)
	reserve := min(a.hostReserveBPS(), guaranteeable)
	guarantees := a.allocator.Entitle(nil, guaranteeable-reserve, a.competing)
	for i, c := range a.controlled {
		c.entitledBPS, c.guaranteed = shares[i], guarantees[i]
	}
	a.host.entitledBPS, a.host.guaranteed = reserve, reserve
}

// allocate computes what everybody may send now and reports whether anything
// changed that matters. With exact, everything matters.
func (a *Agent) allocate(exact bool) bool {
	participants := a.participants
	capacity := a.uplink.rateBPS
	if !a.hostCompetes() {
		participants = a.controlled
		capacity -= min(capacity, a.host.demand.demandBPS)
		a.host.allocatedBPS = max(a.host.guaranteed, a.host.demand.demandBPS)
	}
	a.competing = a.competing[:0]
	for _, c := range participants {
		a.competing = append(a.competing, c.competitor(c.demand.demandBPS))
	}
	entitled := a.allocator.Entitle(nil, capacity, a.competing)
	allocated := a.allocator.Allocate(nil, capacity, a.competing, entitled)
	changed := exact
	for i, c := range participants {
		difference := max(allocated[i], c.allocatedBPS) - min(allocated[i], c.allocatedBPS)
		if difference > c.allocatedBPS/significantDivisor {
			changed = true
		}
	}
	if changed {
		for i, c := range participants {
			c.allocatedBPS = allocated[i]
		}
	}
	return changed
}

// tree is what the scheduler is to do.
func (a *Agent) tree() sched.Tree {
	a.classes = a.classes[:0]
	a.classes = append(a.classes, a.host.class())
	for _, c := range a.controlled {
		a.classes = append(a.classes, c.class())
	}
	return sched.Tree{
		RateBPS:       a.uplink.rateBPS,
		ControlNumber: classify.NumberControl,
		DefaultNumber: classify.NumberHost,
		Classes:       a.classes,
	}
}

// control is one turn of the control loop: it looks at who is sending and
// adjusts what everybody may send. It returns when to look next.
func (a *Agent) control(now time.Time) time.Duration {
	if a.uplink.lost() {
		return settledInterval
	}
	hostCompeted := a.hostCompetes()
	changed, err := a.measure(now)
	if err != nil {
		if a.uplink.reason == nil {
			a.log.Warn("measure who is sending", "error", err)
			a.check()
		}
		return settledInterval
	}
	hostChanged := a.hostCompetes() != hostCompeted
	if hostChanged {
		a.entitle()
	}
	// A new guarantee matters also where the allocation stays.
	if (hostChanged || changed) && a.allocate(hostChanged) {
		a.apply()
	}
	switch {
	case now.Sub(a.lastTraffic) > idleAfter:
		return idleInterval
	case now.Sub(a.lastChange) > settledAfter:
		return settledInterval
	default:
		return changingInterval
	}
}

// measure takes one look at what everybody wants and reports whether any
// estimate changed. The counters in shared memory cost nothing; the
// scheduler's are read only for display while nothing is sent, and every
// second time while all goes on as it did.
func (a *Agent) measure(now time.Time) (changed bool, err error) {
	if a.offered == nil {
		a.offered = make([]uint64, int(classify.NumberLast)+1)
	}
	last := a.host.number
	if n := len(a.controlled); n > 0 {
		last = a.controlled[n-1].number
	}
	if err := a.uplink.classifier.OfferedBytes(a.offered[:last+1]); err != nil {
		return false, err
	}
	for _, c := range a.participants {
		if c.demand.lastOffered() != a.offered[c.number] || c.counters.BacklogBytes > 0 {
			a.lastTraffic = now
		}
	}
	if now.Sub(a.lastTraffic) > idleAfter && now.Sub(a.lastStats) < statsInterval {
		return false, nil
	}
	if now.Sub(a.lastChange) > settledAfter && !a.lookedAway && !a.surprised(now) {
		a.lookedAway = true
		return false, nil
	}
	a.lookedAway = false
	if err := a.readCounters(now); err != nil {
		return false, err
	}
	for _, c := range a.participants {
		if c.demand.observe(now, demandWindow(c.entitledBPS), a.offered[c.number], c.counters.BacklogBytes) {
			changed = true
		}
		if changed || !c.demand.settled() {
			a.lastChange = now
		}
	}
	return changed, nil
}

// surprised says whether anybody sends much more or less than before.
func (a *Agent) surprised(now time.Time) bool {
	return slices.ContainsFunc(a.participants, func(c *container) bool {
		return c.demand.surprised(now, a.offered[c.number])
	})
}

// readCounters reads every class's counters.
func (a *Agent) readCounters(now time.Time) error {
	stats, err := a.uplink.backend.Stats(a.stats[:0])
	a.stats = stats
	if err != nil {
		return err
	}
	sample := now.Sub(a.lastStats) >= statsInterval
	if sample {
		a.lastStats = now
	}
	seen := 0
	for _, s := range stats {
		c := a.registry.byNumber[s.Number]
		if s.Number == classify.NumberHost {
			c = a.host
		}
		if c == nil {
			continue
		}
		seen++
		c.counters = s
		if sample {
			c.rate.observe(now, s.SentBytes)
		}
	}
	if seen < len(a.participants) {
		return errClassesGone
	}
	return nil
}

var errClassesGone = errors.New("classes are missing: somebody changed the uplink's queueing")
