package run

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
)

// TestSaidOnce: what goes on is said once in a while, also if its figures change all the time.
func TestSaidOnce(t *testing.T) {
	m, o := newManager(t), shop(0, 0)
	for mbit := range uint64(20) {
		division := engine.Division{Needs: map[engine.Entry]engine.Need{{Service: "shop", Node: "b"}: {LocalBPS: (10 + mbit) * 1e6}, {Service: "shop", Node: "c"}: {LocalBPS: 5e6}}, MinBPS: map[string]engine.Rates{"shop": {Out: 20e6}}}
		m.journal.sayShortfalls(o, &claimStep{division: division, promised: engine.Promises{"shop@b": {Service: "shop", Node: "b", MinBPS: 3e6, Claim: true}}})
	}
	if said := strings.Count(m.said(), "the minimum 20mbit of shop"); said != 2 {
		t.Errorf("of two nodes it is said %d times:\n%s", said, m.said())
	}
}
