package htb

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Ports of switches.
//
// Problem. Open vSwitch's kernel datapath sends a packet to queue N of a port by
// writing class 1:(N+1) into its priority, for packets of all origins
// (lib/dpif-netlink.c, dpif_netlink_queue_to_priority). The classes that Open vSwitch makes
// have queues of 1000 packets, and a packet of 64 KB blocks the port for its whole length.
//
// Method. The same class numbers, with queues and limits like those of an uplink:
//
//	tbf 7e12:        the port: its rate; cuts up packets that are too large
//	htb 1:           selects the class by the packet's priority; queue 0 by default
//	  1:ffff         lends idle rate, in the order of the queues' priorities
//	    1:1          queue 0: its minimum, up to its maximum
//	      7e20:      its AQM
//	    1:2          queue 1, and so on
//
// Queues within their minimum go before queues that borrow; within both groups the lowest
// priority goes first. The first queue, within its minimum, waits only for the packet on
// the link and for its own packets.
//
// Limits. No control loop measures the senders, so HTB alone enforces maximums and divides
// idle rate.
const (
	portMajor      = 0x7e12
	portHandle     = kernel.Handle(portMajor << 16)
	portClassMajor = 1
	portClasses    = kernel.Handle(portClassMajor << 16)
	// portQueueMajor is the major of queue 0's AQM.
	portQueueMajor = 0x7e20
	// portPlaces is the number of queues that divide a port's memory.
	portPlaces = 8
)

// openVSwitchRoot is the class above all others in Open vSwitch's linux-htb and linux-hfsc, below
// qdisc 1: (lib/netdev-linux.c).
var openVSwitchRoot = kernel.NewHandle(portClassMajor, 0xfffe)

var portRootClass = kernel.NewHandle(portClassMajor, rootMinor)

// SelectByMark has the queues of a device, of Open vSwitch or of a PortTree, take packets by their mark,
// if their priority names no queue, and reports whether anything changed. mask are the bits of a
// kernel.MarkPacket. It fails while the device has no queues.
func (p *Port) SelectByMark(kind kernel.MarkKind, mask uint32, queues map[uint8]int) (changed bool, err error) {
	switch owner, what, err := p.Owner(); {
	case err != nil:
		return false, err
	case owner != PortOurs && owner != PortSwitch && len(queues) > 0:
		return false, fmt.Errorf("its queues are not made yet: it has %s", cmp.Or(what, "none"))
	case owner != PortOurs && owner != PortSwitch:
		return false, nil
	}
	marks := kernel.Marks{Kind: kind, Mask: mask}
	for value, id := range queues {
		marks.Classes[value] = portClass(id)
	}
	return kernel.SetMarks(p.ifindex, portClasses, marks)
}

func portClass(id int) kernel.Handle { return kernel.NewHandle(portClassMajor, uint16(id+1)) }
func portQueue(id int) kernel.Handle { return kernel.NewHandle(portQueueMajor+uint16(id), 0) }

// PortQueue is one queue of a port. Rates are bits per second.
type PortQueue struct {
	ID             int // 0 to 63
	MinBPS, MaxBPS uint64
	Priority       int // 0 to 7; the lowest borrows first
}

// PortTree is the wanted queueing of a port. The minimums of its queues fit its rate.
type PortTree struct {
	RateBPS uint64
	// MTUBytes is as in sched.Tree.
	MTUBytes uint32
	Queues   []PortQueue
}

// Port schedules a switch port with HTB. It is not safe for concurrent use.
type Port struct {
	tc      TrafficControl
	ifindex int
	leaf    leafKind
}

// NewPort returns the scheduler of the port with index ifindex. It touches nothing until Apply.
func NewPort(tc TrafficControl, ifindex int) *Port { return &Port{tc: tc, ifindex: ifindex} }

// PortOwner is the owner of a device's queueing.
type PortOwner uint8

// The owners of a device's queueing.
const (
	// PortFree: it has the kernel's default.
	PortFree PortOwner = iota
	// PortOurs: it has a PortTree.
	PortOurs
	// PortSwitch: Open vSwitch made it, for a QoS row.
	PortSwitch
	// PortUplink: it is the uplink of an agent.
	PortUplink
	// PortForeign: another program configured it.
	PortForeign
)

// Owner returns the owner of the device's queueing, and a description of its root.
func (p *Port) Owner() (PortOwner, string, error) {
	qdiscs, err := p.tc.Qdiscs(p.ifindex)
	if err != nil {
		return PortFree, "", err
	}
	at := slices.IndexFunc(qdiscs, func(q kernel.Qdisc) bool { return q.Parent == kernel.HandleRoot && q.Handle != 0 })
	if at < 0 {
		return PortFree, "", nil
	}
	root := qdiscs[at]
	what := fmt.Sprintf("%s qdisc (%s)", root.Options.Kind(), root.Handle)
	switch {
	case root.Handle == portHandle:
		return PortOurs, what, nil
	case ownRoot(qdiscs) >= 0:
		return PortUplink, what, nil
	case root.Handle != portClasses:
		return PortForeign, what, nil
	}
	classes, err := p.tc.Classes(p.ifindex)
	if err != nil {
		return PortFree, "", err
	}
	if slices.ContainsFunc(classes, func(c kernel.Class) bool { return c.Handle == openVSwitchRoot }) {
		return PortSwitch, what, nil
	}
	return PortForeign, what, nil
}

// Clear removes the root of the device's queueing, regardless of its owner.
func (p *Port) Clear() error {
	qdiscs, err := p.tc.Qdiscs(p.ifindex)
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if q.Parent == kernel.HandleRoot && q.Handle != 0 {
			return p.tc.Apply(p.ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: &q}})
		}
	}
	return nil
}

