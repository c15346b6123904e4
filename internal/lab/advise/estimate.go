package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// modes lists the modes with results, in their order.
func (m Measurements) modes() []string {
	var modes []string
	for _, one := range m.Results {
		if !slices.Contains(modes, one.Mode) {
			modes = append(modes, one.Mode)
		}
	}
	return modes
}

// link returns the measured link closest to the question's rate within nearLink, or else the
// unlimited link, whose throughput is then capped at the uplink's rate.
func (m Measurements) link(q Question) (linkBPS uint64, note string) {
	var links []uint64
	for _, one := range m.Results {
		if !slices.Contains(links, one.LinkBPS) {
			links = append(links, one.LinkBPS)
		}
	}
	far := func(link uint64) float64 {
		if link == 0 || q.RateBPS == 0 {
			return math.Inf(1)
		}
		return math.Abs(math.Log(float64(link) / float64(q.RateBPS)))
	}
	nearest := slices.MinFunc(links, func(x, y uint64) int {
		if far(x) < far(y) {
			return -1
		}
		return 1
	})
	unlimited := slices.Contains(links, 0)
	switch {
	case far(nearest) <= math.Log(nearLink):
		return nearest, ""
	case unlimited && q.RateBPS > 0 && q.Protocol == "udp":
		return 0, fmt.Sprintf("no link near %s was measured: where nothing pushes back on UDP, as in bridge and overlay mode, its sender works as fast as it can, also beyond what the link takes, "+
			"so what that costs is not known; measure it with weir bench netmodes --save --links RATE,none", rateText(float64(q.RateBPS)))
	case unlimited:
		return 0, ""
	}
	return nearest, fmt.Sprintf("only a link of %s was measured; measure others with weir bench netmodes --save --links RATE,none", rateText(float64(nearest)))
}

// outside returns in which respects a question lies outside of the measured range.
func (m Measurements) outside(q Question) []string {
	var warnings []string
	check := func(what string, value int, field func(Result) int) {
		low, high := math.MaxInt, 0
		for _, one := range m.Results {
			low, high = min(low, field(one)), max(high, field(one))
		}
		if value < low || value > high {
			warnings = append(warnings, fmt.Sprintf("%s: %d is outside of what was measured, %d to %d; the nearest stands for it", what, value, low, high))
		}
	}
	check("containers", q.Containers, func(r Result) int { return r.Containers })
	check("bytes", q.MessageBytes, func(r Result) int { return r.MessageBytes })
	return warnings
}

// estimate returns a mode's expected performance, with the agent if that was measured.
func (m Measurements) estimate(mode string, q Question, linkBPS uint64) (Option, bool) {
	o := Option{Mode: mode, Available: true}
	withAgent := slices.ContainsFunc(m.Results, func(r Result) bool { return r.Mode == mode && r.Agent })
	if _, known := m.Uncontrolled[mode]; known || withAgent {
		controlled := !known
		o.Controlled = &controlled
	}
	if mode == Native {
		o.Controlled = nil
	}
	var results []Result
	for _, one := range m.Results {
		if one.Mode == mode && one.Protocol == q.Protocol && one.LinkBPS == linkBPS && one.Agent == withAgent {
			results = append(results, one)
		}
	}
	if len(results) == 0 {
		return o, false
	}
	o.rate = interpolate(results, q, func(r Result) span { return r.rate().inverse() }).inverse()
	// Per gigabit, so that a run delayed by the machine does not look cheap.
	o.cpu = interpolate(results, q, func(r Result) span {
		low, high := r.CPU.span()
		rate := r.rate()
		return span{r.CPU.Median / rate.median * 1e9, low / rate.high * 1e9, high / rate.low * 1e9}
	})
	if q.RateBPS > 0 {
		o.rate = o.rate.atMost(float64(q.RateBPS))
	}
	o.RateBPS, o.RateLowBPS, o.RateHighBPS = o.rate.median, o.rate.low, o.rate.high
	o.CPUPerGbit = o.cpu.median
	return o, true
}

