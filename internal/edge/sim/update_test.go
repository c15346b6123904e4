package sim_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
)

// TestUpdates: after an update in a crowd, also if a node dies meanwhile, all instances have the new
// version or, if it does not answer, the one before; one at a time was in the making, and none was
// missed for it.
func TestUpdates(t *testing.T) {
	for _, tc := range []struct{ bad, dies float64 }{{0, 0}, {1, 0}, {0, 1}, {1, 1}} {
		for seed := range uint64(20) {
			w, happen := updated(tc.bad, tc.dies)(rand.New(rand.NewPCG(seed, 24)))
			ended, before := engine.Action(""), 0
			w.Run(newEngine(t), exploreSeconds, func(_ engine.Input, r engine.Result) {
				starts, running := 0, 0
				for _, d := range r.Decisions {
					if d.Action == engine.Settle || d.Action == engine.GoBack {
						ended = d.Action
					}
					if d.Action == engine.Move && d.Cause == engine.CauseUpdate {
						starts++
					}
				}
				for _, count := range w.Versions("busybox") {
					running += count
				}
				if starts > 1 || tc.dies == 0 && running == 0 && before > 0 {
					t.Fatalf("%+v, seed %d, after %v s: %d started for the update, %d run", tc, seed, w.Seconds(), starts, running)
				}
				before = running
				happen(w.Seconds())
			})
			want, version := engine.Settle, "2"
			if tc.bad > 0 {
				want, version = engine.GoBack, "1"
			}
			if got := w.Versions("busybox"); ended != want || len(got) != 1 || got[version] == 0 || w.Services[0].Versions != (engine.Versions{Wanted: version}) {
				t.Errorf("%+v, seed %d: it ended with %q, and %v run: %+v", tc, seed, ended, got, w.Services[0].Versions)
			}
		}
	}
}
