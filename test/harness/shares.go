package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

// Tolerances of the suites. The benchmark (`weir bench`) measures more exactly, on a
// machine of its own.
const (
	// SteadyTolerance is for shares of senders that never pause.
	SteadyTolerance = 0.01
	// ShareTolerance is where one of them is TCP: it pauses after losses, and what it
	// leaves idle meanwhile goes to the others, rightly. Over three seconds that is a
	// percent or two, which says nothing of the scheduler.
	ShareTolerance = 0.03
	// MaximumTolerance is how far any sender may exceed its maximum.
	MaximumTolerance = 0.01
	// LinkUse is how much of the link has to be used while a container wants it.
	LinkUse = 0.97
	// Overshoot is how far the sum may exceed the link's rate.
	Overshoot = 0.01

	warmUp = time.Second

	frameBits = 1514 * 8
)

// Duration is for how long shares are measured.
var Duration = measuringTime()

// measuringTime returns a shorter time where the clock is steady: no sender is held up there,
// and emulated traffic takes long.
func measuringTime() time.Duration {
	if SteadyClock() {
		return 1500 * time.Millisecond
	}
	return 3 * time.Second
}

// Claim is the policy and the demand of one container.
type Claim struct {
	Labels map[string]string
	// DemandBPS is on the wire; alloc.Unlimited for all it can get.
	DemandBPS uint64
	// Steady: it sends without a pause, as TCP does not.
	Steady bool
}

// toleranceFor returns the tolerance for the shares of claims.
func toleranceFor(claims []Claim) float64 {
	for _, claim := range claims {
		if !claim.Steady && claim.DemandBPS > 0 {
			return ShareTolerance
		}
	}
	return SteadyTolerance
}

// Unlimited is the demand of a sender that takes all it can get.
const Unlimited = alloc.Unlimited

// Ideal is what each container should get, in bits per second, when all of
// them run (design: entitlement, then what others leave).
func Ideal(rateBPS uint64, claims []Claim) ([]uint64, error) {
	containers := make([]alloc.Container, len(claims))
	for i, claim := range claims {
		p, problems := policy.Parse(claim.Labels)
		if len(problems) > 0 {
			return nil, fmt.Errorf("labels of container %d: %w", i, problems[0])
		}
		ceiling := alloc.Unlimited
		if p.MaxBPS != 0 {
			ceiling = p.MaxBPS
		}
		containers[i] = alloc.Container{
			Weight: p.Weight, FloorBPS: p.MinBPS, CeilingBPS: ceiling,
			Priority: p.Priority, DemandBPS: claim.DemandBPS,
		}
	}
	return alloc.Allocate(rateBPS, containers, alloc.Entitle(rateBPS, containers)), nil
}

// Measurement is what arrived at the neighbour over some time.
type Measurement struct {
	Duration time.Duration
	// BPS are the rates of the slots, in bits per second on the wire.
	BPS [Slots]float64
	// OtherBPS is what went to no slot.
	OtherBPS float64
	// Disturbed: a sender or the whole machine stood still for so long that who
	// was held up may have left its share to others, or a queue ran dry.
	Disturbed bool
	// Dry is for how long the queue that ran dry most was dry, while processors were short, or a sender
	// was held up where no queue is watched.
	Dry time.Duration
	// Paused is for how long a processor stood still, on average, from recovery before the
	// measurement on; pausedBefore is the part before it.
	Paused, pausedBefore time.Duration
	// Slack is the part of the link that pauses and Dry explain.
	Slack float64
	// CPU says how short of processor time the machine was meanwhile.
	CPU string
}

// WarmUp waits until traffic that began just now has its shares.
func (b *Bed) WarmUp() {
	b.tb.Helper()
	b.watchPauses()
	time.Sleep(warmUp)
}

// AwaitTraffic waits until something more arrives at a slot.
func (b *Bed) AwaitTraffic(slot int, timeout time.Duration) {
	b.tb.Helper()
	before := b.Snapshot().Slots[slot]
	b.Await(fmt.Sprintf("traffic at slot %d", slot), timeout, func() (bool, string) {
		return b.Snapshot().Slots[slot] != before, "nothing arrives"
	})
}

