package run

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// TestFractions: who comes counts for how long he is there, and of a proxy that does not answer
// users stay.
func TestFractions(t *testing.T) {
	var x minimums
	now := time.Now()
	look := func(s *seen, later time.Duration) {
		now = now.Add(later)
		x.divide(s, now)
	}
	at := func(node string) float64 { return x.fractions[engine.Path{Instance: "shop-1", Node: node}] }
	is := func(what string, a, b float64) {
		t.Helper()
		if math.Abs(at("a")-a) > 0.03 || math.Abs(at("b")-b) > 0.03 {
			t.Errorf("%s: %.2v, want %v and %v", what, x.fractions, a, b)
		}
	}
	look(shop(1, 3), 0)
	is("another weir-edge was there before", 0.25, 0.75)
	x = minimums{}
	look(shop(0, 0), 0)
	look(shop(0, 1), 200*time.Millisecond)
	is("one who comes for a moment", 0.98, 0.02)
	for range 4 {
		look(shop(0, 16), 500*time.Millisecond)
	}
	is("many who came for two seconds", 0.02, 0.98)
	x = minimums{}
	look(shop(0, 0), 0)
	look(shop(0, 1), time.Minute)
	is("one who was seen once, after a minute", 0.88, 0.12)
	for range 4 {
		look(shop(0, 16), 500*time.Millisecond)
	}
	silent := shop(0, 0)
	for i := range silent.proxies["shop"] {
		silent.proxies["shop"][i].err = errors.New("timeout")
	}
	look(silent, time.Minute)
	is("no proxy answers", 0.02, 0.98)
	// A node that is off has no users, as its proxy is none any more; if all are, nobody knows.
	cut := shop(4, 4)
	cut.proxies = nil
	look(cut, time.Minute)
	is("no proxies", 0.02, 0.98)
	off := shop(4, 4)
	off.proxies["shop"] = off.proxies["shop"][:1]
	look(off, time.Minute)
	is("b is off", 1, 0)

	look(shop(0, 4), time.Second)
	is("b is back", 0.61, 0.39)
	for range 8 {
		look(shop(0, 0), time.Second)
	}
	is("nobody for seconds", 0.65, 0.35)
	for range 600 {
		look(shop(0, 0), time.Second)
	}
	is("nobody for minutes", 1, 0)
	// However soon rounds follow each other.
	for _, every := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond} {
		x = minimums{}
		look(shop(0, 1), 0)
		for passed := time.Duration(0); passed < 10*time.Minute; passed += every {
			look(shop(0, 0), every)
		}
		is(fmt.Sprintf("nobody for minutes, in rounds of %v", every), 1, 0)
		for passed := time.Duration(0); passed < 40*time.Second; passed += every {
			look(shop(0, 1), every)
		}
		is(fmt.Sprintf("one for half a minute, in rounds of %v", every), 0, 1)
	}
	standby := shop(2, 1)
	standby.proxies["shop"][1].seen.Servers[0].Weight = 1
	for range 60 {
		look(standby, time.Second)
	}
	is("who is sent to a standby", 1, 0)
	stayed := shop(3, 10) // since it was none
	stayed.proxies["shop"][1].seen.Servers[0].Weight = 1
	for range 60 {
		look(stayed, time.Second)
	}
	is("who stays with a standby", 0.25, 0.75)
	half := shop(0, 4)
	half.proxies["shop"][0].err = errors.New("timeout")
	x = minimums{}
	look(shop(0, 0), 0)
	x.users = nil // of its own node nobody knows anything
	look(half, time.Second)
	if division := x.divide(half, now); division.Local[engine.Entry{Service: "shop", Node: "a"}] < 10e6 {
		t.Errorf("the node's own proxy has not answered yet: %+v", division)
	}
}

// TestCorrections: a part that is off a little is corrected, after seconds.
func TestCorrections(t *testing.T) {
	var x minimums
	now := time.Now()
	relayed := func(usersA, usersB int, later time.Duration) uint64 {
		now = now.Add(later)
		return x.divide(shop(usersA, usersB), now).Sent["shop-1"]
	}
	if bps := relayed(50, 50, 0); bps != 10e6 {
		t.Errorf("half and half: %d", bps)
	}
	x.fractions = nil
	x.at = time.Time{} // as seen for long
	if bps := relayed(45, 55, time.Second); bps != 10e6 {
		t.Errorf("off by five hundredths, after a second: %d", bps)
	}
	if bps := relayed(45, 55, correctionPeriod); bps != 11e6 {
		t.Errorf("after some more: %d", bps)
	}
}

// TestSteadyUsers: who is at which node changes by chance from look to look, and agents are
// seldom told another part for that; a crowd that moves takes its part along all the same.
func TestSteadyUsers(t *testing.T) {
	for _, users := range []int{2, 8, 30} {
		var x minimums
		random, now, last, changes := rand.New(rand.NewPCG(1, uint64(users))), time.Now(), uint64(0), 0
		look := func(most float64) uint64 {
			now = now.Add(500 * time.Millisecond)
			there := 0
			for range users {
				if random.Float64() < most {
					there++
				}
			}
			bps := x.divide(shop(users-there, there), now).Sent["shop-1"]
			if bps != last {
				changes++
			}
			last = bps
			return bps
		}
		for range 60 {
			look(0.4)
		}
		changes = 0
		for range 600 {
			if bps := look(0.4); bps < 2e6 || bps > 14e6 {
				t.Errorf("%d users, four tenths of them at b: %d", users, bps)
			}
		}
		if changes > 60 {
			t.Errorf("%d users are steady: in 5 minutes their parts are changed %d times", users, changes)
		}
		for range 60 / users {
			look(1)
		}
		if bps := look(1); bps < 18e6 {
			t.Errorf("%d users have all gone to b: %d", users, bps)
		}
	}
}
