package engine_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// odd are numbers as they come, and as nobody should send them.
func odd(most float64) *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(0, most), rapid.SampledFrom([]float64{0, most, 2 * most, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300}))
}

func bps(most uint64) *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64Range(0, most), rapid.SampledFrom([]uint64{0, most, math.MaxUint64}))
}

func anyVersion() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "", "", "v1", "v2"})
}

func anyMinimum() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "5mbit", "30mbit", "200mbit"})
}

func names(what string, count int) (list []string) {
	for i := range count {
		list = append(list, fmt.Sprintf("%s%d", what, i))
	}
	return list
}

// anyInput is the state of a small cluster, sane or not.
func anyInput(t *rapid.T) engine.Input {
	in := engine.Input{At: start}
	nodes := names("n", rapid.IntRange(0, 6).Draw(t, "nodes"))
	services := names("s", rapid.IntRange(0, 4).Draw(t, "services"))
	for _, name := range nodes {
		in.Nodes = append(in.Nodes, engine.Node{
			Name: name, State: rapid.SampledFrom([]engine.NodeState{engine.NodeReady, engine.NodeReady, engine.NodeReady, engine.NodeStale, engine.NodeGone, engine.NodeDraining}).Draw(t, "state"),
			CPUs: odd(8).Draw(t, "cpus"), CPUUsedPercent: odd(100).Draw(t, "used"), Load1: odd(20).Draw(t, "load"),
			MemoryBytes: bps(1e9).Draw(t, "memory"), MemoryUsedBytes: bps(1e9).Draw(t, "memory used"), DiskFreeBytes: bps(1e9).Draw(t, "disk"),
			Weir: rapid.Bool().Draw(t, "weir"), UplinkBPS: bps(100e6).Draw(t, "uplink"), UplinkSentBPS: bps(100e6).Draw(t, "sent"),
			Out:          engine.Room{BudgetBPS: bps(95e6).Draw(t, "budget"), OtherMinBPS: bps(50e6).Draw(t, "other")},
			In:           engine.Room{BudgetBPS: bps(95e6).Draw(t, "in budget"), OtherMinBPS: bps(50e6).Draw(t, "other in")},
			Availability: odd(1).Draw(t, "availability"), PullBPS: bps(50e6).Draw(t, "pull"), Images: []string{rapid.SampledFrom([]string{"s0", "s1"}).Draw(t, "image")},
		})
	}
	for _, name := range services {
		in.Services = append(in.Services, engine.Service{
			Spec: spec.Spec{
				Name: name, Image: name, ImageBytes: rapid.Uint64Range(0, 1e9).Draw(t, "size"), MaxUsers: rapid.IntRange(0, 100).Draw(t, "max users"),
				ResponseSeconds: rapid.Float64Range(0, 5).Draw(t, "response"), AvailabilityPercent: rapid.Float64Range(0, 99.9999).Draw(t, "availability"),
				NumUsers:  rapid.IntRange(0, 300).Draw(t, "users"),
				Labels:    map[string]string{"weir.min": anyMinimum().Draw(t, "min"), "weir.in.min": anyMinimum().Draw(t, "in min")},
				Limits:    spec.Limits{MemoryBytes: rapid.SampledFrom([]uint64{0, 100e6, 400e6}).Draw(t, "limit"), CPUs: rapid.SampledFrom([]float64{0, 0.01, 0.5, 4}).Draw(t, "cpu limit"), Instances: rapid.IntRange(0, 5).Draw(t, "instances")},
				Algorithm: rapid.SampledFrom([]string{"local", "remote", "hybrid", "none"}).Draw(t, "algorithm"),
			},
			MeasuredStartUpSeconds: odd(5).Draw(t, "start-up"),
			Versions:               engine.Versions{Wanted: anyVersion().Draw(t, "version"), Before: anyVersion().Draw(t, "before")},
		})
	}
	if len(nodes) == 0 {
		return in
	}
	places, owners := append([]string{"unknown"}, nodes...), append([]string{"orphan"}, services...)
	for i := range rapid.IntRange(0, 12).Draw(t, "instances") {
		service := rapid.SampledFrom(owners).Draw(t, "service")
		one := engine.Instance{
			ID: engine.InstanceID(service, i+1), Service: service, Node: rapid.SampledFrom(places).Draw(t, "node"),
			State: rapid.SampledFrom([]engine.InstanceState{engine.InstanceRunning, engine.InstanceRunning, engine.InstanceStarting, engine.InstanceUnhealthy, engine.InstanceStopping, engine.InstanceFailed}).Draw(t, "state"),
			Since: start.Add(-time.Duration(rapid.IntRange(-10, 1000).Draw(t, "since")) * time.Second),
			Users: odd(100).Draw(t, "users"), CPUs: odd(4).Draw(t, "cpus"), SentBPS: bps(50e6).Draw(t, "sent"), ResponseSeconds: odd(5).Draw(t, "response"),
			LimitBytes: rapid.Uint64Range(0, 4e8).Draw(t, "limit"),
			MinRefused: rapid.Bool().Draw(t, "refused"),
			Version:    anyVersion().Draw(t, "version"),
		}
		if rapid.Bool().Draw(t, "replaces") {
			one.Replaces = engine.InstanceID(service, rapid.IntRange(0, 12).Draw(t, "replaced"))
		}
		in.Instances = append(in.Instances, one)
	}
	for i, service := range services {
		claim := rapid.Uint64Range(0, 30e6)
		in.Claims = append(in.Claims, engine.Claim{Service: service, Node: places[i%len(places)], MinBPS: claim.Draw(t, "claim"), InMinBPS: claim.Draw(t, "in claim")})
	}
	for range rapid.IntRange(0, 8).Draw(t, "demands") {
		in.Demand = append(in.Demand, engine.Demand{
			Service: rapid.SampledFrom(owners).Draw(t, "service"), Node: rapid.SampledFrom(places).Draw(t, "node"),
			Users: odd(200).Draw(t, "users"), ResponseSeconds: odd(5).Draw(t, "response"),
			SentBPS: bps(100e6).Draw(t, "sent"),
		})
	}
	for range rapid.IntRange(0, 8).Draw(t, "links") {
		in.Links = append(in.Links, engine.Link{From: rapid.SampledFrom(places).Draw(t, "from"), To: rapid.SampledFrom(places).Draw(t, "to"), RoundTripSeconds: odd(1).Draw(t, "trip")})
	}
	return in
}