// MeasureFor measures from now on.
func (b *Bed) MeasureFor(duration time.Duration) Measurement {
	b.tb.Helper()
	cpu := watchCPU()
	before := b.Snapshot()
	time.Sleep(duration)
	after := b.Snapshot()
	_, _, starved := cpu.shortage()
	m := Measurement{Duration: time.Duration(after.MonotonicNS - before.MonotonicNS), CPU: cpu.String()}
	// Until who is held up at the end has noticed.
	time.Sleep(2 * queueDuration)
	m.notePauses(b.pauses, before.MonotonicNS, after.MonotonicNS)
	m.Disturbed = m.Disturbed || b.HeldUp(before.MonotonicNS, after.MonotonicNS)
	if b.leaves != nil {
		dry, err := b.leaves.dry(before.MonotonicNS, after.MonotonicNS)
		must.Succeed(b.tb, err)
		m.Disturbed = m.Disturbed || dry > 0
		if starved {
			m.Dry = dry
		}
	} else if starved {
		for _, sender := range b.senders { // the queues are not known
			m.Dry = max(m.Dry, sender.BehindFor(queueDuration, before.MonotonicNS, after.MonotonicNS))
		}
	}
	rate := func(before, after meter.Counter) float64 {
		return float64(after.Bytes-before.Bytes) * 8 / m.Duration.Seconds()
	}
	for i := range m.BPS {
		m.BPS[i] = rate(before.Slots[i], after.Slots[i])
	}
	m.OtherBPS = rate(before.Other, after.Other)
	return m
}

// notePauses records the pauses of the machine between two times of CLOCK_MONOTONIC, and shortly before and
// after. A nil watch has seen none.
func (m *Measurement) notePauses(pauses *testbed.PauseWatch, beganNS, endedNS int64) {
	if pauses == nil {
		return
	}
	fromNS := beganNS - recovery.Nanoseconds()
	m.Disturbed = pauses.Longest(fromNS, endedNS) > 0
	m.pausedBefore = pauses.Total(fromNS, beganNS)
	m.Paused = m.pausedBefore + pauses.Total(beganNS, endedNS+2*queueDuration.Nanoseconds())
}

// HeldUp reports whether a paced sender was, between two times of CLOCK_MONOTONIC, so
// far behind its pace that its queue may have run dry.
func (b *Bed) HeldUp(fromNS, untilNS int64) bool {
	for _, sender := range b.senders {
		if sender.Behind(fromNS, untilNS) > queueDuration {
			return true
		}
	}
	return false
}

// Snapshot reads the meter.
func (b *Bed) Snapshot() meter.Snapshot {
	b.tb.Helper()
	s, err := b.Meter.Snapshot()
	must.Succeed(b.tb, err)
	return s
}

// Move counts what came from some slots as another's.
func (m *Measurement) Move(to int, from ...int) {
	for _, slot := range from {
		m.BPS[to] += m.BPS[slot]
		m.BPS[slot] = 0
	}
}

// WithSlack is the measurement with the slack that its pauses, and dry queues, explain.
func (m Measurement) WithSlack() Measurement {
	m.Slack = (slackFactor*m.Paused + m.Dry).Seconds() / m.Duration.Seconds()
	return m
}

// SumBPS returns the rate of all that arrived.
func (m Measurement) SumBPS() float64 {
	sum := m.OtherBPS
	for _, bps := range m.BPS {
		sum += bps
	}
	return sum
}

// CheckShares compares a measurement with the ideal shares of the first slots,
// and the sum with the link. What a container's last frame adds or lacks is no
// error. An error says what was measured, all of it.
func CheckShares(rateBPS uint64, m Measurement, idealBPS []uint64) error {
	return CheckSharesWithin(ShareTolerance, rateBPS, m, idealBPS)
}

