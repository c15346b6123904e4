package apps

import "time"

// EFPolicer decides whether a flow keeps the EF that its verdict gave it.
//
// Problem: a wrong EF delays every urgent flow beside it, a wrong BE only itself, and the first
// packets cannot tell a call from a transfer to an unknown port. Method: two leaky buckets of what
// the flow sends. In the first a packet weighs its bytes times the square of its part of a full
// one, so that a packet of voice weighs a fiftieth of what its bytes of a transfer do; in the second
// all bytes count. A flow that overfills one is bulk until both have drained (hysteresis). In the
// kernel bpf/police.h does the same for each packet; this is for counters that are read
// now and then.
//
// The zero value is the policer of a flow that has sent nothing.
type EFPolicer struct {
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
func (p *EFPolicer) Sent(elapsed time.Duration, packets, bytes uint64) bool {
	const bitsPerByte = 8
	seconds, full := elapsed.Seconds()/bitsPerByte, 0.0
	if packets > 0 {
		full = min(float64(bytes)/float64(packets)/fullBytes, 1)
	}
	p.large = max(p.large+float64(bytes)*full*full-seconds*largeRateBPS, 0)
	p.all = max(p.all+float64(bytes)-seconds*allRateBPS, 0)
	switch over := p.large > largeBytes || p.all > allBytes; {
	case over && !p.bulk:
		p.bulk, p.large = true, bulkBytes
	case p.large == 0 && p.all == 0:
		p.bulk = false
	}
	p.large, p.all = min(p.large, bulkBytes), min(p.all, allBytes)
	return p.bulk
}
