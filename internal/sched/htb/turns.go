package htb

import (
	"cmp"
	"slices"
)

// maxQuantumPackets bounds one container's turn when idle rate is lent.
const maxQuantumPackets = 64

// weightUnit is the weight of which one gets one packet in a turn: a power of
// two, at most the smallest weight, so that containers that come and go seldom
// change the quanta of others. Classes without a weight have turns of their own.
func weightUnit(classes []class) uint32 {
	smallest := uint32(1 << 30) // twice that is a uint32, too
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

// quantum gives every class a turn in proportion to its weight, and one packet to
// those that have none.
//
// One packet is also the turn of what goes first for the sake of its delay: leaves with
// a bound, and EF. What comes to such a leaf may have to wait for a turn of every other
// one: at 100 Mbit/s 16 ms for one of 64 packets, and 0.25 ms for one of one. Turns are
// not what gives them their rates: within those they have tokens, and rates add up to
// the link at most. Only what the root lends, until the loop has noticed, goes to them
// in equal turns instead of by weight.
func (t terms) quantum(c class) uint32 {
	if c.Latency > 0 {
		return t.packetBytes
	}
	turn := uint64(t.packetBytes) * uint64(c.Weight) / uint64(t.weightUnit)
	return uint32(min(max(turn, uint64(t.packetBytes)), maxQuantumPackets*uint64(t.packetBytes)))
}

// HTB's priorities, lower first. Within one level the lowest goes first, among
// guarantees as well as among what is idle.
const (
	controlPrio = 0
	latencyPrio = 1
	firstPrio   = 2
	// lowestPrio is HTB's last (TC_HTB_NUMPRIO - 1).
	lowestPrio = 7
)

// ownRanks is how many ranks of containers can have one of HTB's priorities for
// themselves; those below share the last.
const ownRanks = lowestPrio - firstPrio

// rank is who is first offered what is idle: the higher priority, and at the same
// one those that have a weight before those that have none.
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

// ranks are the first ranks in use, in their order.
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

// prio maps the ranks in use, in their order, onto the priorities of HTB that are
// left, and classes with a bound on delay before all of them: whoever is within
// its guarantee then waits for no other's. HTB's few priorities only decide on
// what is idle between two turns of the control loop; the allocations know them
// all.
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
