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
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/weir-project/weir/api/v1/edge"
)

// ContentType is that of what Write writes.
const ContentType = string(expfmt.FmtText)

// series is one value of a family, and its labels: names and values by turns.
type series struct {
	value  float64
	labels []string
}

// family is one metric.
type family struct {
	name, help string
	counter    bool
	series     []series
}

// Write writes all metrics of a moment; events are how many there were of each kind.
func Write(w io.Writer, s edge.Snapshot, events map[edge.EventKind]uint64) error {
	for _, f := range slices.Concat(general(s, events), nodeFamilies(s.Nodes), serviceFamilies(s.Services), instanceFamilies(s.Instances)) {
		if len(f.series) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(w, f.wire()); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
}

func (f *family) wire() *dto.MetricFamily {
	kind := dto.MetricType_GAUGE
	if f.counter {
		kind = dto.MetricType_COUNTER
	}
	made := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &kind}
	for i := range f.series {
		s := &f.series[i]
		m := &dto.Metric{}
		for j := 0; j < len(s.labels); j += 2 {
			value := strings.ToValidUTF8(s.labels[j+1], "\uFFFD")
			m.Label = append(m.Label, &dto.LabelPair{Name: &s.labels[j], Value: &value})
		}
		if f.counter {
			m.Counter = &dto.Counter{Value: &s.value}
		} else {
			m.Gauge = &dto.Gauge{Value: &s.value}
		}
		made.Metric = append(made.Metric, m)
	}
	return made
}

func general(s edge.Snapshot, events map[edge.EventKind]uint64) []family {
	happened := family{name: "weir_edge_events_total", help: "What happened since weir-edge started, by kind.", counter: true}
	for _, kind := range slices.Sorted(maps.Keys(events)) {
		happened.series = append(happened.series, series{float64(events[kind]), []string{"kind", string(kind)}})
	}
	looked := family{name: "weir_edge_last_round_timestamp_seconds", help: "When weir-edge last looked at everything."}
	if !s.At.IsZero() {
		looked.series = []series{{float64(s.At.UnixMilli()) / 1000, nil}}
	}
	return []family{
		{name: "weir_edge_build_info", help: "The version of weir-edge and the engine that it manages; always 1.", series: []series{{1, []string{"version", s.Version, "engine", s.Engine}}}},
		looked, happened,
	}
}

// of makes a family of a value of each thing in a list.
func of[T any](list []T, label string, name func(T) string, f family, value func(T) float64) family {
	for _, t := range list {
		f.series = append(f.series, series{value(t), []string{label, name(t)}})
	}
	return f
}

func nodeFamilies(nodes []edge.Node) []family {
	gauge := func(name, help string, value func(edge.Node) float64) family {
		return of(nodes, "node", func(n edge.Node) string { return n.Name }, family{name: "weir_edge_node_" + name, help: help}, value)
	}
	return []family{
		gauge("ready", "1 if the node answers and takes instances.", func(n edge.Node) float64 { return truth(n.State == "ready") }),
		gauge("controlled", "1 if a Weir agent shares out the node's uplink.", func(n edge.Node) float64 { return truth(n.Weir) }),
		gauge("age_seconds", "How old what is measured of the node is.", func(n edge.Node) float64 { return n.AgeSeconds }),
		gauge("cpus", "The processors of the node.", func(n edge.Node) float64 { return n.CPUs }),
		gauge("cpu_used_ratio", "The part of the node's processors that is used, 0 to 1.", func(n edge.Node) float64 { return n.CPUUsedPercent / 100 }),
		gauge("memory_bytes", "The memory of the node.", func(n edge.Node) float64 { return float64(n.MemoryBytes) }),
		gauge("memory_used_bytes", "The memory of the node that is used.", func(n edge.Node) float64 { return float64(n.MemoryUsedBytes) }),
		gauge("disk_free_bytes", "What is free where the node keeps images.", func(n edge.Node) float64 { return float64(n.DiskFreeBytes) }),
		gauge("uplink_capacity_bytes_per_second", "The rate of the node's uplink.", func(n edge.Node) float64 { return bytesPerSecond(n.UplinkBPS) }),
		gauge("uplink_rate_bytes_per_second", "What the node's uplink sends.", func(n edge.Node) float64 { return bytesPerSecond(n.UplinkSentBPS) }),
		gauge("promised_bytes_per_second", "The minimums that instances on the node are promised.", func(n edge.Node) float64 { return bytesPerSecond(n.PromisedBPS) }),
		gauge("free_bytes_per_second", "What further instances on the node may be promised.", func(n edge.Node) float64 { return bytesPerSecond(n.FreeBPS) }),
	}
}

func serviceFamilies(services []edge.Service) []family {
	each := func(f family, value func(edge.Service) float64) family {
		f.name = "weir_edge_service_" + f.name
		return of(services, "service", func(s edge.Service) string { return s.Name }, f, value)
	}
	return []family{
		each(family{name: "users", help: "The users that are connected now, those that wait included."}, func(s edge.Service) float64 { return float64(s.Users) }),
		each(family{name: "waiting_users", help: "The users that wait for an instance."}, func(s edge.Service) float64 { return float64(s.Waiting) }),
		each(family{name: "response_seconds", help: "How long users wait for an answer, at the proxies; the slowest of them."}, func(s edge.Service) float64 { return s.ResponseMS / 1000 }),
		each(family{name: "requests_total", help: "What the service's proxies were asked since they started.", counter: true}, func(s edge.Service) float64 { return float64(s.Requests) }),
		each(family{name: "failed_requests_total", help: "Requests without an answer that is a success.", counter: true}, func(s edge.Service) float64 { return float64(s.FailedRequests) }),
		each(family{name: "sent_bytes_total", help: "What the service's proxies sent to users.", counter: true}, func(s edge.Service) float64 { return float64(s.SentBytes) }),
		each(family{name: "degraded", help: "1 if something is wrong with the service; weir-edge ps says what."}, func(s edge.Service) float64 { return truth(s.Reason != "") }),
	}
}

// instanceFamilies count instances; their IDs are new with each.
func instanceFamilies(instances []edge.Instance) []family {
	type place struct{ service, node, state string }
	counts, users := map[place]int{}, map[place]int{}
	for _, i := range instances {
		p := place{i.Service, i.Node, i.State}
		counts[p]++
		p.state = ""
		users[p] += i.Users
	}
	order := func(a, b place) int {
		return cmp.Or(strings.Compare(a.service, b.service), strings.Compare(a.node, b.node), strings.Compare(a.state, b.state))
	}
	count := family{name: "weir_edge_instances", help: "The instances of a service on a node, by state; pending stands for a service that has none."}
	for _, p := range slices.SortedFunc(maps.Keys(counts), order) {
		count.series = append(count.series, series{float64(counts[p]), []string{"service", p.service, "node", p.node, "state", p.state}})
	}
	served := family{name: "weir_edge_instance_users", help: "The users that the instances of a service on a node serve now."}
	for _, p := range slices.SortedFunc(maps.Keys(users), order) {
		served.series = append(served.series, series{float64(users[p]), []string{"service", p.service, "node", p.node}})
	}
	return []family{count, served}
}

// bytesPerSecond is a rate in bits per second in bytes per second.
func bytesPerSecond(bps uint64) float64 { return float64(bps) / 8 }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
