package htb

import "time"

// Stretching the FIFO of a container whose senders fill the bottleneck.
//
// Problem. BBR's senders, and many of CUBIC's on a slow link, have more packets under way than the path and a queue of
// 7 ms hold. What the queue drops, they send again, so more arrives than the rate, and what they have under way waits
// before this host, where packets of all containers wait: beside 16 flows of BBR at 100 Mbit/s the median of sparse
// downloads of another container took 34 ms longer.
//
// Method. While the bottleneck is full, the FIFO of each container that receives more than it may have is doubled,
// until its packets wait there, behind those of their own container alone. With fq_codel they do so anyway, and
// sparse flows do not wait for them.
//
// Bounds. A queue is not stretched beyond mostQueueMilliseconds. If the excess stays for unresponsiveAfter, or the
// container becomes exempt from limits, a long queue only delays: it is not stretched for exemptFor, and halved every
// holdbackDelay rather than at once, as a FIFO drops whatever arrives until it is below its limit. After stretchFor
// without an excess it is halved once.
const (
	mostDoublings = 3
	// fullLinkRatio is what arrives of the rate when a bottleneck of 1.05 is about full. Short of that no queue
	// stands there, and a long one costs others' single flows a part of their minimum: 7 % in the worst second
	// beside 32 of CUBIC, of which 1.034 arrives.
	fullLinkRatio = 1.04
	// excessPart is the excess over what a container may have at which its senders fill the bottleneck.
	excessPart = 0.04
	stretchFor = time.Minute
)

// stretch is how long a member's FIFO is.
type stretch struct {
	doublings uint8
	// changedAt is its last change, excessAt the last time with an excess, noExcessAt the last one without, or
	// before shortUntil, until when it is not stretched.
	changedAt, excessAt, noExcessAt, shortUntil time.Time
}

// adjust changes the length at most once in holdbackDelay, and reports whether it did.
func (s *stretch) adjust(now time.Time, excess bool) (changed bool) {
	if excess {
		s.excessAt = now
	}
	if s.doublings == mostDoublings && excess && now.Sub(s.noExcessAt) > unresponsiveAfter {
		s.shortUntil = now.Add(exemptFor)
	}
	short := now.Before(s.shortUntil)
	if !excess || short {
		s.noExcessAt = now
	}
	before, age := s.doublings, now.Sub(s.changedAt)
	switch {
	case age <= holdbackDelay:
	case short || min(age, now.Sub(s.excessAt)) > stretchFor:
		s.doublings -= min(s.doublings, 1)
	case excess:
		s.doublings = min(s.doublings+1, mostDoublings)
	}
	if s.doublings != before {
		s.changedAt = now
	}
	return s.doublings != before
}
