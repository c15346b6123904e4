package metrics

import (
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/exposition"
)

// The metric families, in the order of the output.

func one(*row) float64 { return 1 }

var agentFamilies = []family{
	{
		name: "weir_build_info", help: "The version of the agent; always 1.", value: one,
		extra: func(r *row) string { return exposition.Labels("version", r.status.Version) },
	},
	{
		name: "weir_agent_degraded", help: "1 if the agent, or one of its uplinks, is not in order; weir ps says why.",
		value: func(r *row) float64 { return exposition.Truth(r.status.State != v1.StateOK) },
	},
	{
		name: "weir_agent_snapshot_age_seconds", help: "Age of the snapshot that these metrics come from.",
		value: func(r *row) float64 { return r.status.AgeMS / 1000 },
	},
}

var sourceFamilies = []family{{
	name: "weir_source_connected", help: "1 if the agent is connected to that source of containers.",
	value: func(r *row) float64 { return exposition.Truth(r.source.Connected) },
}}

var uplinkFamilies = []family{
	{
		name: "weir_uplink_info", help: "The scheduler of the uplink; always 1.", value: one,
		extra: func(r *row) string { return exposition.Labels("scheduler", r.uplink.Scheduler) },
	},
	{name: "weir_uplink_present", help: "1 if the device is there and can be used.", value: func(r *row) float64 { return exposition.Truth(r.uplink.Present) }},
	{name: "weir_uplink_degraded", help: "1 if the uplink is not shared out as it should be.", value: func(r *row) float64 { return exposition.Truth(r.uplink.State != v1.StateOK) }},
	{name: "weir_uplink_capacity_bytes_per_second", help: "The configured rate of the uplink.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.uplink.RateBPS) }},
	{name: "weir_uplink_rate_bytes_per_second", help: "What the uplink sent in the last second.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.uplink.SentBPS) }},
	{name: "weir_uplink_reserve_bytes_per_second", help: "The part of the capacity that minimums may not claim.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.uplink.ReserveBPS) }},
	{name: "weir_uplink_admitted_bytes_per_second", help: "The minimums in force, together.", value: func(r *row) float64 { return r.admitted }},
	{name: "weir_uplink_free_bytes_per_second", help: "What further minimums may claim.", value: func(r *row) float64 { return r.free }},
}

var containerFamilies = []family{
	{
		name: "weir_container_info", help: "The network mode of the container; always 1.", value: one,
		extra: func(r *row) string { return exposition.Labels("mode", string(r.container.Mode)) },
	},
	{name: "weir_container_degraded", help: "1 if part of the container's policy is not in force.", value: func(r *row) float64 { return exposition.Truth(r.container.State == v1.StateDegraded) }},
	{name: "weir_container_rejected", help: "1 if a guarantee of the container's policy was refused.", value: func(r *row) float64 { return exposition.Truth(r.container.State == v1.StateRejected) }},
	{name: "weir_container_weight", help: "The relative share when containers compete.", value: func(r *row) float64 { return float64(r.container.Policy.Weight) }},
	{name: "weir_container_priority", help: "Who is served first with what others leave idle, higher first.", value: func(r *row) float64 { return float64(r.container.Policy.Priority) }},
}

var shareFamilies = []family{
	{name: "weir_container_controlled", help: "1 if the container's traffic has a class at the uplink.", value: func(r *row) float64 { return exposition.Truth(r.share.Controlled) }},
	{name: "weir_container_minimum_bytes_per_second", help: "The minimum that the policy asks for; 0 for none.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.container.Policy.MinBPS) }},
	{name: "weir_container_admitted_bytes_per_second", help: "The minimum that is in force.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.share.AdmittedBPS) }},
	{
		name: "weir_container_maximum_bytes_per_second", help: "The maximum; absent without one.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.container.Policy.MaxBPS) },
		absent: func(r *row) bool { return r.container.Policy.MaxBPS == 0 },
	},
	{name: "weir_container_entitled_bytes_per_second", help: "The rate that the container can always have.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.share.EntitledBPS) }},
	{name: "weir_container_allocated_bytes_per_second", help: "The rate that the container may have now, given who else is sending.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.share.AllocatedBPS) }},
	{name: "weir_container_rate_bytes_per_second", help: "What the container sent in the last second.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.share.RateBPS) }},
	{name: "weir_container_wants_more", help: "1 if the container has more to send than it gets.", value: func(r *row) float64 { return exposition.Truth(r.share.WantsMore) }},
	{name: "weir_container_backlog_bytes", help: "What is queued.", value: func(r *row) float64 { return float64(r.share.BacklogBytes) }},
	{name: "weir_container_sent_bytes_total", help: "What the container has sent since it started.", counter: true, value: func(r *row) float64 { return float64(r.share.SentBytes) }},
	{name: "weir_container_sent_packets_total", help: "How many packets the container has sent since it started.", counter: true, value: func(r *row) float64 { return float64(r.share.SentPackets) }},
	{name: "weir_container_dropped_packets_total", help: "How many of the container's packets were dropped since it started.", counter: true, value: func(r *row) float64 { return float64(r.share.DroppedPackets) }},
	{name: "weir_container_marked_packets_total", help: "How many of the container's packets were marked with ECN's congestion experienced, in place of a drop, since it started.", counter: true, value: func(r *row) float64 { return float64(r.share.MarkedPackets) }},
	{name: "weir_container_delay_median_seconds", help: "How long packets waited at the uplink in the last seconds, median; 0 while nothing is sent.", value: func(r *row) float64 { return r.share.DelayP50MS / 1000 }},
	{name: "weir_container_delay_p99_seconds", help: "How long packets waited at the uplink in the last seconds, 99th percentile; 0 while nothing is sent.", value: func(r *row) float64 { return r.share.DelayP99MS / 1000 }},
	{
		name: "weir_container_delay_bound_seconds", help: "The bound on delay that is in force; absent without one.", value: func(r *row) float64 { return r.share.LatencyMS / 1000 },
		absent: func(r *row) bool { return r.share.LatencyMS == 0 },
	},
}

// incomingFamilies are shareFamilies for received traffic.
var incomingFamilies = func() []family {
	families := slices.Clone(shareFamilies)
	for i := range families {
		f := &families[i]
		f.name = strings.Replace(f.name, "weir_container_", "weir_container_in_", 1)
		f.help = "Of received traffic: " + f.help
	}
	return families
}()

var classFamilies = []family{
	{name: "weir_class_rate_bytes_per_second", help: "What the container sent of that traffic class in the last second.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.class.RateBPS) }},
	{
		name: "weir_class_maximum_bytes_per_second", help: "Up to which rate EF goes first; absent for others.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.class.MaxBPS) },
		absent: func(r *row) bool { return r.class.Class != v1.ClassEF },
	},
	{
		name: "weir_class_minimum_bytes_per_second", help: "What AF has before BE gets any; absent for others.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.class.MinBPS) },
		absent: func(r *row) bool { return r.class.Class != v1.ClassAF },
	},
	{name: "weir_class_backlog_bytes", help: "What is queued of that traffic class.", value: func(r *row) float64 { return float64(r.class.BacklogBytes) }},
	{name: "weir_class_sent_bytes_total", help: "What the container has sent of that traffic class.", counter: true, value: func(r *row) float64 { return float64(r.class.SentBytes) }},
	{name: "weir_class_sent_packets_total", help: "How many packets of that traffic class the container has sent.", counter: true, value: func(r *row) float64 { return float64(r.class.SentPackets) }},
	{name: "weir_class_dropped_packets_total", help: "How many packets of that traffic class were dropped.", counter: true, value: func(r *row) float64 { return float64(r.class.DroppedPackets) }},
	{name: "weir_class_marked_packets_total", help: "How many packets of that traffic class were marked with ECN's congestion experienced, in place of a drop.", counter: true, value: func(r *row) float64 { return float64(r.class.MarkedPackets) }},
	{
		name: "weir_class_excess_bytes_per_second", help: "What of EF was above its maximum in the last second, and went as BE; absent for others.", value: func(r *row) float64 { return exposition.BytesPerSecond(r.class.ExcessBPS) },
		absent: func(r *row) bool { return r.class.Class != v1.ClassEF },
	},
	{
		name: "weir_class_excess_bytes_total", help: "What of EF was above its maximum, and went as BE; absent for others.", counter: true, value: func(r *row) float64 { return float64(r.class.ExcessBytes) },
		absent: func(r *row) bool { return r.class.Class != v1.ClassEF },
	},
	{
		name: "weir_class_held", help: "1 if EF was above its maximum within the last seconds; absent for others.", value: func(r *row) float64 { return exposition.Truth(r.class.Held) },
		absent: func(r *row) bool { return r.class.Class != v1.ClassEF },
	},
	{name: "weir_class_delay_median_seconds", help: "How long packets of that traffic class waited at the uplink in the last seconds, median; 0 while nothing is sent.", value: func(r *row) float64 { return r.class.DelayP50MS / 1000 }},
	{name: "weir_class_delay_p99_seconds", help: "How long packets of that traffic class waited at the uplink in the last seconds, 99th percentile; 0 while nothing is sent.", value: func(r *row) float64 { return r.class.DelayP99MS / 1000 }},
}
