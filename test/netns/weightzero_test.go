//go:build netns

package netns

import (
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"
)

// TestWeightZero: containers of weight 0 have their minimums, and what is idle by
// priority; where others have weights they have only the minimum.
func TestWeightZero(t *testing.T) {
	t.Parallel()
	tcp := harness.TCP
	for _, test := range []struct {
		name        string
		competitors []competitor
	}{
		// CNTC, figure 8. Nothing of what is idle is left by who has it first, as one TCP
		// connection would: to the other that is a tenth of its rate.
		{"among themselves", []competitor{
			{labels("weight", "0", "min", "10mbit", "priority", "5"), harness.Flood},
			{labels("weight", "0", "min", "10mbit", "priority", "1"), tcp16},
		}},
		{"beside a weight, which comes first", []competitor{
			{labels("weight", "0", "min", "20mbit"), tcp16},
			{labels("weight", "1"), tcp},
			{labels("weight", "0", "min", "5mbit"), tcp},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			compete(t, b, harness.AgentOptions{}, test.competitors...)
			b.CheckSharesFor(100*mbit, claims(100*mbit, test.competitors...), 2*time.Second)
		})
	}
}
