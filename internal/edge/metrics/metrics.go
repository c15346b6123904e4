// Package metrics writes what weir-edge knows in Prometheus' text format.
//
// Rates are bytes per second here, Prometheus' base unit; everywhere else in Weir they
// are bits per second.
//
// Labels are bounded by what there is: node, service, the states of instances and the
// kinds of events; no IDs of instances, each of which would leave series behind, and no
// reasons.
package metrics

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/exposition"
)

// family is one metric.
type family = exposition.Family

// Write writes all metrics of a moment; events are how many there were of each kind.
func Write(w io.Writer, s edge.Snapshot, events map[edge.EventKind]uint64) error {
	return exposition.Write(w, slices.Concat(general(s, events), nodeFamilies(s.Nodes), serviceFamilies(s.Services), instanceFamilies(s.Instances))...)
}

func general(s edge.Snapshot, events map[edge.EventKind]uint64) []family {
	happened := family{Name: "weir_edge_events_total", Help: "What happened since weir-edge started, by kind.", Counter: true}
	for _, kind := range slices.Sorted(maps.Keys(events)) {
		happened.Add(float64(events[kind]), "kind", string(kind))
	}
	looked := family{Name: "weir_edge_last_round_timestamp_seconds", Help: "When weir-edge last looked at everything."}
	if !s.At.IsZero() {
		looked.Add(float64(s.At.UnixMilli()) / 1000)
	}
	build := family{Name: "weir_edge_build_info", Help: "The version of weir-edge and the engine that it manages; always 1."}
	build.Add(1, "version", s.Version, "engine", s.Engine)
	return []family{build, looked, happened}
}

// of makes a family of a value of each thing in a list.
func of[T any](list []T, label string, name func(T) string, f family, value func(T) float64) family {
	for _, t := range list {
		f.Add(value(t), label, name(t))
	}
	return f
}

func nodeFamilies(nodes []edge.Node) []family {
	gauge := func(name, help string, value func(edge.Node) float64) family {
		return of(nodes, "node", func(n edge.Node) string { return n.Name }, family{Name: "weir_edge_node_" + name, Help: help}, value)
	}
	return []family{
		gauge("ready", "1 if the node answers and takes instances.", func(n edge.Node) float64 { return exposition.Truth(n.State == "ready") }),
		gauge("controlled", "1 if a Weir agent shares out the node's uplink.", func(n edge.Node) float64 { return exposition.Truth(n.Weir) }),
		gauge("age_seconds", "How old what is measured of the node is.", func(n edge.Node) float64 { return n.AgeSeconds }),
		gauge("cpus", "The processors of the node.", func(n edge.Node) float64 { return n.CPUs }),
		gauge("cpu_used_ratio", "The part of the node's processors that is used, 0 to 1.", func(n edge.Node) float64 { return n.CPUUsedPercent / 100 }),
		gauge("memory_bytes", "The memory of the node.", func(n edge.Node) float64 { return float64(n.MemoryBytes) }),
		gauge("memory_used_bytes", "The memory of the node that is used.", func(n edge.Node) float64 { return float64(n.MemoryUsedBytes) }),
		gauge("disk_free_bytes", "What is free where the node keeps images.", func(n edge.Node) float64 { return float64(n.DiskFreeBytes) }),
		gauge("uplink_capacity_bytes_per_second", "The rate of the node's uplink.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.UplinkBPS) }),
		gauge("uplink_rate_bytes_per_second", "What the node's uplink sends.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.UplinkSentBPS) }),
		gauge("promised_bytes_per_second", "What the minimums of services take on the node, as promised.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.PromisedBPS) }),
		gauge("free_bytes_per_second", "What minimums of services may still be promised on the node.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.FreeBPS) }),
		gauge("in_promised_bytes_per_second", "What the minimums of services take of what the node receives, as promised.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.InPromisedBPS) }),
		gauge("in_free_bytes_per_second", "What minimums of services may still be promised of what the node receives; 0 where that is not shared.", func(n edge.Node) float64 { return exposition.BytesPerSecond(n.InFreeBPS) }),
	}
}

func serviceFamilies(services []edge.Service) []family {
	each := func(f family, value func(edge.Service) float64) family {
		f.Name = "weir_edge_service_" + f.Name
		return of(services, "service", func(s edge.Service) string { return s.Name }, f, value)
	}
	return []family{
		each(family{Name: "users", Help: "The users that are connected now, those that wait included."}, func(s edge.Service) float64 { return float64(s.Users) }),
		each(family{Name: "waiting_users", Help: "The users that wait for an instance."}, func(s edge.Service) float64 { return float64(s.Waiting) }),
		each(family{Name: "response_seconds", Help: "How long users wait on average, at the node where they wait longest: until they have the last byte, or, without an agent there, until the first byte is sent."}, func(s edge.Service) float64 { return s.ResponseMS / 1000 }),
		each(family{Name: "response_p95_seconds", Help: "How long 95 % of users wait at most, there; 0: not measured."}, func(s edge.Service) float64 { return s.ResponseP95MS / 1000 }),
		each(family{Name: "delivery_seconds", Help: "The part of response_seconds in which answers wait for the way to users; 0: not measured."}, func(s edge.Service) float64 { return s.DeliveryMS / 1000 }),
		each(family{Name: "requests_total", Help: "What the service's proxies were asked since they started.", Counter: true}, func(s edge.Service) float64 { return float64(s.Requests) }),
		each(family{Name: "failed_requests_total", Help: "Requests without an answer that is a success.", Counter: true}, func(s edge.Service) float64 { return float64(s.FailedRequests) }),
		each(family{Name: "sent_bytes_total", Help: "What the service's proxies sent to users.", Counter: true}, func(s edge.Service) float64 { return float64(s.SentBytes) }),
		each(family{Name: "degraded", Help: "1 if something is wrong with the service; weir-edge ps says what."}, func(s edge.Service) float64 { return exposition.Truth(s.Reason != "") }),
	}
}

// instanceFamilies count instances; their IDs are new with each.
func instanceFamilies(instances []edge.Instance) []family {
	type group struct{ service, node, state string }
	counts, users := map[group]int{}, map[group]int{}
	for _, i := range instances {
		p := group{i.Service, i.Node, i.State}
		counts[p]++
		p.state = ""
		users[p] += i.Users
	}
	order := func(a, b group) int {
		return cmp.Or(strings.Compare(a.service, b.service), strings.Compare(a.node, b.node), strings.Compare(a.state, b.state))
	}
	count := family{Name: "weir_edge_instances", Help: "The instances of a service on a node, by state; pending stands for a service that has none."}
	for _, p := range slices.SortedFunc(maps.Keys(counts), order) {
		count.Add(float64(counts[p]), "service", p.service, "node", p.node, "state", p.state)
	}
	served := family{Name: "weir_edge_instance_users", Help: "The users that the instances of a service on a node serve now."}
	for _, p := range slices.SortedFunc(maps.Keys(users), order) {
		served.Add(float64(users[p]), "service", p.service, "node", p.node)
	}
	return []family{count, served}
}