// CheckSharesWithin is CheckShares with a tolerance of its own. Senders that
// never pause are shared out to a fraction of a percent; TCP pauses after
// losses, and what it leaves meanwhile goes to others.
func CheckSharesWithin(tolerance float64, rateBPS uint64, m Measurement, idealBPS []uint64) error {
	frame := frameBits/m.Duration.Seconds() + m.Slack*float64(rateBPS)
	var wrong []string
	wanted := uint64(0)
	for i, ideal := range idealBPS {
		wanted += ideal
		if deviation := m.BPS[i] - float64(ideal); max(deviation, -deviation) > tolerance*float64(ideal)+frame {
			wrong = append(wrong, fmt.Sprintf("container %d is off by %+.1f %%", i, 100*deviation/max(float64(ideal), 1)))
		}
	}
	if sum := m.SumBPS(); sum > float64(rateBPS)*(1+Overshoot) {
		wrong = append(wrong, fmt.Sprintf("the sum is above the link by %.1f %%", 100*(sum/float64(rateBPS)-1)))
	} else if sum < (LinkUse-m.Slack)*float64(min(wanted, rateBPS)) {
		wrong = append(wrong, fmt.Sprintf("only %.1f %% of what the link could carry was sent", 100*sum/float64(min(wanted, rateBPS))))
	}
	if len(wrong) == 0 {
		return nil
	}
	table := []string{fmt.Sprintf("link %.2f Mbit/s, sent %.2f; CPU: %s", float64(rateBPS)/1e6, m.SumBPS()/1e6, m.CPU)}
	for i, ideal := range idealBPS {
		table = append(table, fmt.Sprintf("container %d: %.3f Mbit/s, ideal %.3f", i, m.BPS[i]/1e6, float64(ideal)/1e6))
	}
	return errors.New(strings.Join(wrong, "; ") + "\n\t" + strings.Join(table, "\n\t"))
}

// CheckShares measures and compares with the ideal of claims, one for each
// slot from 0 on.
func (b *Bed) CheckShares(rateBPS uint64, claims []Claim) {
	b.tb.Helper()
	b.CheckSharesFor(rateBPS, claims, Duration)
}

// A machine that is itself a guest may stand still, with some or all of its
// processors, for a tenth of a second, and shows it nowhere. A sender that is held up
// for longer than its queue lasts leaves its share to others, rightly, and so does TCP whose
// queue runs dry. So a deviation is measured again without the slices in which that happened.
// Where it happens nearly all the time the check is skipped if that explains the deviation; a dry
// queue explains something only while processors are short.
const (
	// Patience is how much longer than planned, and a slice, a check may take for
	// that.
	Patience = 4
	// leastPause is for how long a processor may stand still: what a link may be
	// late by without loss of rate (4 ms, internal/datapath/htb), less what a pause
	// may be longer than it looks.
	leastPause = 3 * time.Millisecond
	// queueDuration is what a sender may be behind its pace.
	queueDuration = 5 * time.Millisecond
	// recovery is how long TCP may take after a pause until all is as before.
	recovery = 300 * time.Millisecond
	slice    = 500 * time.Millisecond
	// slackFactor is how many times longer than a processor stood still it may
	// matter: who was held up has to gain speed again.
	slackFactor = 2
)

// CheckSharesFor is CheckShares over a time of its own.
func (b *Bed) CheckSharesFor(rateBPS uint64, claims []Claim, duration time.Duration) {
	b.tb.Helper()
	ideal, err := Ideal(rateBPS, claims)
	must.Succeed(b.tb, err)
	b.WarmUp()
	var hungry []*Container
	for _, c := range b.containers {
		if c.Slot < len(claims) && claims[c.Slot].DemandBPS == Unlimited {
			hungry = append(hungry, c)
		}
	}
	if b.leaves != nil {
		must.Succeed(b.tb, b.leaves.close())
	}
	b.leaves = watchLeaves(b.tb, b.Host.NetNSPath(), b.UplinkIndex(), hungry)
	b.CheckIdeal(toleranceFor(claims), rateBPS, ideal, duration)
}

