package engine_test

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/edge/engine"
)

// TestTaken: what users take is known where it is clearly less than what is in force.
func TestTaken(t *testing.T) {
	at := engine.Entry{Service: "web", Node: "a"}
	one := func(bps uint64) map[engine.Entry]uint64 { return map[engine.Entry]uint64{at: bps} }
	none := map[engine.Entry]uint64{}
	little := engine.Taken{at: {MostBPS: 1e6, BeforeBPS: 2e6, Window: 10 * time.Second}}
	for name, test := range map[string]struct {
		before      engine.Taken
		given, sent map[engine.Entry]uint64
		passed      time.Duration
		want        engine.Taken
	}{
		"all of it":              {nil, one(10e6), one(10e6), time.Second, engine.Taken{}},
		"more, on an idle link":  {nil, one(10e6), one(50e6), time.Second, engine.Taken{}},
		"nearly all":             {nil, one(10e6), one(8.6e6), time.Second, engine.Taken{}},
		"a relay without extra":  {nil, one(10.625e6), one(10e6), time.Second, engine.Taken{}},
		"little, just now":       {nil, one(10e6), one(1e6), time.Second, engine.Taken{at: {MostBPS: 1e6, BeforeBPS: 10e6}}},
		"as before":              {little, one(10e6), one(1e6), time.Second, engine.Taken{at: {MostBPS: 1e6, BeforeBPS: 2e6, Window: 11 * time.Second}}},
		"more":                   {little, one(10e6), one(3e6), time.Second, engine.Taken{at: {MostBPS: 3e6, BeforeBPS: 2e6, Window: 11 * time.Second}}},
		"a window ends":          {little, one(10e6), one(5e5), 5 * time.Second, engine.Taken{at: {MostBPS: 5e5, BeforeBPS: 1e6}}},
		"all of it again":        {little, one(10e6), one(9e6), time.Second, engine.Taken{}},
		"nobody has looked":      {little, one(10e6), none, time.Hour, little},
		"nobody has ever looked": {nil, one(10e6), none, time.Second, engine.Taken{}},
		"nothing is in force":    {little, one(0), one(0), time.Second, engine.Taken{}},
		"nobody comes there":     {little, none, one(1e6), time.Second, engine.Taken{}},
	} {
		if got := test.before.Next(test.given, test.sent, test.passed); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestTakenSettles: whatever users of two nodes want, with noise, of an instance whose
// minimum is all that there is: nobody starves, who wants less than his part gets it, what he
// leaves is for the others, and parts come to rest.
func TestTakenSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const minBPS = 20_000_000
		const tenth, step = minBPS / 10, 500 * time.Millisecond
		promises := engine.Promises{"web-1": {Service: "web", Node: "a", MinBPS: minBPS}}
		own, other := engine.Entry{Service: "web", Node: "a"}, engine.Entry{Service: "web", Node: "b"}
		path := engine.Path{Instance: "web-1", Node: "b"}
		comers := map[engine.Entry]float64{own: rapid.Float64Range(2, 20).Draw(t, "users"), other: rapid.Float64Range(2, 20).Draw(t, "users of the other")}
		wants := map[engine.Entry]float64{own: rapid.Float64Range(0, 2*minBPS).Draw(t, "wanted"), other: rapid.Float64Range(0, 2*minBPS).Draw(t, "wanted of the other")}
		noise := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "noise"), 0))
		var taken engine.Taken
		var tenths engine.Tenths
		given := map[engine.Entry]uint64{}
		changes := 0
		for i := range 240 {
			users := map[engine.Path]float64{{Instance: "web-1", Node: "a"}: comers[own], path: comers[other]}
			var d engine.Division
			before := tenths[path]
			d, tenths = engine.Divide(promises, users, taken, tenths)
			if i >= 120 && tenths[path] != before {
				changes++
			}
			given = map[engine.Entry]uint64{own: d.Local[own], other: d.Sent["web-1"]}
			sent := map[engine.Entry]uint64{}
			for entry, bps := range given {
				sent[entry] = uint64(min(float64(bps), wants[entry]*(0.8+0.4*noise.Float64())))
			}
			taken = taken.Next(given, sent, step)
		}
		if changes > 3 {
			t.Fatalf("the division changed %d times in a minute: %v wanted by %v", changes, wants, comers)
		}
		all := comers[own] + comers[other]
		for entry, others := range map[engine.Entry]engine.Entry{own: other, other: own} {
			part := comers[entry] / all * minBPS
			if part >= tenth && given[entry] < tenth {
				t.Errorf("%.0f %% of the users have %d", 100*comers[entry]/all, given[entry])
			}
			if least := min(wants[entry], part); float64(given[entry]) < least-tenth {
				t.Errorf("%v has %d, wants %.0f, has a part of %.0f", entry, given[entry], wants[entry], part)
			}
			// Who wants more than all has all but twice what the others want, or a tenth.
			if left := minBPS - 2.4*max(wants[others], tenth/2); wants[entry] > minBPS*1.5 && float64(given[entry]) < left-tenth {
				t.Errorf("%v has %d of %d, and the others want %.0f", entry, given[entry], minBPS, wants[others])
			}
		}
	})
}
