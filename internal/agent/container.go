package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// container is what the agent knows of one container, or of the host class.
type container struct {
	discovery.Container

	// What the user wants.
	labelPolicy v1.Policy
	problems    []policy.Problem
	override    *v1.Policy // changes made with `weir set`, the whole policy
	// admittedBPS is the minimum that is guaranteed; refused says why it is
	// less than what the policy asks for.
	admittedBPS uint64
	refused     error

	// How its packets are told apart.
	number      uint16 // 0: not controlled
	mode        v1.Mode
	netns       kernel.NetNSID
	attachments []attachment
	unattached  bool   // its devices are to be looked for again
	obstacle    string // why it is not controlled, in whole or in part

	// What it gets.
	demand       demandMeter
	entitledBPS  uint64
	guaranteed   uint64
	allocatedBPS uint64
	counters     sched.Stats
	rate         rateMeter
}

// attachment is a device of a container and what was done to it.
type attachment struct {
	classify.Attachment
	// gsoBefore is the device's packet limit before ours.
	gsoBefore uint32
	// tied: the veth's packets carry the container's number.
	tied bool
}

// key tells containers of all sources apart.
type key struct{ runtime, id string }

func (c *container) key() key { return key{c.Runtime, c.ID} }

// policy is what is asked for: the labels, or what `weir set` made of them.
func (c *container) policy() v1.Policy {
	if c.override != nil {
		return *c.override
	}
	return c.labelPolicy
}

// competitor is the container as the ideal allocation sees it, with a demand
// of demandBPS.
func (c *container) competitor(demandBPS uint64) alloc.Container {
	p := c.policy()
	ceiling := alloc.Unlimited
	if p.MaxBPS != 0 {
		ceiling = p.MaxBPS
	}
	return alloc.Container{
		Weight:     p.Weight,
		FloorBPS:   c.admittedBPS,
		CeilingBPS: ceiling,
		Priority:   p.Priority,
		DemandBPS:  demandBPS,
	}
}

func (c *container) class() sched.Class {
	competitor := c.competitor(0)
	return sched.Class{
		Number:        c.number,
		GuaranteedBPS: c.guaranteed,
		AllocatedBPS:  c.allocatedBPS,
		CeilingBPS:    competitor.CeilingBPS,
		Weight:        competitor.Weight,
		Priority:      competitor.Priority,
	}
}

// state sums up for the user whether the policy is in force, and why not.
func (c *container) state() (v1.State, string) {
	state := v1.StateOK
	var reasons []string
	if c.obstacle != "" {
		state = v1.StateDegraded
		reasons = append(reasons, c.obstacle)
	}
	for _, p := range c.problems {
		// What `weir set` overrides, a wrong label no longer spoils.
		if c.override == nil {
			state = v1.StateDegraded
			reasons = append(reasons, p.Error())
		}
	}
	p := c.policy()
	if p.LatencyMS != 0 {
		state = v1.StateDegraded
		reasons = append(reasons, "weir.latency is not in force: this version does not bound delay")
	}
	if p.Class != v1.ClassNone {
		state = v1.StateDegraded
		reasons = append(reasons, "weir.class is not in force: this version does not order packets within a container")
	}
	if c.number != 0 && c.guaranteed < c.admittedBPS {
		state = v1.StateDegraded
		reasons = append(reasons, fmt.Sprintf("minimum %s is cut to %s: the uplink's rate was lowered and the minimums exceed it",
			policy.FormatRate(c.admittedBPS), policy.FormatRateShort(c.guaranteed)))
	}
	if c.refused != nil {
		state = v1.StateRejected
		reasons = append(reasons, c.refused.Error())
	}
	return state, strings.Join(reasons, "; ")
}

func (c *container) view() v1.Container {
	state, reason := c.state()
	return v1.Container{
		ID: c.ID, Name: c.Name, Runtime: c.Runtime, Mode: c.mode,
		Policy:         c.policy(),
		EntitledBPS:    c.entitledBPS,
		AllocatedBPS:   c.allocatedBPS,
		RateBPS:        c.rate.bps(),
		BacklogBytes:   c.counters.BacklogBytes,
		SentBytes:      c.counters.SentBytes,
		DroppedPackets: c.counters.DroppedPackets,
		State:          state, Reason: reason,
	}
}

// newHost is the class of everything that belongs to no known container.
func newHost(p v1.Policy) *container {
	return &container{
		Container:   discovery.Container{ID: "host", Name: "host", Runtime: "host"},
		labelPolicy: p,
		number:      classify.NumberHost,
		mode:        v1.ModeHost,
	}
}

// registry holds the containers.
type registry struct {
	byKey    map[key]*container
	byNumber map[uint16]*container
	next     uint16
}

func newRegistry() *registry {
	return &registry{byKey: map[key]*container{}, byNumber: map[uint16]*container{}, next: classify.NumberFirst}
}

// all lists the containers, those that started first first.
func (r *registry) all() []*container {
	list := make([]*container, 0, len(r.byKey))
	for _, c := range r.byKey {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *container) int {
		if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
			return c
		}
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// controlled lists the containers that have a class, by number.
func (r *registry) controlled() []*container {
	list := make([]*container, 0, len(r.byNumber))
	for _, c := range r.byNumber {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *container) int { return int(a.number) - int(b.number) })
	return list
}

func (r *registry) anyUnattached() bool {
	for _, c := range r.byKey {
		if c.unattached {
			return true
		}
	}
	return false
}

// hasVeth says whether the device with that index is the host end of a
// container's veth.
func (r *registry) hasVeth(ifindex int) bool {
	for _, c := range r.byNumber {
		for _, at := range c.attachments {
			if at.Tap.Ifindex == ifindex {
				return true
			}
		}
	}
	return false
}

// lostVeth notes that the host end of a veth is gone. Its container is to be
// looked at again: it may have another.
func (r *registry) lostVeth(ifindex int) {
	for _, c := range r.byNumber {
		for _, at := range c.attachments {
			if at.Tap.Ifindex == ifindex {
				c.unattached = true
			}
		}
	}
}

// assign gives a container a number: the preferred one if it is free, or the
// next in turn, so that a number is not used again while packets of its last
// holder may be on their way. It reports false when all are in use.
func (r *registry) assign(c *container, preferred uint16) bool {
	if preferred < classify.NumberFirst || preferred > classify.NumberLast || r.byNumber[preferred] != nil {
		preferred = 0
		for range classify.NumberLast - classify.NumberFirst + 1 {
			candidate := r.next
			if r.next++; r.next > classify.NumberLast {
				r.next = classify.NumberFirst
			}
			if r.byNumber[candidate] == nil {
				preferred = candidate
				break
			}
		}
	}
	if preferred == 0 {
		return false
	}
	c.number = preferred
	r.byNumber[preferred] = c
	return true
}

// release takes a container's number back.
func (r *registry) release(c *container) {
	if c.number != 0 {
		delete(r.byNumber, c.number)
		c.number = 0
	}
}

// sharesNetNS finds the controlled container that has the same network
// namespace.
func (r *registry) sharesNetNS(c *container) *container {
	for _, other := range r.byNumber {
		if other != c && other.netns == c.netns {
			return other
		}
	}
	return nil
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
