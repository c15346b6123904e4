package htb

import (
	"slices"

	"github.com/weir-project/weir/internal/sched"
)

// maxQuantumPackets bounds one container's turn when idle rate is lent.
const maxQuantumPackets = 64

// weightUnit is the weight of which one gets one packet in a turn: a power of
// two, at most the smallest weight, so that containers that come and go seldom
// change the quanta of others.
func weightUnit(classes []sched.Class) uint32 {
	smallest := uint32(1 << 30) // twice that is a uint32, too
	for _, c := range classes {
		smallest = min(smallest, max(c.Weight, 1))
	}
	unit := uint32(1)
	for unit*2 <= smallest {
		unit *= 2
	}
	return unit
}

// quantum gives every class a turn in proportion to its weight.
func (t terms) quantum(c sched.Class, packetBytes uint32) uint32 {
	turn := uint64(packetBytes) * uint64(max(c.Weight, 1)) / uint64(t.weightUnit)
	return uint32(min(turn, maxQuantumPackets*uint64(packetBytes)))
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

// ownPriorities is how many priorities of containers can have one of HTB's for
// themselves; those below share the last.
const ownPriorities = lowestPrio - firstPrio

// priorities are the highest priorities in use, highest first.
func priorities(classes []sched.Class) []uint32 {
	used := make([]uint32, 0, 8)
	for _, c := range classes {
		if !slices.Contains(used, c.Priority) {
			used = append(used, c.Priority)
		}
	}
	slices.Sort(used)
	slices.Reverse(used)
	return used[:min(len(used), ownPriorities)]
}

// prio maps the priorities in use, in their order, onto those of HTB that are
// left, and classes with a bound on delay before all of them: whoever is within
// its guarantee then waits for no other's. HTB's few priorities only decide on
// what is idle between two turns of the control loop; the allocations know them
// all.
func (t terms) prio(c sched.Class) uint32 {
	if c.Latency > 0 {
		return latencyPrio
	}
	i := slices.Index(t.priorities[:t.priorityCount], c.Priority)
	if i < 0 {
		return lowestPrio
	}
	return uint32(firstPrio + i)
}
