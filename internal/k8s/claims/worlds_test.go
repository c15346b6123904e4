package claims

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// world is a node with its scheduler, kubelet, agent and other containers.
type world struct {
	rates map[string]Rates // of the uplinks, less the reserve
	// agent holds the minimums that it admitted at each uplink, by container.
	agent map[string]map[string]Rates
	// wanted are the minimums that pods and containers asked for.
	wanted map[string]Rates
	// allocated are the claims that the scheduler allocated, by UID; published is what it sees.
	allocated Ledger
	published []Device
	ledger    Ledger
	file      string
	next      int
}

var uplinks = []string{"eth0", "eth1"}

// admit is the agent: at each uplink it admits a minimum that fits, direction by direction.
func (w *world) admit(name string, wanted Rates) {
	w.wanted[name] = wanted
	for _, u := range uplinks {
		left := w.rates[u].minus(w.sum(u))
		var has Rates
		if wanted.EgressBPS <= left.EgressBPS {
			has.EgressBPS = wanted.EgressBPS
		}
		if wanted.IngressBPS <= left.IngressBPS {
			has.IngressBPS = wanted.IngressBPS
		}
		w.agent[u][name] = has
	}
}

func (w *world) stop(name string) {
	delete(w.wanted, name)
	for _, u := range uplinks {
		delete(w.agent[u], name)
	}
}

func (w *world) sum(uplink string) (sum Rates) {
	for _, r := range w.agent[uplink] {
		sum = sum.plus(r)
	}
	return sum
}

func (w *world) view() *View {
	v := &View{}
	for _, u := range uplinks {
		left := w.rates[u].minus(w.sum(u))
		v.Uplinks = append(v.Uplinks, v1.MeasuredUplink{Name: u, FreeBPS: left.EgressBPS, In: &v1.MeasuredIncoming{FreeBPS: left.IngressBPS}})
	}
	for name := range w.wanted {
		c := v1.Container{Name: name, Runtime: v1.RuntimeKubernetes, State: v1.StateOK, In: &v1.Direction{}}
		for _, u := range uplinks {
			has := w.agent[u][name]
			c.Shares = append(c.Shares, v1.Share{Uplink: u, Controlled: true, AdmittedBPS: has.EgressBPS, EntitledBPS: has.EgressBPS})
			c.In.Shares = append(c.In.Shares, v1.Share{Uplink: u, Controlled: true, AdmittedBPS: has.IngressBPS, EntitledBPS: has.IngressBPS})
		}
		v.Containers = append(v.Containers, c)
	}
	return v
}

// consumed is what the scheduler counts as taken of a device.
func (w *world) consumed(device string) (sum Rates) {
	for _, c := range w.allocated {
		for _, s := range c.Shares {
			if s.Device == device {
				sum = sum.plus(s.Rates)
			}
		}
	}
	return sum
}

func drawRates(t *rapid.T) Rates {
	return Rates{rapid.Uint64Range(0, 60).Draw(t, "egress"), rapid.Uint64Range(0, 60).Draw(t, "ingress")}
}

func (r Rates) within(o Rates) bool {
	return r.EgressBPS <= o.EgressBPS && r.IngressBPS <= o.IngressBPS
}