// rounds decides twice, a while apart, so that there is something to remember.
func rounds(e *engine.Engine, in engine.Input) (list []engine.Result) {
	for _, seconds := range []int{0, 2, 70} {
		if len(list) > 0 {
			in.Memory = list[len(list)-1].Memory
		}
		in.At = start.Add(time.Duration(seconds) * time.Second)
		list = append(list, e.Round(in))
	}
	return list
}

// TestRounds: what holds whatever the input.
func TestRounds(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		for _, r := range rounds(e, in) {
			if _, err := json.Marshal(r); err != nil {
				t.Fatalf("%v: %+v", err, r) // a number that is none
			}
			checkRound(t, &in, r)
		}
	})
}

func checkRound(t *rapid.T, in *engine.Input, r engine.Result) {
	node := map[string]*engine.Node{}
	mins, limits := map[engine.Entry]float64{}, map[string]float64{}
	for i := range in.Nodes {
		node[in.Nodes[i].Name] = &in.Nodes[i]
		for _, received := range []bool{false, true} {
			mins[engine.Entry{Node: in.Nodes[i].Name, In: received}] = float64(in.Nodes[i].Room(received).OtherMinBPS)
		}
	}
	taken, hosts, decided := map[string]bool{}, map[string][]string{}, map[string]bool{}
	claims := map[engine.Entry]uint64{}
	for _, c := range in.Claims {
		for received, bps := range map[bool]uint64{false: c.MinBPS, true: c.InMinBPS} {
			mins[engine.Entry{Node: c.Node, In: received}] += float64(bps)
			claims[engine.Entry{Service: c.Service, Node: c.Node, In: received}] = bps
		}
	}
	for _, i := range in.Instances {
		taken[i.ID] = true
		limits[i.Node] += float64(i.LimitBytes)
		replaced := slices.ContainsFunc(in.Instances, func(o engine.Instance) bool { return o.Replaces == i.ID })
		if i.State == engine.InstanceRunning && !replaced {
			hosts[i.Service] = append(hosts[i.Service], i.Node)
		}
	}
	for _, d := range r.Decisions {
		decided[d.Service] = true
		if d.Reason == "" || d.Cause == "" {
			t.Fatalf("no reason: %+v", d)
		}
		if d.Action != engine.Start && d.Action != engine.Move {
			continue
		}
		n := node[d.Node]
		if taken[d.Instance] || n == nil || n.State != engine.NodeReady || d.Minimum() != (engine.Rates{}) && !n.Weir {
			t.Fatalf("cannot be: %+v on %+v", d, n)
		}
		taken[d.Instance] = true
		for _, received := range []bool{false, true} {
			at, all, wanted := engine.Entry{Service: d.Service, Node: d.Node, In: received}, engine.Entry{Node: d.Node, In: received}, d.Minimum().Of(received)
			more := wanted - min(claims[at], wanted)
			claims[at] += more
			if mins[all] += float64(more); more > 0 && mins[all] > float64(n.Room(received).BudgetBPS) {
				t.Fatalf("%s has promised %v of %d, received %t: %+v", d.Node, mins[all], n.Room(received).BudgetBPS, received, d)
			}
		}
		if limits[d.Node] += float64(d.LimitBytes); d.LimitBytes > 0 && limits[d.Node] > 0.9*float64(n.MemoryBytes)+1 {
			t.Fatalf("%s has promised %v bytes of %d: %+v", d.Node, limits[d.Node], n.MemoryBytes, d)
		}
		if d.Cause == engine.CauseAvailability && slices.Contains(hosts[d.Service], d.Node) {
			t.Fatalf("not apart: %+v, has %v", d, hosts[d.Service])
		}
		hosts[d.Service] = append(hosts[d.Service], d.Node)
		if best := d.Alternatives[0]; best.Node != d.Node || best.Refused != "" || best.Action != d.Action {
			t.Fatalf("the best alternative is %+v, and this is done: %+v", best, d)
		}
	}
	for _, s := range in.Services {
		if !decided[s.Spec.Name] {
			t.Fatalf("nothing is said of %s", s.Spec.Name)
		}
	}
}