// rate returns the rate that a result carried in bits per second, at least 1.
func (r Result) rate() span {
	low, high := r.Rate.span()
	return span{max(r.Rate.Median, 1), max(low, 1), max(high, 1)}
}

// span is a value with the smallest and largest of its repeats.
type span struct{ median, low, high float64 }

// inverse returns 1 divided by a positive span.
func (s span) inverse() span {
	return span{1 / s.median, 1 / s.high, 1 / s.low}
}

// between combines two spans number by number.
func (s span) between(other span, rule func(x, y float64) float64) span {
	return span{rule(s.median, other.median), rule(s.low, other.low), rule(s.high, other.high)}
}

func (s span) atMost(most float64) span {
	return span{min(s.median, most), min(s.low, most), min(s.high, most)}
}

// same reports whether two spans are equal within noise: they differ by less than part, or their
// repeats overlap.
func (s span) same(other span, part float64) bool {
	if math.Abs(s.median-other.median) <= part*max(s.median, other.median) {
		return true
	}
	return s.low <= other.high && other.low <= s.high
}

// interpolate is a cost of each bit at a size and a number of containers between those that
// were measured; outside, that of the nearest.
//
// A message costs a fixed time, that of the system call and of the way through the stack,
// and a time for each byte, that of copying it and of the link. So what a message costs is
// on a straight line between two sizes, whichever of the two weighs more, and what a bit
// costs follows from that. (Interpolating logarithms of rates is the same where one of them
// is all of it, and wrong between.) Several containers have no such law: between two numbers
// of them logarithms are interpolated.
func interpolate(results []Result, q Question, cost func(Result) span) span {
	fewer, more, c := around(results, q.Containers, func(r Result) int { return r.Containers }, math.Log)
	smaller, larger, b := around(results, q.MessageBytes, func(r Result) int { return r.MessageBytes }, func(v float64) float64 { return v })
	at := func(containers int) (span, bool) {
		small, hasSmall := find(results, containers, smaller)
		large, hasLarge := find(results, containers, larger)
		switch {
		case hasSmall && hasLarge:
			return cost(small).between(cost(large), func(x, y float64) float64 {
				smallWeight, largeWeight := (1-b)*float64(smaller), b*float64(larger)
				return (smallWeight*x + largeWeight*y) / (smallWeight + largeWeight)
			}), true
		case hasSmall:
			return cost(small), true
		case hasLarge:
			return cost(large), true
		}
		return span{}, false
	}
	few, hasFew := at(fewer)
	many, hasMany := at(more)
	switch {
	case hasFew && hasMany:
		return few.between(many, func(x, y float64) float64 { return math.Pow(x, 1-c) * math.Pow(y, c) })
	case hasFew:
		return few
	case hasMany:
		return many
	}
	// The grid has holes: the nearest result stands for all.
	return cost(slices.MinFunc(results, func(x, y Result) int { return cmp.Compare(distance(x, q), distance(y, q)) }))
}

// find returns the result for a number of containers and a message size.
func find(results []Result, containers, bytes int) (Result, bool) {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Containers == containers && r.MessageBytes == bytes })
	if i < 0 {
		return Result{}, false
	}
	return results[i], true
}

func distance(r Result, q Question) float64 {
	return math.Abs(math.Log(float64(r.Containers)/float64(q.Containers))) +
		math.Abs(math.Log(float64(r.MessageBytes)/float64(q.MessageBytes)))
}

// around returns the measured values below and above value, and value's position between them, 0 to
// 1.
func around(results []Result, value int, field func(Result) int, scale func(float64) float64) (low, high int, part float64) {
	low, high = 0, math.MaxInt
	for _, one := range results {
		v := field(one)
		if v <= value {
			low = max(low, v)
		}
		if v >= value {
			high = min(high, v)
		}
	}
	switch {
	case low == 0:
		return high, high, 0
	case high == math.MaxInt || low == high:
		return low, low, 0
	}
	from, to := scale(float64(low)), scale(float64(high))
	return low, high, (scale(float64(value)) - from) / (to - from)
}
