package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/explain"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

// greedy stands for the rate of one that wants all that it can get.
const greedy = -1

// What an agent publishes is enough to explain it: the numbers are the same.
func TestExplainable(t *testing.T) {
	for _, hostBPS := range []float64{0, 900e3, 0.99e6, 1.1e6, 30e6, greedy} {
		b := newBench(t, 100e6)
		b.start("db", "min=30mbit", "weight=10")
		b.start("cut", "max=5mbit")
		web, rest := b.start("web", "weight=200"), b.start("rest", "weight=100")
		l := newWire(b)
		l.greedy[web], l.greedy[rest], l.greedy[b.host] = true, true, hostBPS == greedy
		l.paceBPS[b.host] = max(hostBPS, 0)
		l.run(3 * time.Second)
		b.link.measuredAt = time.Now()
		b.publish(time.Now())
		seen, err := b.Latest(t.Context())
		must.Succeed(t, err)
		for i, c := range seen.Containers {
			said := explain.Container(seen.Snapshot, i).Shares[0]
			rate := policy.FormatRateShort(c.EntitledBPS)
			if last := said.Entitled[len(said.Entitled)-1]; c.Runtime != "host" && !strings.Contains(last, rate) {
				t.Errorf("host %.0f: %s is entitled to %s: %s", hostBPS, c.Name, rate, last)
			}
		}
		host := explain.Container(seen.Snapshot, len(seen.Containers)-1).Shares[0]
		if competes := b.link.hostCompetes; competes != strings.Contains(strings.Join(host.Entitled, ""), "share by weight") {
			t.Errorf("host %.0f: it competes: %t, but: %s", hostBPS, competes, host.Entitled)
		}
		if c := seen.Containers[0]; c.Shares[0].AdmittedBPS != 30e6 || !c.Shares[0].Controlled || c.State != v1.StateOK {
			t.Errorf("%+v", c)
		}
	}
}

// A host class that competes, and whose share is as large as its reserve, is
// explained by its weight.
func TestExplainHostWithShareOfReserve(t *testing.T) {
	b := newBench(t, 100e6)
	for i := range 99 {
		b.start(fmt.Sprint("c", i), "weight=100")
	}
	l := newWire(b)
	for _, s := range b.participants {
		l.greedy[s] = true
	}
	l.run(time.Second)
	b.publish(time.Now())
	seen, err := b.Latest(t.Context())
	must.Succeed(t, err)
	host := explain.Container(seen.Snapshot, len(seen.Containers)-1).Shares[0]
	if said := strings.Join(host.Entitled, ""); host.EntitledBPS != 1e6 || !strings.Contains(said, "share by weight") {
		t.Errorf("%d: %s", host.EntitledBPS, said)
	}
}

// What a preview promises is what a change does.
func TestPreviewIsWhatHappens(t *testing.T) {
	b := newBench(t, 100e6)
	b.start("db", "min=30mbit", "weight=10")
	web, rest := b.start("web", "weight=200"), b.start("rest", "weight=100")
	w := newWire(b)
	w.greedy[web], w.greedy[rest] = true, true
	w.run(time.Second)
	b.publish(time.Now())
	ctx := b.serve()
	for _, change := range []v1.PolicyChange{
		{Weight: ptr("50")}, {Min: ptr("20mbit"), Latency: ptr("20ms")}, {Max: ptr("25mbit")}, {Weight: ptr("0"), Max: ptr("none")}, {Min: ptr("none"), Latency: ptr("none")},
	} {
		seen, err := b.Latest(ctx)
		must.Succeed(t, err)
		after, err := b.Try(ctx, "web", change)
		must.Succeed(t, err)
		shown := explain.Preview(seen.Snapshot, 1, after)
		now, err := b.Latest(ctx)
		if err != nil || now.Containers[1].Policy != seen.Containers[1].Policy {
			t.Fatalf("trying changed it: %+v, %v", now.Containers[1].Policy, err)
		}
		if _, err := b.Set(ctx, "web", change); err != nil {
			t.Fatal(err)
		}
		if now, err = b.Latest(ctx); err != nil || now.Containers[1].Policy != after {
			t.Fatalf("it has %+v, %v, promised was %+v", now.Containers[1].Policy, err, after)
		}
		for i, share := range shown.Uplinks[0].Shares {
			if got := now.Containers[i].Shares[0]; share.EntitledAfterBPS != got.EntitledBPS || share.AdmittedBPS != got.AdmittedBPS {
				t.Errorf("%+v: %s has %d (%d admitted), promised was %+v", change, share.Name, got.EntitledBPS, got.AdmittedBPS, share)
			}
		}
	}
	if _, err := b.Try(ctx, "web", v1.PolicyChange{Min: ptr("66mbit")}); !errors.Is(err, ErrRefused) {
		t.Errorf("more than there is: %v", err)
	}
	unmet := errors.New("unmet")
	if _, err := b.Set(ctx, "web", v1.PolicyChange{Weight: ptr("77")}, func(c v1.Container) error {
		if c.Name != "web" || c.Policy.Weight != 0 {
			t.Errorf("the condition sees %+v", c)
		}
		return unmet
	}); !errors.Is(err, unmet) {
		t.Errorf("a condition that does not hold: %v", err)
	}
	if _, err := b.Reset(ctx, "web", func(v1.Container) error { return unmet }); !errors.Is(err, unmet) {
		t.Errorf("a condition that does not hold: %v", err)
	}
	if now, err := b.Latest(ctx); err != nil || now.Containers[1].Policy.Weight != 0 {
		t.Errorf("it was changed all the same: %+v, %v", now.Containers[1].Policy, err)
	}
}
