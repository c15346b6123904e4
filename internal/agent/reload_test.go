package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
)

// What is read again is in force at once, for those that run, and what was set
// before stays; a mistake changes nothing.
func TestReload(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
	// A device that is away: nobody asks the kernel about it.
	b.uplink.ifindex, b.uplink.config = 0, UplinkConfig{Name: "up0", RateBPS: 100e6}
	c := b.start("c", "weight=200", "min=10mbit")
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no config file") {
		t.Errorf("without a file: %v", err)
	}
	next := Settings{
		Uplinks: []UplinkConfig{{Name: "up0", RateBPS: 50e6}}, ReserveBasisPoints: 1000, Host: v1.Policy{Weight: 50},
		Rules: policy.Rules{Policies: []policy.Rule{{Selector: policy.Selector{Name: "c"}, Values: policy.Values{MaxBPS: new(uint64(20e6))}}}},
	}
	var wrong error
	b.Agent.config.Reload = func() (Settings, error) { return next, wrong }
	if _, err := b.Agent.Set(ctx, "c", v1.PolicyChange{Weight: ptr("700")}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if c.policy() != (v1.Policy{Weight: 700, MinBPS: 10e6, MaxBPS: 20e6}) || b.uplink.rateBPS != 50e6 ||
			b.uplink.reserveBasisPoints != 1000 || b.host.policy().Weight != 50 || c.entitledBPS != 20e6 {
			t.Errorf("%s: %+v of %d, reserve %d, host %+v, entitled to %d", when, c.policy(), b.uplink.rateBPS, b.uplink.reserveBasisPoints, b.host.policy(), c.entitledBPS)
		}
	}
	if err := b.Agent.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	check("read again")
	saved, err := state.Open(b.dir)
	if err != nil || len(saved.Containers) != 1 || *saved.Containers[0].Set.Weight != 700 {
		t.Errorf("saved %+v, %v", saved, err)
	}

	next.Rules, next.Host.Weight, wrong = policy.Rules{}, 7, errors.New("weir.yaml:3: rate: wrong")
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "weir.yaml:3") {
		t.Errorf("a wrong file: %v", err)
	}
	check("a wrong file")
	next.Uplinks, wrong = append(next.Uplinks, UplinkConfig{Name: "up1"}), nil
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "restart the agent") {
		t.Errorf("one more uplink: %v", err)
	}
	check("one more uplink")
	// A device that is there and cannot be asked.
	b.uplink.ifindex, next.Uplinks = 3, next.Uplinks[:1]
	b.uplink.name = "not there at all"
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) {
		t.Errorf("a device that cannot be asked: %v", err)
	}
	check("a device that cannot be asked")
}

// The rates of the file find their uplinks, in whatever order it has them.
func TestNewRates(t *testing.T) {
	a := &Agent{uplinks: []*uplink{{config: UplinkConfig{Name: "a"}}, {config: UplinkConfig{Name: "b"}}}}
	list := []UplinkConfig{{Name: "b", RateBPS: 2}, {Name: "a", RateBPS: 1}}
	if rates, err := a.newRates(list); err != nil || !slices.Equal(rates, []uint64{1, 2}) || list[0].Name != "a" {
		t.Errorf("rates %d, %v, in the order %v", rates, err, list)
	}
}
