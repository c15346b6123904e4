package htb

import "time"

// Stretching the FIFO of a container whose senders fill the bottleneck.
//
// Problem. BBR's senders, and many of CUBIC's on a slow link, have more packets under way than the path and a queue of
// 7 ms hold. What the queue drops, they send again, so more arrives than the rate, and what they have under way waits
// before this host, where packets of all containers wait: beside 16 flows of BBR at 100 Mbit/s a sparse
// download of another container took 35 ms longer.
//
// Method. While the bottleneck is full, the FIFO of each container that receives more than it may have is doubled,
// until its packets wait there, behind those of their own container alone. With fq_codel they do so anyway, and
// sparse flows do not wait for them.
//
// Bounds. A queue holds mostQueueMilliseconds at most. If the excess stays for unresponsiveAfter, a long queue only delays, and it
// is short for exemptFor. After stretchFor without an excess it is halved.
const (
	mostDoublings = 3
	// fullArrives is what arrives of the rate when a bottleneck of 1.05 is about full, and for a container of
	// what it may have when its senders fill it. Short of that no queue stands there, and a long one costs
	// others' single flows a part of their minimum: 7 % in the worst second beside 32 of CUBIC, of which 1.034 arrives.
	fullArrives = 1.04
	stretchFor  = time.Minute
)

// stretch is how long a member's FIFO is.
type stretch struct {
	doublings uint8
	// changedAt is its last change, excessAt the last time with an excess.
	changedAt, excessAt, shortUntil time.Time
}

// judge changes the length at most once in holdbackDelay, and reports whether it did.
func (s *stretch) judge(now time.Time, excess bool) (changed bool) {
	if excess {
		s.excessAt = now
	}
	before, age := s.doublings, now.Sub(s.changedAt)
	switch {
	case !excess:
		if s.doublings > 0 && min(age, now.Sub(s.excessAt)) > stretchFor {
			s.doublings--
		}
	case s.doublings == mostDoublings && age > unresponsiveAfter:
		s.doublings, s.shortUntil = 0, now.Add(exemptFor)
	case s.doublings < mostDoublings && age > holdbackDelay && now.After(s.shortUntil):
		s.doublings++
	}
	if s.doublings != before {
		s.changedAt = now
	}
	return s.doublings != before
}