// TestWorlds: whatever schedulers, pods, other containers and the uplinks' rates do, no claim is accepted
// that does not fit beside all that was promised; a capacity is never below what claims have of it;
// what a scheduler allocates of a slice that is true is accepted; and each claim that is accepted is
// guaranteed once its pod runs, unless a container came between or an uplink became slower.
func TestWorlds(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rates: map[string]Rates{}, agent: map[string]map[string]Rates{}, wanted: map[string]Rates{}, allocated: Ledger{}, ledger: Ledger{}, file: filepath.Join(dir, "claims.json")}
		for _, u := range uplinks {
			w.rates[u], w.agent[u] = Rates{100, 80}, map[string]Rates{}
		}
		if err := w.ledger.Save(w.file); err != nil {
			t.Fatal(err)
		}
		// disturbed are the uplinks of which the agent admitted what the ledger had promised, or
		// that became slower.
		disturbed := map[string]bool{}
		// admit lets the agent admit what is beyond claims.
		admit := func(name string, wanted Rates, claimed map[string]Rates) {
			left := map[string]Rates{}
			v := w.view()
			for _, d := range w.ledger.Devices(v) {
				all, _ := w.ledger.promised(v.uplink(d.Name), v)
				left[d.Uplink] = d.Capacity.minus(all)
			}
			w.admit(name, wanted)
			for _, u := range uplinks {
				if !w.agent[u][name].minus(claimed[u]).within(left[u]) {
					disturbed[u] = true
				}
			}
		}
		anyOf := func(t *rapid.T, l Ledger) Claim {
			if len(l) == 0 {
				t.Skip("none")
			}
			return l[rapid.SampledFrom(slices.Sorted(maps.Keys(l))).Draw(t, "claim")]
		}
		pod := func(c Claim) string { return c.Namespace + "/" + c.Pod.Name }
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(*rapid.T) { w.published = w.ledger.Devices(w.view()) },
			"schedule": func(t *rapid.T) {
				if len(w.published) == 0 {
					t.Skip("nothing is published")
				}
				// A second scheduler does not know what the first has just allocated.
				blind := rapid.IntRange(0, 9).Draw(t, "blind") == 0
				w.next++
				c := Claim{UID: fmt.Sprint("claim", w.next), Namespace: "shop", Name: fmt.Sprint("claim", w.next), Pod: Pod{UID: fmt.Sprint("uid", w.next), Name: fmt.Sprint("pod", w.next)}}
				asked, first := drawRates(t), rapid.IntRange(0, 1).Draw(t, "first")
				for _, d := range w.published[first:rapid.IntRange(first+1, 2).Draw(t, "last")] {
					if !blind && !w.consumed(d.Name).plus(asked).within(d.Capacity) {
						continue
					}
					c.Shares = append(c.Shares, Share{Device: d.Name, Rates: asked})
				}
				w.allocated[c.UID] = c
			},
			"prepare": func(t *rapid.T) {
				c := anyOf(t, w.allocated)
				v := w.view()
				_, had := w.ledger[c.UID]
				fits := true
				for u, asked := range (Ledger{c.UID: c}).ofPod(c.Pod.UID) {
					due := Rates{}
					for _, o := range w.ledger {
						due = due.plus(o.at(u).minus(w.agent[u][pod(o)]))
					}
					fits = fits && w.sum(u).plus(due).plus(asked).withinOrZero(w.rates[u], asked)
				}
				err := w.ledger.Admit(c, v)
				if (err == nil) != (had || fits) {
					t.Fatalf("fits %v, had %v: %v", fits, had, err)
				}
				if err := w.ledger.Save(w.file); err != nil {
					t.Fatal(err)
				}
			},
			"start": func(t *rapid.T) {
				c := anyOf(t, w.ledger)
				if _, runs := w.wanted[pod(c)]; runs {
					t.Skip("runs")
				}
				ledger, err := Load(w.file) // weir-k8s reads it
				if err != nil {
					t.Fatal(err)
				}
				labels, wanted := ledger.Labels(c.Pod.UID), Rates{}
				for label, to := range map[string]*uint64{policy.LabelMin: &wanted.EgressBPS, policy.LabelInMin: &wanted.IngressBPS} {
					if text := labels[label]; text != "" {
						// ParseRate refuses the small rates of this world.
						if _, err := fmt.Sscanf(text, "%dbit", to); err != nil {
							t.Fatal(err)
						}
					}
				}
				admit(pod(c), wanted, Ledger{c.UID: c}.ofPod(c.Pod.UID))
				v := w.view()
				for _, s := range c.Shares {
					if got := w.ledger.Judge(c, s, v); got.Status != True && !disturbed[s.Device] {
						t.Fatalf("%+v", got)
					}
				}
			},
			"stop": func(t *rapid.T) {
				c := anyOf(t, w.ledger)
				w.stop(pod(c))
				delete(w.ledger, c.UID)
				delete(w.allocated, c.UID)
				if err := w.ledger.Save(w.file); err != nil {
					t.Fatal(err)
				}
			},
			"container": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")
				w.stop(name)
				admit(name, drawRates(t), nil)
			},
			"container stops": func(t *rapid.T) { w.stop(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")) },
			"rate": func(t *rapid.T) {
				u := rapid.SampledFrom(uplinks).Draw(t, "uplink")
				now := Rates{rapid.Uint64Range(50, 150).Draw(t, "rate"), 80}
				disturbed[u] = disturbed[u] || now.EgressBPS < w.rates[u].EgressBPS
				w.rates[u] = now
			},
			"restart": func(t *rapid.T) {
				loaded, err := Load(w.file)
				if err != nil || !reflect.DeepEqual(loaded, w.ledger) {
					t.Fatalf("loaded %v, want %v: %v", loaded, w.ledger, err)
				}
				w.ledger = loaded
			},
			"": func(t *rapid.T) {
				v := w.view()
				for _, d := range w.ledger.Devices(v) {
					has := Rates{}
					for _, c := range w.ledger {
						has = has.plus(c.at(d.Uplink))
					}
					if !has.within(d.Capacity) {
						t.Fatalf("%s has %v, claims have %v of it", d.Name, d.Capacity, has)
					}
					// What claims have, what is left for more, and what is others', is all there is.
					others := w.sum(d.Uplink)
					for _, c := range w.ledger {
						others = others.minus(minRates(c.at(d.Uplink), w.agent[d.Uplink][pod(c)]))
					}
					if !disturbed[d.Uplink] && d.Capacity.plus(others) != w.rates[d.Uplink] {
						t.Fatalf("%s: capacity %v and others' %v are not %v", d.Name, d.Capacity, others, w.rates[d.Uplink])
					}
				}
			},
		})
	})
}

