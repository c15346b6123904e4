package qos

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestQueues: minimums add up to the rate, BE has something, and nothing exceeds
// the link.
func TestQueues(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := Shares{EFMax: rapid.Float64Range(minBE, 1).Draw(rt, "ef"), AFMin: rapid.Float64Range(minBE, 1).Draw(rt, "af")}
		if s.Check() != nil {
			return
		}
		rate := rapid.Uint64Range(minRateBPS, 400e9).Draw(rt, "rate")
		sum := uint64(0)
		m := s.Map()
		queues, err := m.Of(rate)
		if err != nil || len(queues) != len(IDs) {
			rt.Fatalf("%+v, %v", queues, err)
		}
		for id, q := range queues {
			sum += q.MinBPS
			if q.MinBPS == 0 || q.MinBPS > rate || q.MaxBPS != rate || q.ID != id || IDs[q.Priority] != id {
				rt.Fatalf("%+v of %d", q, rate)
			}
		}
		if sum > rate+minQueueBPS || sum < rate {
			rt.Fatalf("minimums are %d of %d", sum, rate)
		}
	})
	m := halfAndThird.Map()
	q, err := m.Of(100e6)
	if err != nil || q[2].MinBPS != 50e6 || q[1].MinBPS != 30e6 || q[0].MinBPS != 20e6 {
		t.Errorf("%+v, %v", q, err)
	}
}

// halfAndThird are the defaults of weir.ef-max and weir.af-min.
var halfAndThird = Shares{EFMax: 0.5, AFMin: 0.3}

