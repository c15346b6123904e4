package stats

// Totals are the bytes and packets that a container has sent at one uplink. They only grow while
// the container runs.
type Totals struct {
	SentBytes      uint64
	SentPackets    uint64
	DroppedPackets uint64
	// MarkedPackets counts packets that the container's queue marked with ECN CE.
	MarkedPackets uint64
}

// Sent holds the kernel's counters of one number at one moment: those of its class, and of packets
// that bypassed the classes.
type Sent struct {
	ClassBytes    uint64
	DirectBytes   uint64
	ClassPackets  uint32
	DirectPackets uint32
}

// Queue holds the kernel's counters of one number's queue.
type Queue struct {
	DroppedPackets uint32
	MarkedPackets  uint32
}

// Reading is the last reading of one number's kernel counters.
type Reading struct {
	Sent
	Queue
}

// Ledger turns one uplink's kernel counters into totals that only grow. It remembers the last
// reading of each number, so that a number's counts under one holder are not added to the next
// holder's. The zero value is empty: the first reading counts in full.
type Ledger struct {
	last map[uint16]Reading
}

// CountSent adds to total what number has sent since the last reading.
//
// If the byte counter went back, the class was made again and counts from zero. The 32-bit packet
// counter alone proves nothing, because it also wraps.
func (l *Ledger) CountSent(number uint16, now Sent, total *Totals) {
	last := l.last[number]
	if now.ClassBytes < last.ClassBytes || wentBack(last.ClassPackets, now.ClassPackets) {
		last.ClassBytes, last.ClassPackets = 0, 0
		last.Queue = Queue{} // the queue was made again with its class
	}
	if now.DirectBytes < last.DirectBytes || wentBack(last.DirectPackets, now.DirectPackets) {
		last.DirectBytes, last.DirectPackets = 0, 0
	}
	total.SentBytes += now.ClassBytes - last.ClassBytes + now.DirectBytes - last.DirectBytes
	total.SentPackets += uint64(now.ClassPackets-last.ClassPackets) + uint64(now.DirectPackets-last.DirectPackets)
	last.Sent = now
	l.set(number, last)
}

// CountQueue adds to total the packets dropped and marked in the queue of number since the last
// reading. Call it after CountSent.
func (l *Ledger) CountQueue(number uint16, now Queue, total *Totals) {
	last := l.last[number]
	if wentBack(last.DroppedPackets, now.DroppedPackets) || wentBack(last.MarkedPackets, now.MarkedPackets) {
		last.Queue = Queue{}
	}
	total.DroppedPackets += uint64(now.DroppedPackets - last.DroppedPackets)
	total.MarkedPackets += uint64(now.MarkedPackets - last.MarkedPackets)
	last.Queue = now
	l.set(number, last)
}

// wentBack reports whether a 32-bit counter was reset rather than wrapped: in serial number
// arithmetic (RFC 1982) now is before last.
func wentBack(last, now uint32) bool { return now-last >= 1<<31 }

// Last returns the last reading of number.
func (l *Ledger) Last(number uint16) Reading { return l.last[number] }

// Resume sets the last reading of number, taken by another ledger.
func (l *Ledger) Resume(number uint16, last Reading) { l.set(number, last) }

// ClassesMade records that all classes of the uplink were made again and count from zero.
func (l *Ledger) ClassesMade() {
	for number, last := range l.last {
		l.last[number] = Reading{Sent: Sent{DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets}}
	}
}

// Keep drops the readings of numbers for which keep returns false. Their classes are gone and count
// from zero when a number gets another holder.
func (l *Ledger) Keep(keep func(number uint16) bool) {
	for number := range l.last {
		if !keep(number) {
			delete(l.last, number)
		}
	}
}

func (l *Ledger) set(number uint16, r Reading) {
	if l.last == nil {
		l.last = map[uint16]Reading{}
	}
	l.last[number] = r
}
