package htb

import (
	"cmp"
	"slices"
)

// maxQuantumPackets bounds one container's turn at idle rate.
const maxQuantumPackets = 64

// weightUnit returns the weight that gets one packet per turn: a power of two, at most the smallest
// weight, so that containers that come and go seldom change the quanta of others. Classes without a
// weight have turns of their own.
func weightUnit(classes []class) uint32 {
	smallest := uint32(1 << 30) // twice that fits a uint32
	for _, c := range classes {
		if c.Weight > 0 {
			smallest = min(smallest, c.Weight)
		}
	}
	unit := uint32(1)
	for unit*2 <= smallest {
		unit *= 2
	}
	return unit
}

// quantum returns the turn of a class: in proportion to its weight, or one packet without a weight.
//
// Classes that go first for their delay, with a latency bound or EF, also have turns of one packet.
// A packet for such a leaf may wait for one turn of every other leaf: at 100 Mbit/s 16 ms for a
// turn of 64 packets, 0.25 ms for one packet. Their rates come from tokens, not from turns, and
// rates add up to at most the link. Only the rate that the root lends until the loop reacts goes to
// them in equal turns instead of by weight.
func (t terms) quantum(c class) uint32 {
	if c.Latency > 0 {
		return t.packetBytes
	}
	turn := uint64(t.packetBytes) * uint64(c.Weight) / uint64(t.weightUnit)
	return uint32(min(max(turn, uint64(t.packetBytes)), maxQuantumPackets*uint64(t.packetBytes)))
}

// HTB's priorities, the lowest first. Within one level the lowest priority goes first, for
// guarantees as well as for idle rate.
const (
	controlPrio = 0
	latencyPrio = 1
	firstPrio   = 2
	// lowestPrio is HTB's last priority (TC_HTB_NUMPRIO - 1).
	lowestPrio = 7
)

// ownRanks is the number of ranks with an HTB priority of their own; lower ranks share the last
// priority.
const ownRanks = lowestPrio - firstPrio

// rank is the order in which idle rate is offered: by priority, and within one priority containers
// with a weight before those without.
type rank struct {
	priority   uint32
	weightless bool
}

func rankOf(c class) rank { return rank{priority: c.Priority, weightless: c.Weight == 0} }

func (r rank) compare(o rank) int {
	switch {
	case r.priority != o.priority:
		return cmp.Compare(o.priority, r.priority)
	case r.weightless == o.weightless:
		return 0
	case o.weightless:
		return -1
	}
	return 1
}

// ranks returns the highest ranks in use, in order.
func ranks(classes []class) []rank {
	used := make([]rank, 0, 8)
	for _, c := range classes {
		if r := rankOf(c); !slices.Contains(used, r) {
			used = append(used, r)
		}
	}
	slices.SortFunc(used, rank.compare)
	return used[:min(len(used), ownRanks)]
}

// prio returns the HTB priority of a class. Classes with a latency bound come first, so that within
// its guarantee such a class waits for no other; ranks in use get the remaining priorities in
// order. HTB's few priorities only decide about idle rate between two turns of the control loop;
// the allocations respect all ranks.
func (t terms) prio(c class) uint32 {
	if c.Latency > 0 {
		return latencyPrio
	}
	i := slices.Index(t.ranks[:t.rankCount], rankOf(c))
	if i < 0 {
		return lowestPrio
	}
	return uint32(firstPrio + i)
}