func TestShares(t *testing.T) {
	for _, s := range []Shares{{0, 0.3}, {0.5, 0}, {1.5, 0.1}, {0.5, 2}, {0.7, 0.3}} {
		if s.Check() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	if err := halfAndThird.Check(); err != nil {
		t.Error(err)
	}
}

// asMade is a port after a change.
func asMade(p Port, c Change) Port {
	row := &Row{UUID: "new", Type: c.Type, Config: c.RateConfig(), External: map[string]string{OwnerKey: Owner}, Queues: map[int]QueueRow{}}
	for _, q := range c.Queues {
		row.Queues[q.ID] = QueueRow{Config: q.Config()}
	}
	p.QoS = row
	return p
}

func TestPlan(t *testing.T) {
	s := halfAndThird.Map()
	free := Port{Name: "p1", LinkSpeedBPS: 1e9}
	foreign := free
	foreign.QoS = &Row{UUID: "x", Type: "linux-hfsc"}
	made := asMade(free, Plan(free, Wanted{TypeHTB, 100e6, s, false, nil}))
	fewer := asMade(free, Plan(free, Wanted{TypeHTB, 100e6, s, false, nil}))
	delete(fewer.QoS.Queues, 1)
	for name, c := range map[string]struct {
		p       Port
		rate    uint64
		replace bool
		want    Action
		says    string
	}{
		"free":              {free, 100e6, false, Create, ""},
		"by the link":       {free, 0, false, Create, ""},
		"made":              {made, 100e6, false, Keep, ""},
		"another rate":      {made, 200e6, false, Update, ""},
		"a queue is gone":   {fewer, 100e6, false, Create, ""},
		"foreign":           {foreign, 100e6, false, Refuse, "--replace"},
		"foreign, replaced": {foreign, 100e6, true, Create, ""},
		"above the link":    {free, 2e9, false, Refuse, "more than the link's 1000mbit"},
		"no speed":          {Port{Name: "p1"}, 0, false, Refuse, "--rate p1=RATE"},
		"patch":             {Port{Name: "p1", Kind: "patch"}, 1e8, false, Refuse, "no queue"},
		"too slow":          {free, 1000, false, Refuse, "less than 1mbit"},
	} {
		got := Plan(c.p, Wanted{TypeHTB, c.rate, s, c.replace, nil})
		if got.Action != c.want || !strings.Contains(got.Reason, c.says) || (got.Reason == "") != (c.want != Refuse) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	much := Map{Queues: []Spec{{ID: 0}, {ID: 1, Min: Part{BPS: 60e6}}, {ID: 2, Min: Part{BPS: 50e6}}}}
	if got := Plan(free, Wanted{TypeHTB, 100e6, much, false, nil}); got.Action != Refuse || !strings.Contains(got.Reason, "together, more than the port's rate of 100mbit") {
		t.Errorf("minimums above the rate: %+v", got)
	}
	changed := asMade(free, Plan(free, Wanted{TypeHTB, 100e6, s, false, nil}))
	changed.QoS.Queues[2] = QueueRow{Config: map[string]string{"min-rate": "1"}}
	if got := Plan(changed, Wanted{TypeHTB, 100e6, s, false, nil}); got.Action != Update {
		t.Errorf("somebody changed a queue: %+v", got)
	}
	if got := Plan(made, Wanted{TypeNoop, 100e6, s, false, nil}); got.Action != Create || got.Type != TypeNoop {
		t.Errorf("of another type: %+v", got)
	}
	if got := Plan(asMade(free, Plan(free, Wanted{TypeNoop, 100e6, s, false, nil})), Wanted{TypeNoop, 100e6, s, false, nil}); got.Action != Keep {
		t.Errorf("made of that type: %+v", got)
	}
}

// TestPromised: promises within what is promisable have their minimums beside all others', and leave a
// reserve to queue 0.
func TestPromised(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := Shares{EFMax: rapid.Float64Range(minBE, 1).Draw(rt, "ef"), AFMin: rapid.Float64Range(minBE, 1).Draw(rt, "af")}
		if s.Check() != nil {
			return
		}
		rate := rapid.Uint64Range(10*minRateBPS, 400e9).Draw(rt, "rate")
		port := Port{Name: "p1"}
		want := Wanted{Type: TypeHTB, RateBPS: rate, Queues: s.Map()}
		left := Plan(port, want).PromisableBPS
		for id := 8; left > minQueueBPS && id < 12; id++ {
			q := Queue{ID: id, MinBPS: rapid.Uint64Range(minQueueBPS, left).Draw(rt, "minimum")}
			left -= q.MinBPS
			want.Promised = append(want.Promised, q)
		}
		c, sum := Plan(port, want), uint64(0)
		for _, q := range c.Queues {
			if sum += q.MinBPS; q.MaxBPS != rate {
				rt.Fatalf("%+v of %d", q, rate)
			}
		}
		if len(c.Queues) != 3+len(want.Promised) || sum > rate+minQueueBPS {
			rt.Fatalf("%+v: minimums are %d of %d", c.Queues, sum, rate)
		}
		if len(want.Promised) > 0 && float64(c.Queues[0].MinBPS) < promiseReserve*float64(rate)-1 {
			rt.Fatalf("%+v leaves too little of %d", c.Queues, rate)
		}
		if got := Plan(asMade(port, c), want); got.Action != Keep {
			rt.Fatalf("made, and then %+v", got)
		}
	})
	row := &Row{Queues: map[int]QueueRow{1: {Config: map[string]string{"min-rate": "1"}}, 8: {}, 9: {Config: map[string]string{"min-rate": "9"}}}}
	if got := row.Promised(); !slices.Equal(got, []Queue{{ID: 9, MinBPS: 9}}) {
		t.Errorf("promised are %v", got)
	}
	m := halfAndThird.Map()
	if got := Plan(Port{}, Wanted{TypeHTB, 100e6, m, false, nil}).PromisableBPS; got != 15e6 {
		t.Errorf("%d of 100 Mbit/s can be promised", got)
	}
	m.Queues[0].Min = Part{BPS: 20e6}
	if got := Plan(Port{}, Wanted{TypeHTB, 100e6, m, false, nil}).PromisableBPS; got != 0 {
		t.Errorf("%d can be promised beside a minimum of queue 0", got)
	}
}
