package apps

import "time"

// Loan decides whether a flow keeps the EF that its verdict gave it.
//
// Problem: a wrong EF delays every urgent flow beside it, a wrong BE only itself, and the first
// packets cannot tell a call from a transfer to an unknown port. Method: two leaky buckets of what
// the flow sends. In the first a packet weighs its bytes times the square of its part of a full
// one, so that a packet of voice weighs a fiftieth of what its bytes of a transfer do; in the second
// all bytes count. A flow that overfills one is bulk until both have drained. In the kernel
// bpf/flow.h (weir_lend) does the same for each packet; this is for counters that are read now
// and then.
//
// The zero value is the loan of a flow that has sent nothing.
type Loan struct {
	large, all float64 // bytes in the buckets
	bulk       bool
}

// What a flow may send and stay EF: so many bytes at once, and then a rate.
const (
	fullBytes    = 1448 // payload of a full packet
	largeBytes   = 16 << 10
	largeRateBPS = 61_000 // 8 bytes in 2^20 ns
	allBytes     = 64 << 10
	allRateBPS   = 1_907_000
	bulkBytes    = 64 << 10 // in the first bucket of a flow that is bulk: it drains in nine seconds
)

// Sent adds packets that were sent evenly within elapsed, and reports whether the flow is bulk.
// bytes include headers.
func (l *Loan) Sent(elapsed time.Duration, packets, bytes uint64) bool {
	const bitsPerByte = 8
	seconds, full := elapsed.Seconds()/bitsPerByte, 0.0
	if packets > 0 {
		full = min(float64(bytes)/float64(packets)/fullBytes, 1)
	}
	l.large = max(l.large+float64(bytes)*full*full-seconds*largeRateBPS, 0)
	l.all = max(l.all+float64(bytes)-seconds*allRateBPS, 0)
	switch over := l.large > largeBytes || l.all > allBytes; {
	case over && !l.bulk:
		l.bulk, l.large = true, bulkBytes
	case l.large == 0 && l.all == 0:
		l.bulk = false
	}
	l.large, l.all = min(l.large, bulkBytes), min(l.all, allBytes)
	return l.bulk
}
