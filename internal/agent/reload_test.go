package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/uplink"
)

// What is read again is in force at once, for those that run, and what was set
// before stays; a mistake changes nothing.
func TestReload(t *testing.T) {
	b := newBench(t, 100e6)
	ctx := b.serve()
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
		if c.policy() != (v1.Policy{Weight: 700, MinBPS: 10e6, MaxBPS: 20e6, EFMax: policy.Default().EFMax, AFMin: policy.Default().AFMin}) || b.link.rateBPS != 50e6 ||
			b.link.reserveBasisPoints != 1000 || b.host.policy().Weight != 50 || c.class.EntitledBPS != 20e6 {
			t.Errorf("%s: %+v of %d, reserve %d, host %+v, entitled to %d", when, c.policy(), b.link.rateBPS, b.link.reserveBasisPoints, b.host.policy(), c.class.EntitledBPS)
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
	next.Uplinks = []UplinkConfig{{Name: "up0", RateBPS: 40e6}}
	b.machine.speedBPS = 10e6
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "above the speed") {
		t.Errorf("a device that is slower: %v", err)
	}
	check("a device that is slower")
	b.machine.speedErr = errors.New("no answer")
	if err := b.Agent.Reload(ctx); !errors.Is(err, ErrRefused) {
		t.Errorf("a device that cannot be asked: %v", err)
	}
	check("a device that cannot be asked")

	// What is not about the uplink is taken, however slow that has become.
	b.machine.speedErr = nil
	next.Uplinks[0].RateBPS = 50e6
	if err := b.Agent.Reload(ctx); err != nil || b.host.policy().Weight != 7 {
		t.Errorf("another policy while the device is slower: %v, host %+v", err, b.host.policy())
	}
}

// The configurations of the file find their uplinks, in whatever order it has them.
func TestSameUplinks(t *testing.T) {
	a := &Agent{}
	for i, name := range []string{"a", "b"} {
		a.uplinks = append(a.uplinks, newLink(i, uplink.New(UplinkConfig{Name: name}, &fakeMachine{}, nil), 0))
	}
	list := []UplinkConfig{{Name: "b", RateBPS: 2}, {Name: "a", RateBPS: 1}}
	if ordered, err := a.sameUplinks(list); err != nil || !slices.Equal(ordered, []UplinkConfig{list[1], list[0]}) {
		t.Errorf("%v, in the order %v", err, ordered)
	}
}