// Apply applies want to the device, and reports whether anything changed. Queued packets are kept
// unless the tree has to be made anew. The device must have no queueing of others.
func (p *Port) Apply(want PortTree) (changed bool, err error) {
	var refused error
	for range 1 + retries {
		there, err := p.observe()
		if err != nil {
			return changed, err
		}
		ops := changes(want.desired(p.leaf), there)
		if len(ops) == 0 {
			return changed, nil
		}
		changed = true
		if refused = p.tc.Apply(p.ifindex, ops); refused == nil {
			return true, nil
		}
		if p.leaf != leafFqCodel || !lacksQdisc(refused, leafFqCodel.String()) {
			break
		}
		p.leaf = leafBFIFO
	}
	return changed, explain("make queues", refused)
}

// observe reads the port's tree from the kernel, and adopts the kind of its queues.
func (p *Port) observe() (s state, err error) {
	qdiscs, err := p.tc.Qdiscs(p.ifindex)
	if err != nil {
		return s, err
	}
	if !slices.ContainsFunc(qdiscs, func(q kernel.Qdisc) bool { return q.Parent == kernel.HandleRoot && q.Handle == portHandle }) {
		return s, nil
	}
	for _, q := range qdiscs {
		if q.Handle.Major() == 0 || q.Parent == kernel.HandleIngress {
			continue
		}
		s.qdiscs = append(s.qdiscs, q)
		if q.Handle == portQueue(0) && q.Options.Kind() == leafBFIFO.String() {
			p.leaf = leafBFIFO
		}
	}
	classes, err := p.tc.Classes(p.ifindex)
	for _, c := range classes {
		if c.Handle.Major() == portClassMajor {
			s.classes = append(s.classes, c)
		}
	}
	return s, err
}

// desired returns the kernel state of a tree.
func (w PortTree) desired(leaf leafKind) state {
	t := terms{
		rateBPS: w.RateBPS, packetBytes: sched.LargestPacketBytes(w.RateBPS, w.MTUBytes, 0), frameBytes: sched.MTUFrameBytes(w.MTUBytes),
		leaf: leaf, places: portPlaces,
	}
	root, linkBurst := shared(w.RateBPS), burstBytes(w.RateBPS, burstMilliseconds, t.packetBytes)
	s := state{
		inner: 2,
		qdiscs: []kernel.Qdisc{
			{Handle: portHandle, Parent: kernel.HandleRoot, Options: t.link()},
			{Handle: portClasses, Parent: kernel.NewHandle(portMajor, 1), Options: kernel.HTB{
				DefaultMinor: portClass(0).Minor(), DirectPackets: directPackets}},
		},
		classes: []kernel.Class{
			t.kernelClass(portRootClass, kernel.HandleRoot, root, burstBytes(root, burstMilliseconds, t.packetBytes), root, linkBurst, innerQuantum, innerPrio),
		},
	}
	least := w.RateBPS
	for _, q := range w.Queues {
		least = min(least, q.MinBPS)
	}
	for _, q := range w.Queues {
		// As for a share of an uplink, this bounds a debt to one second.
		rate := max(shared(q.MinBPS), min(8*uint64(t.packetBytes), w.RateBPS))
		ceil, ceilBurst := max(shared(q.MaxBPS), rate), linkBurst
		if q.MaxBPS < w.RateBPS {
			ceilBurst = ceil / 8 * ceilBurstMicroseconds / 1e6
		}
		// Queues of one priority divide idle rate in proportion to their minimums.
		turn := min(q.MinBPS/max(least, 1), maxQuantumPackets) * uint64(t.packetBytes)
		s.classes = append(s.classes, t.kernelClass(portClass(q.ID), portRootClass,
			rate, burstBytes(rate, burstMilliseconds, t.packetBytes), ceil, ceilBurst, uint32(turn), uint32(q.Priority)))
		s.qdiscs = append(s.qdiscs, kernel.Qdisc{Handle: portQueue(q.ID), Parent: portClass(q.ID), Options: t.portLeaf(rate)})
	}
	return s
}

// portLeaf returns the AQM of a queue that can always send at rateBPS.
func (t terms) portLeaf(rateBPS uint64) kernel.Options {
	if t.leaf == leafBFIFO {
		return kernel.BFIFO{LimitBytes: quantize(t.fifoBytes(rateBPS, t.packetBytes, 0))}
	}
	return t.aqm(rateBPS, t.packetBytes)
}

// PortCounters are the kernel's counters of one queue since it was made.
type PortCounters struct {
	SentBytes      uint64
	SentPackets    uint32 // wraps
	DroppedPackets uint32 // wraps
}

// Counters returns the counters of queues, by queue number, without missing queues.
func (p *Port) Counters(ids []int) (map[int]PortCounters, error) {
	var handles []kernel.Handle
	for _, id := range ids {
		handles = append(handles, portClass(id))
	}
	sent, err := p.tc.ClassStats(p.ifindex, handles, nil)
	if err != nil {
		return nil, err
	}
	queues, err := p.tc.QueueStats(p.ifindex)
	if err != nil {
		return nil, err
	}
	out := map[int]PortCounters{}
	for _, s := range sent {
		id := int(s.Handle.Minor()) - 1
		out[id] = PortCounters{SentBytes: s.SentBytes, SentPackets: s.SentPackets, DroppedPackets: queues[portQueue(id)].DroppedPackets}
	}
	return out, nil
}