// CheckIdeal measures from now on and compares with ideal shares, which sum up
// to no more than the link.
func (b *Bed) CheckIdeal(tolerance float64, rateBPS uint64, ideal []uint64, duration time.Duration) {
	b.tb.Helper()
	b.Check(duration, func(m Measurement) error {
		return CheckSharesWithin(tolerance, rateBPS, m, ideal)
	})
}

// CheckMaximum is Check of one slot that has a maximum and wants more.
func (b *Bed) CheckMaximum(slot int, bps float64, duration time.Duration) {
	b.tb.Helper()
	b.Check(duration, func(m Measurement) error { return CheckMaximum(m, slot, bps) })
}

// CheckMaximum compares the rate of a slot with the maximum of a container with more
// demand. No pause of the machine explains a higher rate.
func CheckMaximum(m Measurement, slot int, bps float64) error {
	frame := frameBits / m.Duration.Seconds()
	if got := m.BPS[slot]; got > bps*(1+MaximumTolerance)+frame || got < bps*(1-ShareTolerance-m.Slack) {
		return fmt.Errorf("slot %d was sent %.2f Mbit/s, its maximum is %.2f; CPU: %s", slot, got/1e6, bps/1e6, m.CPU)
	}
	return nil
}

// Check measures from now on and checks.
func (b *Bed) Check(duration time.Duration, check func(Measurement) error) {
	b.tb.Helper()
	b.CheckMeasured(duration, b.MeasureFor, check)
}

// CheckMeasured is Check with a measurement of its own.
func (b *Bed) CheckMeasured(duration time.Duration, measure func(time.Duration) Measurement, check func(Measurement) error) {
	b.tb.Helper()
	b.watchPauses()
	checkMeasured(b.tb, duration, measure, check)
}

func checkMeasured(tb testing.TB, duration time.Duration, measure func(time.Duration) Measurement, check func(Measurement) error) {
	tb.Helper()
	cpu := watchCPU()
	err := checkUndisturbed(duration, measure, func(m Measurement) error {
		m.CPU = cpu.String()
		return check(m)
	}, tb.Logf)
	judge(tb, err)
}

// CheckReceived is Check of what a test's own receivers count, in bytes: their rate is that of slot 0.
func CheckReceived(tb testing.TB, received *atomic.Uint64, duration time.Duration, check func(Measurement) error) {
	tb.Helper()
	pauses, end := startPauseWatch(tb)
	defer end()
	time.Sleep(recovery) // the watch has begun, and knows what was before
	checkMeasured(tb, duration, func(duration time.Duration) Measurement {
		beganNS, before := traffic.MonotonicNS(), received.Load()
		time.Sleep(duration)
		bytes, endedNS := received.Load()-before, traffic.MonotonicNS()
		time.Sleep(2 * queueDuration) // until a pause at the end is known
		m := Measurement{Duration: time.Duration(endedNS - beganNS)}
		m.BPS[0] = float64(bytes) * 8 / m.Duration.Seconds()
		m.notePauses(pauses, beganNS, endedNS)
		return m
	}, check)
}

// judge fails the test if a check failed, and skips the check if pauses of the machine explain that.
func judge(tb testing.TB, err error) {
	tb.Helper()
	t, isTest := tb.(*testing.T)
	switch {
	case isTest && errors.Is(err, errHeldUp):
		// A skipped test in reports; the test itself goes on.
		t.Run("check", func(t *testing.T) { SkipBusy(t, err) })
	case err != nil:
		tb.Error(err)
		fallthrough
	default:
		tb.Attr(checkAttribute, "judged")
	}
}

// CheckSteady is Check of what the check measures itself. It is done again only if it fails while the
// machine stands still.
func CheckSteady(tb testing.TB, check func() error) {
	tb.Helper()
	pauses, end := startPauseWatch(tb)
	defer end()
	time.Sleep(recovery) // the watch has begun
	judge(tb, repeatHeldUp(check, func(fromNS int64) bool {
		time.Sleep(2 * queueDuration) // until a pause at the end is known
		return pauses != nil && pauses.Longest(fromNS, traffic.MonotonicNS()) > 0
	}, tb.Logf))
}