// at returns what a claim has of an uplink.
func (c Claim) at(uplink string) (r Rates) {
	for _, s := range c.Shares {
		if s.Device == uplink {
			r = r.plus(s.Rates)
		}
	}
	return r
}

func minRates(a, b Rates) Rates {
	return Rates{min(a.EgressBPS, b.EgressBPS), min(a.IngressBPS, b.IngressBPS)}
}

// withinOrZero is within, of the directions in which something is asked for.
func (r Rates) withinOrZero(limit, asked Rates) bool {
	return (asked.EgressBPS == 0 || r.EgressBPS <= limit.EgressBPS) && (asked.IngressBPS == 0 || r.IngressBPS <= limit.IngressBPS)
}

// TestTruePublication: what a scheduler allocates of the capacities that are published now is accepted, in
// any order, and nothing more is.
func TestTruePublication(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Ledger{}
		v := &View{Uplinks: []v1.MeasuredUplink{{Name: "eth0", FreeBPS: 100}}}
		for i := range rapid.IntRange(1, 12).Draw(t, "claims") {
			capacity, taken := l.Devices(v)[0].Capacity.EgressBPS, Rates{}
			for _, c := range l {
				taken = taken.plus(c.at("eth0"))
			}
			if capacity != 100 {
				t.Fatalf("capacity %d", capacity)
			}
			asked := rapid.Uint64Range(0, 60).Draw(t, "asked")
			id := fmt.Sprint(i)
			err := l.Admit(Claim{UID: id, Pod: Pod{UID: "pod" + id, Name: id}, Shares: []Share{{Device: "eth0", Rates: Rates{EgressBPS: asked}}}}, v)
			if fits := taken.EgressBPS+asked <= capacity; (err == nil) != fits {
				t.Fatalf("%d of %d, %d taken: %v", asked, capacity, taken.EgressBPS, err)
			}
		}
	})
}
