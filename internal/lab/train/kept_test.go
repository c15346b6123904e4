package train

import (
	"math"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Packets of the policer have headers: Ethernet's, IPv4's and TCP's.
const (
	headerBytes = 54
	fullPayload = 1448
)

// sent are the payloads that one side of a flow sends from the flow's sixth packet with payload on,
// where the policer begins. A table has the sizes of the first six in order, of the first three of
// each side, and sums. So what it does not have is assumed to be as the policer likes least: full
// packets if the mean says that there are any larger than those known, or else as large as the
// largest known, the rest without payload.
func sent(f *flow.Flow, responder bool) (payloads []float64) {
	first, sum, count := flow.ClientLen1, flow.BytesClient, flow.PktsClient
	if responder {
		first, sum, count = flow.ServerLen1, flow.BytesServer, flow.PktsServer
	}
	left, packets, largest := f.Values[sum], f.Values[count], 1.0
	for i := range flow.SidePackets {
		largest = max(largest, f.Values[first+2*i])
	}
	for i := range flow.SeqPackets {
		length := f.Values[flow.SeqLen1+2*i]
		if length == 0 || math.IsNaN(length) { // there are fewer: none is policed
			return nil
		}
		if (length < 0) != responder {
			continue
		}
		largest, left, packets = max(largest, math.Abs(length)), left-math.Abs(length), packets-1
		if i == flow.SeqPackets-1 {
			payloads = append(payloads, math.Abs(length))
		}
	}
	if packets > 0 && left/packets > largest {
		largest = fullPayload
	}
	for ; packets > 0; packets-- {
		payload := max(min(largest, left), 0)
		payloads, left = append(payloads, payload), left-payload
	}
	return payloads
}

// police plays what a side sends to the policer, and returns the bytes that are EF and whether the
// flow turns out to be bulk. The table does not say when packets are sent: all at once, which is the
// worst for an urgent flow.
func police(f *flow.Flow, responder bool) (urgentBytes float64, bulk bool) {
	var policer apps.EFPolicer
	for _, payload := range sent(f, responder) {
		if policer.Sent(0, 1, uint64(payload)+headerBytes) {
			bulk = true
			continue
		}
		urgentBytes += payload + headerBytes
	}
	return urgentBytes, bulk
}

// Urgent flows that must keep the EF of their verdict have packets of less than smallPayload on
// average, or less than smallFlow in all.
const (
	smallFlow    = 64 << 10
	smallPayload = 600
)

func isSmall(f *flow.Flow) bool {
	bytes, packets := f.Bytes(), max(f.Values[flow.PktsClient]+f.Values[flow.PktsServer], 1)
	return bytes < smallFlow || bytes/packets < smallPayload
}

// urgentTypes have EF by the table of levels.
var urgentTypes = []string{"VOIP", "GAME", "SERVICES", "CHAT"}

// verdicts are what a stage says of small urgent flows by type, and of flows that are not urgent.
type verdicts struct {
	ef, kept   map[string]int // small urgent flows that are EF by their verdict; that keep it
	wrong      int            // flows that are not urgent and EF by their verdict
	wrongBytes float64        // what they send as EF
}

// efFrom judges as if EF took at least this confidence, and what is less certain were BE.
func efFrom(judged []Judged, stage int, confidence float64) verdicts {
	out := verdicts{ef: map[string]int{}, kept: map[string]int{}}
	for _, j := range judged {
		v, name := j.Verdicts[stage], apps.Types[j.Type]
		if v.Level != apps.EF {
			continue
		}
		isUrgent, isSure := apps.DefaultLevels()[j.Type] == apps.EF, v.LevelConfidence >= confidence
		urgentBytes, bulk := 0.0, false
		for _, responder := range []bool{false, true} { // either side may be the container
			n, is := police(j.Flow, responder)
			urgentBytes, bulk = max(urgentBytes, n), bulk || is
		}
		switch {
		case isUrgent && isSmall(j.Flow):
			out.ef[name]++
			if isSure && !bulk {
				out.kept[name]++
			}
		case !isUrgent && isSure:
			out.wrong++
			out.wrongBytes += urgentBytes
		}
	}
	return out
}

// least returns the smallest part of a type's urgent flows that keep EF.
func (v *verdicts) least() float64 {
	out := 1.0
	for name, n := range v.ef {
		out = min(out, float64(v.kept[name])/float64(n))
	}
	return out
}

// keptPart of small urgent flows of each type keep the EF of their verdict.
const keptPart = 0.95

// checkKept: small urgent flows keep their EF, at both stages, in each way to make the folds. Doubt is
// not BE: a least confidence of EF with which they keep it would take it from hardly any of the flows
// that are wrongly EF.
func checkKept(t *testing.T, ways [][]Judged) {
	t.Helper()
	const mostTaken = 0.1
	for stage := range 2 {
		var now []verdicts
		for _, judged := range ways {
			v := efFrom(judged, stage, 0)
			now = append(now, v)
			for _, name := range urgentTypes {
				if v.ef[name] == 0 || float64(v.kept[name]) < keptPart*float64(v.ef[name]) {
					t.Errorf("stage %d: %d of %d flows of %s keep EF, want %.0f %%", stage+1, v.kept[name], v.ef[name], name, 100*keptPart)
				}
			}
			t.Logf("stage %d: %v of %v keep EF, at least %.1f %% of a type; %d others have it, with %.0f bytes", stage+1, v.kept, v.ef, 100*v.least(), v.wrong, v.wrongBytes)
		}
		for confidence := 0.35; confidence < 0.7; confidence += 0.05 {
			least, had, have, hadBytes, haveBytes := 1.0, 0, 0, 0.0, 0.0
			for i, judged := range ways {
				v := efFrom(judged, stage, confidence)
				least = min(least, v.least())
				had, have, hadBytes, haveBytes = had+now[i].wrong, have+v.wrong, hadBytes+now[i].wrongBytes, haveBytes+v.wrongBytes
			}
			t.Logf("stage %d, EF from %.2f: at least %.1f %% of a type keep it, %d of %d others, %.0f of %.0f bytes", stage+1, confidence, 100*least, have, had, haveBytes, hadBytes)
			if least >= keptPart && (float64(have) < (1-mostTaken)*float64(had) || haveBytes < (1-mostTaken)*hadBytes) {
				t.Errorf("stage %d: EF from a confidence of %.2f would be better", stage+1, confidence)
			}
		}
	}
}
