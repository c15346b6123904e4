package harness

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/meter"
	"github.com/weir-project/weir/internal/policy"
)

// Tolerances of the suites. The benchmark (`weir bench`) measures more exactly, on a
// machine of its own.
const (
	ShareTolerance = 0.03
	// LinkUse is how much of the link has to be used while anyone wants it.
	LinkUse = 0.97
	// Overshoot is how far the sum may exceed the link's rate.
	Overshoot = 0.01

	warmUp   = time.Second
	duration = 3 * time.Second

	frameBits = 1514 * 8
)

// Claim is what one container asks for and wants to send.
type Claim struct {
	Labels map[string]string
	// DemandBPS is on the wire; alloc.Unlimited for all it can get.
	DemandBPS uint64
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
	// Behind is how far a paced sender was behind its pace at most.
	Behind time.Duration
	// CPU says how short of processor time the machine was meanwhile.
	CPU string
}

// Measure measures for the usual time after the usual warm-up.
func (b *Bed) Measure() Measurement {
	b.tb.Helper()
	time.Sleep(warmUp)
	return b.MeasureFor(duration)
}

// MeasureFor measures from now on.
func (b *Bed) MeasureFor(duration time.Duration) Measurement {
	b.tb.Helper()
	cpu := watchCPU()
	b.longestBehind()
	before := b.Snapshot()
	time.Sleep(duration)
	after := b.Snapshot()
	m := Measurement{
		Duration: time.Duration(after.MonotonicNS - before.MonotonicNS),
		Behind:   b.longestBehind(),
		CPU:      cpu.String(),
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

// longestBehind is how far a paced sender was behind its pace at most since the
// last call.
func (b *Bed) longestBehind() time.Duration {
	longest := time.Duration(0)
	for _, sender := range b.senders {
		longest = max(longest, sender.LongestBehind())
	}
	return longest
}

// Snapshot reads the meter.
func (b *Bed) Snapshot() meter.Snapshot {
	b.tb.Helper()
	s, err := b.Meter.Snapshot()
	if err != nil {
		b.tb.Fatal(err)
	}
	return s
}

// SumBPS is all that arrived.
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
	frame := frameBits / m.Duration.Seconds()
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
	} else if sum < LinkUse*float64(min(wanted, rateBPS)) {
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
	b.CheckSharesFor(rateBPS, claims, duration)
}

// A machine that is itself a guest may stand still, with some or all of its
// processors, for a tenth of a second, and shows it nowhere.
const (
	// attempts is how often is measured what failed when all have sent too
	// little. What fails again and again is no accident.
	attempts = 3
	// A paced sender that was behind for longer than queueDuration may have left
	// its queue empty, and what it left was rightly lent to others. What is wrong
	// is measured without the slices in which that happened, if they are few.
	queueDuration = 5 * time.Millisecond
	slice         = 500 * time.Millisecond
	// patience is how much longer than planned measuring may take for that.
	patience = 4
)

// CheckSharesFor is CheckShares over a time of its own.
func (b *Bed) CheckSharesFor(rateBPS uint64, claims []Claim, duration time.Duration) {
	b.tb.Helper()
	ideal, err := Ideal(rateBPS, claims)
	if err != nil {
		b.tb.Fatal(err)
	}
	time.Sleep(warmUp)
	b.CheckIdeal(ShareTolerance, rateBPS, ideal, duration)
}

// CheckIdeal measures from now on and compares with ideal shares, which sum up
// to no more than the link.
func (b *Bed) CheckIdeal(tolerance float64, rateBPS uint64, ideal []uint64, duration time.Duration) {
	b.tb.Helper()
	for attempt := 1; ; attempt++ {
		m, err := b.measureShares(duration, func(m Measurement) error {
			return CheckSharesWithin(tolerance, rateBPS, m, ideal)
		})
		switch {
		case err == nil:
		case attempt < attempts && m.stoodStill(ideal):
			b.tb.Logf("measured again, as all have sent too little: %v", err)
			continue
		default:
			b.tb.Error(err)
		}
		return
	}
}

// measureShares measures from now on and checks. When that fails it goes on
// until there is as much in which no sender was behind, and checks that.
func (b *Bed) measureShares(duration time.Duration, check func(Measurement) error) (Measurement, error) {
	b.tb.Helper()
	cpu := watchCPU()
	var all, undisturbed Measurement
	next := func(duration time.Duration) {
		m := b.MeasureFor(min(slice, duration))
		all.add(m)
		if m.Behind <= queueDuration {
			undisturbed.add(m)
		}
		all.CPU, undisturbed.CPU = cpu.String(), cpu.String()
	}
	for all.Duration < duration {
		next(duration - all.Duration)
	}
	err := check(all)
	if err == nil {
		return all, nil
	}
	for undisturbed.Duration < duration {
		if all.Duration > patience*duration {
			return all, fmt.Errorf("%w\n\t(a sender was behind by more than %v most of the time)", err, queueDuration)
		}
		next(duration - undisturbed.Duration)
	}
	return undisturbed, check(undisturbed)
}

// add takes in what was measured over another time.
func (m *Measurement) add(other Measurement) {
	duration := m.Duration + other.Duration
	part := other.Duration.Seconds() / duration.Seconds()
	for i := range m.BPS {
		m.BPS[i] += part * (other.BPS[i] - m.BPS[i])
	}
	m.OtherBPS += part * (other.OtherBPS - m.OtherBPS)
	m.Behind = max(m.Behind, other.Behind)
	m.Duration = duration
}

// stoodStill says whether everybody has sent noticeably less than the ideal:
// unlike a wrong share, from which others gain.
func (m Measurement) stoodStill(idealBPS []uint64) bool {
	const noticeable = 0.01
	for i, ideal := range idealBPS {
		if m.BPS[i] > float64(ideal)*(1-noticeable) {
			return false
		}
	}
	return true
}