// repeatHeldUp repeats a check that fails while the machine stands still, as pausedSince says.
func repeatHeldUp(check func() error, pausedSince func(ns int64) bool, logf func(string, ...any)) error {
	var err error
	for range Patience {
		fromNS := traffic.MonotonicNS()
		if err = check(); err == nil || !pausedSince(fromNS) {
			return err
		}
		logf("once more, as this machine stood still: %v", err)
	}
	return fmt.Errorf("%w: %w", errHeldUp, err)
}

// checkAttribute marks each check of a measurement in the events of a test, for
// tools/testsummary: it bounds the share of checks that were skipped.
const checkAttribute = "check"

// SkipBusy skips a test whose measurement pauses of the machine explain.
func SkipBusy(t *testing.T, why any) {
	t.Helper()
	t.Attr(checkAttribute, "busy")
	t.Skip(why)
}

// errHeldUp: pauses of the machine explain the deviation.
var errHeldUp = errors.New("this machine stood still again and again, which explains what was measured")

// checkUndisturbed measures and checks. When that fails, and a sender was held up
// meanwhile, it goes on until it has as much time without that, and checks
// that time. Where there is never as much, all is checked again for what that cannot
// explain, and what it can is errHeldUp.
func checkUndisturbed(duration time.Duration, measure func(time.Duration) Measurement, check func(Measurement) error, logf func(string, ...any)) error {
	var all, undisturbed Measurement
	next := func(missing time.Duration) {
		m := measure(min(slice, missing))
		all.add(m)
		if !m.Disturbed {
			undisturbed.add(m)
		}
	}
	for all.Duration < duration {
		next(duration - all.Duration)
	}
	err := check(all)
	if err == nil || !all.Disturbed {
		return err
	}
	logf("measured without what stood still: %v", err)
	for undisturbed.Duration < duration {
		if all.Duration > Patience*duration {
			all = all.WithSlack()
			if wrong := check(all); wrong != nil {
				return fmt.Errorf("%w\n\t(beyond the %.1f %% of the link that pauses of the machine, or queues that it let run dry, explain)", wrong, 100*all.Slack)
			}
			return fmt.Errorf("%w: %w", errHeldUp, err)
		}
		next(duration - undisturbed.Duration)
	}
	return check(undisturbed)
}

// SteadyClock reports whether the clock stands still whenever the machine does, as
// where the machine is emulated: there are no pauses then.
func SteadyClock() bool { return os.Getenv("WEIR_STEADY_CLOCK") != "" }

// watchPauses watches for pauses of the machine from now on.
func (b *Bed) watchPauses() {
	b.tb.Helper()
	if b.pauses == nil {
		var end func()
		b.pauses, end = startPauseWatch(b.tb)
		b.tb.Cleanup(end)
	}
}

// startPauseWatch watches for pauses of the machine until end is called. The watch is nil where the clock
// is steady.
func startPauseWatch(tb testing.TB) (watch *testbed.PauseWatch, end func()) {
	tb.Helper()
	if SteadyClock() {
		return nil, func() {}
	}
	watch, err := testbed.StartPauseWatch(context.WithoutCancel(tb.Context()), Program(tb), leastPause)
	must.Succeed(tb, err)
	return watch, func() {
		if !watch.Close() {
			tb.Error("the watch for pauses of the machine ended early")
		}
	}
}

// add takes in what was measured right after, so pauses before that are in m already.
func (m *Measurement) add(other Measurement) {
	if m.Duration == 0 {
		m.pausedBefore, m.Paused = other.pausedBefore, other.pausedBefore
	}
	duration := m.Duration + other.Duration
	part := other.Duration.Seconds() / duration.Seconds()
	for i := range m.BPS {
		m.BPS[i] += part * (other.BPS[i] - m.BPS[i])
	}
	m.OtherBPS += part * (other.OtherBPS - m.OtherBPS)
	m.Disturbed = m.Disturbed || other.Disturbed
	m.Paused += other.Paused - other.pausedBefore
	m.Dry += other.Dry
	m.Duration = duration
}