// TestOrder: in whatever order the lists are, the same is decided; the input is as before.
func TestOrder(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		before := fmt.Sprintf("%+v", in)
		first := rounds(e, in)
		if fmt.Sprintf("%+v", in) != before {
			t.Fatal("the input has changed")
		}
		in.Nodes = rapid.Permutation(in.Nodes).Draw(t, "nodes")
		in.Services = rapid.Permutation(in.Services).Draw(t, "services")
		in.Instances = rapid.Permutation(in.Instances).Draw(t, "instances")
		in.Demand = rapid.Permutation(in.Demand).Draw(t, "demand")
		in.Links = rapid.Permutation(in.Links).Draw(t, "links")
		if second := rounds(e, in); !reflect.DeepEqual(first, second) {
			t.Fatalf("%+v\n%+v", first, second)
		}
	})
}

// TestDeadNode: whatever ran on a node that dies runs elsewhere, if there is room.
func TestDeadNode(t *testing.T) {
	e := newEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(2, 6).Draw(t, "nodes")
		in := engine.Input{At: start}
		for _, name := range names("n", count+1) {
			in.Nodes = append(in.Nodes, board(name))
		}
		in.Nodes[0].State = engine.NodeGone
		for _, name := range names("s", rapid.IntRange(1, 5).Draw(t, "services")) {
			in.Services = append(in.Services, web(func(s *spec.Spec) {
				s.Name, s.Labels = name, map[string]string{"weir.min": "10mbit"}
				s.Algorithm = rapid.SampledFrom([]string{"local", "remote", "hybrid"}).Draw(t, "algorithm")
			}))
			in.Instances = append(in.Instances, running(name, "n0", 1, 0, 0))
			in.Claims = append(in.Claims, engine.Claim{Service: name, Node: "n0", MinBPS: 10e6})
		}
		moved := 0
		for _, d := range e.Round(in).Decisions {
			if d.Action == engine.Move && d.From == "n0" && d.Node != "n0" {
				moved++
			}
		}
		if moved != len(in.Services) {
			t.Fatalf("%d of %d moved", moved, len(in.Services))
		}
	})
}
