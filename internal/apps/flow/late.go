package flow

import (
	"fmt"
	"math"
)

// lengthOffset is added to signed lengths to make them positive.
const lengthOffset = 1 << 16

// lateFeatures returns the features that need packets after the first.
func lateFeatures() []Feature {
	var out []Feature
	for i := range SeqPackets {
		out = append(out, Feature{
			Name: fmt.Sprintf("seq_len%d", i+1), Code: uint8(codeSeqLen + i), Offset: lengthOffset, Late: true,
			of: func(f *Flow, _ *Ports) float64 { return f.seqLen(i) },
		})
	}
	for i := range SeqPackets {
		out = append(out, Feature{
			Name: fmt.Sprintf("seq_iat%d_us", i+1), Code: uint8(codeSeqGap + i), Offset: 1, Late: true,
			of: func(f *Flow, _ *Ports) float64 { return clampTime(f.Values[SeqLen1+2*i+1]) },
		})
	}
	for i := range SidePackets {
		out = append(out, Feature{
			Name: fmt.Sprintf("c2s_len%d", i+1), Code: uint8(codeClientLen + i), Offset: 1, Late: true,
			of: func(f *Flow, _ *Ports) float64 { return f.Values[ClientLen1+2*i] },
		})
	}
	for i := range SidePackets {
		out = append(out, Feature{
			Name: fmt.Sprintf("s2c_len%d", i+1), Code: uint8(codeServerLen + i), Offset: 1, Late: true,
			of: func(f *Flow, _ *Ports) float64 { return f.Values[ServerLen1+2*i] },
		})
	}
	for _, c := range []struct {
		name           string
		code           uint8
		offset, column int
	}{
		{"mss_s2c", codeMSSServer, 0, MSSServer},
		{"win_s2c", codeWindowServer, 1, WindowServer},
		{"wscale_s2c", codeWScaleServer, 1, WScaleServer},
		{"ttl_s2c", codeTTLServer, 1, TTLServer},
	} {
		out = append(out, Feature{
			Name: c.name, Code: c.code, Offset: c.offset, Late: true,
			of: func(f *Flow, _ *Ports) float64 { return f.Values[c.column] },
		})
	}
	summary := func(g func([]float64) float64) func(*Flow, *Ports) float64 {
		return func(f *Flow, _ *Ports) float64 {
			lengths, ok := f.lengths()
			if !ok {
				return math.NaN()
			}
			return g(lengths)
		}
	}
	return append(out,
		Feature{Name: "first_side", Code: codeFirstSide, Late: true, Values: []string{"none", "initiator", "responder"}, of: summary(firstSide)},
		Feature{Name: "packets", Code: codePackets, Late: true, of: summary(func(l []float64) float64 { return float64(len(l)) })},
		Feature{Name: "largest", Code: codeLargest, Late: true, of: summary(func(l []float64) float64 { return extreme(l, math.Max) })},
		Feature{Name: "smallest", Code: codeSmallest, Late: true, of: summary(func(l []float64) float64 { return extreme(l, math.Min) })},
		Feature{Name: "turns", Code: codeTurns, Late: true, of: summary(turns)},
		Feature{Name: "longest_gap_us", Code: codeGapMax, Offset: 1, Late: true, of: longestGap},
	)
}

// clampTime sets negative times, caused by clock jumps, to 0. It keeps -1, which means no
// packet.
func clampTime(us float64) float64 {
	if us < -1 {
		return 0
	}
	return us
}

// seqLen returns the length of the i-th payload packet, negative if the responder sent it,
// 0 if there is none.
func (f *Flow) seqLen(i int) float64 { return f.Values[SeqLen1+2*i] }

// lengths returns the lengths of the first payload packets.
func (f *Flow) lengths() ([]float64, bool) {
	var out []float64
	for i := range SeqPackets {
		switch l := f.seqLen(i); {
		case math.IsNaN(l):
			return nil, false
		case l != 0:
			out = append(out, l)
		}
	}
	return out, true
}

func firstSide(lengths []float64) float64 {
	switch {
	case len(lengths) == 0:
		return 0
	case lengths[0] > 0:
		return 1
	}
	return 2
}

func extreme(lengths []float64, better func(a, b float64) float64) float64 {
	if len(lengths) == 0 {
		return 0
	}
	out := math.Abs(lengths[0])
	for _, l := range lengths {
		out = better(out, math.Abs(l))
	}
	return out
}

// turns returns how often the direction changes.
func turns(lengths []float64) float64 {
	n := 0.0
	for i := 1; i < len(lengths); i++ {
		if (lengths[i] > 0) != (lengths[i-1] > 0) {
			n++
		}
	}
	return n
}

// longestGap returns the longest time between two of the first payload packets, or -1 if
// there are fewer than two.
func longestGap(f *Flow, _ *Ports) float64 {
	out := -1.0
	for i := 1; i < SeqPackets; i++ {
		gap := f.Values[SeqLen1+2*i+1]
		if math.IsNaN(gap) {
			return gap
		}
		out = max(out, clampTime(gap))
	}
	return out
}
