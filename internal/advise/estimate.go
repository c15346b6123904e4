package advise

import (
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

// link is the measured link that stands for the question's: the nearest within a
// factor, or else the one without limit, whose throughput the uplink's rate bounds.
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
		return 0, fmt.Sprintf("no link near %s was measured: where nothing pushes back on UDP, as in bridge and overlay mode, its sender works as fast as it can whatever the link takes, "+
			"so what that costs is not known; measure it with weir bench netmodes --save --links RATE,none", rateText(float64(q.RateBPS)))
	case unlimited:
		return 0, ""
	}
	return nearest, fmt.Sprintf("only a link of %s was measured; measure others with weir bench netmodes --save --links RATE,none", rateText(float64(nearest)))
}

// outside says where a question lies outside of what was measured.
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

// estimate is what to expect of a mode: with the agent where that was measured.
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
	o.rate = interpolate(results, q, func(r Result) (median, low, high float64) {
		low, high = r.Rate.span()
		return r.Rate.Median, low, high
	})
	// For a gigabit, so that a run that carried less because it was held up does not
	// seem cheap.
	o.cpu = interpolate(results, q, func(r Result) (median, low, high float64) {
		low, high = r.CPU.span()
		least, most := r.Rate.span()
		return r.CPU.Median / r.Rate.Median * 1e9, low / most * 1e9, high / max(least, 1) * 1e9
	})
	if q.RateBPS > 0 {
		o.rate = o.rate.atMost(float64(q.RateBPS))
	}
	o.RateBPS, o.RateLowBPS, o.RateHighBPS = o.rate.median, o.rate.low, o.rate.high
	o.CPUPerGbit = o.cpu.median
	return o, true
}

// span is a value with what its repeats differ by.
type span struct{ median, low, high float64 }

func (s span) atMost(most float64) span {
	return span{min(s.median, most), min(s.low, most), min(s.high, most)}
}

// same says that two values cannot be told apart: they differ by less than a part, or
// what their repeats differ by overlaps.
func (s span) same(other span, part float64) bool {
	if math.Abs(s.median-other.median) <= part*max(s.median, other.median) {
		return true
	}
	return s.low <= other.high && other.low <= s.high
}

// interpolate is a value between the measured numbers of containers and sizes, on
// logarithmic scales; outside, that of the nearest.
func interpolate(results []Result, q Question, value func(Result) (median, low, high float64)) span {
	var logs [3]float64
	sum := 0.0
	add := func(containers, bytes int, weight float64) {
		for _, one := range results {
			if one.Containers == containers && one.MessageBytes == bytes && weight > 0 {
				median, low, high := value(one)
				for i, v := range []float64{median, low, high} {
					logs[i] += weight * math.Log(max(v, math.SmallestNonzeroFloat64))
				}
				sum += weight
			}
		}
	}
	fewer, more, c := around(results, q.Containers, func(r Result) int { return r.Containers })
	smaller, larger, b := around(results, q.MessageBytes, func(r Result) int { return r.MessageBytes })
	add(fewer, smaller, (1-c)*(1-b))
	add(fewer, larger, (1-c)*b)
	add(more, smaller, c*(1-b))
	add(more, larger, c*b)
	if sum == 0 {
		// The grid has holes: the nearest result stands for all.
		near := slices.MinFunc(results, func(x, y Result) int {
			if distance(x, q) < distance(y, q) {
				return -1
			}
			return 1
		})
		median, low, high := value(near)
		return span{median, low, high}
	}
	return span{math.Exp(logs[0] / sum), math.Exp(logs[1] / sum), math.Exp(logs[2] / sum)}
}

func distance(r Result, q Question) float64 {
	return math.Abs(math.Log(float64(r.Containers)/float64(q.Containers))) +
		math.Abs(math.Log(float64(r.MessageBytes)/float64(q.MessageBytes)))
}

// around are the measured values below and above one, and how far it lies from the
// lower to the upper, 0 to 1.
func around(results []Result, value int, field func(Result) int) (low, high int, part float64) {
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
	return low, high, math.Log(float64(value)/float64(low)) / math.Log(float64(high)/float64(low))
}
