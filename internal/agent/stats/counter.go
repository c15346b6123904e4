package stats

// Totals are what a container has sent at one uplink. They only grow for as
// long as the container runs.
type Totals struct {
	SentBytes      uint64
	SentPackets    uint64
	DroppedPackets uint64
	// MarkedPackets were sent with ECN's CE, which its queue had put there.
	MarkedPackets uint64
}

// Sent is what the kernel's counters of one number say at one moment: those of
// its class, and of what went past the classes.
type Sent struct {
	ClassBytes    uint64
	DirectBytes   uint64
	ClassPackets  uint32
	DirectPackets uint32
}

// Queue is what the kernel's counters of one number's queue say.
type Queue struct {
	DroppedPackets uint32
	MarkedPackets  uint32
}

// Reading is the last that is known of the kernel's counters of one number.
type Reading struct {
	Sent
	Queue
}

// Ledger knows what was read last of one uplink's counters, by number. What a
// number had counted under its holder before is not counted for the next. The
// zero value knows nothing: whatever is read first counts in full.
type Ledger struct {
	last map[uint16]Reading
}

// CountSent adds to total what number has sent since it was read last.
//
// A class whose counters went back was made again: it counts from zero. Its
// 32-bit counter of packets alone says little: it wraps, too.
func (l *Ledger) CountSent(number uint16, now Sent, total *Totals) {
	last := l.last[number]
	if now.ClassBytes < last.ClassBytes || wentBack(last.ClassPackets, now.ClassPackets) {
		last.ClassBytes, last.ClassPackets = 0, 0
		last.Queue = Queue{} // it was made again with it
	}
	if now.DirectBytes < last.DirectBytes || wentBack(last.DirectPackets, now.DirectPackets) {
		last.DirectBytes, last.DirectPackets = 0, 0
	}
	total.SentBytes += now.ClassBytes - last.ClassBytes + now.DirectBytes - last.DirectBytes
	total.SentPackets += uint64(now.ClassPackets-last.ClassPackets) + uint64(now.DirectPackets-last.DirectPackets)
	last.Sent = now
	l.set(number, last)
}

// CountQueue adds to total what was dropped from the queue of number and marked in
// it since that was read last. To be called after CountSent.
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

// wentBack says whether a 32-bit counter was set back, other than by a wrap: in
// the arithmetic of serial numbers (RFC 1982) now is before last.
func wentBack(last, now uint32) bool { return now-last >= 1<<31 }

// Last is what was read last of number.
func (l *Ledger) Last(number uint16) Reading { return l.last[number] }

// Resume says what was read last of number, by another ledger.
func (l *Ledger) Resume(number uint16, last Reading) { l.set(number, last) }

// ClassesMade says that all classes of the uplink were made again and count
// from zero.
func (l *Ledger) ClassesMade() {
	for number, last := range l.last {
		l.last[number] = Reading{Sent: Sent{DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets}}
	}
}

// Keep forgets the numbers that are not kept: their classes are gone, and
// begin from zero when a number is given to another container.
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
