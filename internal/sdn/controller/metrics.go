package controller

import (
	"io"
	"slices"
	"strconv"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/exposition"
)

// metric is one metric family.
type metric = exposition.Family

// writeMetrics writes the controller's state in the Prometheus text format. Rates are bytes
// per second; label values are switches, ports and queues only.
func writeMetrics(w io.Writer, s v1.SDN) error {
	connected := metric{Name: "weir_sdn_switch_connected", Help: "1 if the switch is connected."}
	master := metric{Name: "weir_sdn_switch_master", Help: "1 if the switch is connected and does what this controller says, 0 if it obeys another."}
	flows := metric{Name: "weir_sdn_switch_flows", Help: "Flows that begin at the switch."}
	full := metric{Name: "weir_sdn_switch_table_full", Help: "1 if the switch refused a flow for want of room lately."}
	degraded := metric{Name: "weir_sdn_port_degraded", Help: "1 if the port does not have the queues that it should have."}
	portSent := metric{Name: "weir_sdn_port_sent_bytes_total", Help: "What the port has sent, by the switch's counters.", Counter: true}
	portReceived := metric{Name: "weir_sdn_port_received_bytes_total", Help: "What the port has received.", Counter: true}
	portDropped := metric{Name: "weir_sdn_port_dropped_packets_total", Help: "How many packets the port has dropped instead of sending them.", Counter: true}
	trusted := metric{Name: "weir_sdn_port_trusted", Help: "1 if what comes in at the port is queued by its DSCP, 0 if that was asked for and cannot be."}
	efDropped := metric{Name: "weir_sdn_port_ef_dropped_packets_total", Help: "How many packets of EF above the bound of the trusted port that they came in at were dropped.", Counter: true}
	rate := metric{Name: "weir_sdn_queue_rate_bytes_per_second", Help: "What the queue sent between the last two statistics."}
	least := metric{Name: "weir_sdn_queue_minimum_bytes_per_second", Help: "What the queue can always have."}
	bytes := metric{Name: "weir_sdn_queue_sent_bytes_total", Help: "What the queue has sent, by the switch's counters.", Counter: true}
	packets := metric{Name: "weir_sdn_queue_sent_packets_total", Help: "How many packets the queue has sent.", Counter: true}
	dropped := metric{Name: "weir_sdn_queue_dropped_packets_total", Help: "How many packets the queue has dropped.", Counter: true}
	for _, n := range s.Switches {
		connected.Add(exposition.Truth(n.Connected), "switch", n.DPID)
		master.Add(exposition.Truth(n.Connected && n.Role != roleSlave), "switch", n.DPID)
		flows.Add(float64(n.Flows), "switch", n.DPID)
		full.Add(exposition.Truth(n.TableFull), "switch", n.DPID)
		for _, p := range n.Ports {
			// Port names are truncated to 15 bytes and may repeat within a switch.
			port := []string{"switch", n.DPID, "port", p.Name, "number", strconv.FormatUint(uint64(p.Number), 10)}
			if p.State != "" {
				degraded.Add(exposition.Truth(p.State != stateOK), port...)
			}
			if p.Trust != nil {
				trusted.Add(exposition.Truth(p.Trust.Refused == ""), port...)
				efDropped.Add(float64(p.Trust.EFDroppedPackets), port...)
			}
			portSent.Add(float64(p.SentBytes), port...)
			portReceived.Add(float64(p.ReceivedBytes), port...)
			portDropped.Add(float64(p.DroppedPackets), port...)
			for _, q := range p.Queues {
				labels := append(slices.Clone(port), "queue", strconv.FormatUint(uint64(q.ID), 10), "class", q.Class)
				rate.Add(exposition.BytesPerSecond(q.RateBPS), labels...)
				least.Add(exposition.BytesPerSecond(q.MinBPS), labels...)
				bytes.Add(float64(q.SentBytes), labels...)
				packets.Add(float64(q.SentPackets), labels...)
				dropped.Add(float64(q.DroppedPackets), labels...)
			}
		}
	}
	links := metric{Name: "weir_sdn_links", Help: "Links between switches."}
	links.Add(float64(len(s.Links)))
	all := []metric{connected, master, flows, full, degraded, portSent, portReceived, portDropped, trusted, efDropped, rate, least, bytes, packets, dropped, links}
	classBytes := metric{Name: "weir_sdn_class_sent_bytes_total", Help: "What all flows of a class have carried.", Counter: true}
	classFlows := metric{Name: "weir_sdn_class_flows_total", Help: "How many flows were given a class.", Counter: true}
	for _, c := range s.Classes {
		classBytes.Add(float64(c.SentBytes), "class", c.Class)
		classFlows.Add(float64(c.Flows), "class", c.Class)
	}
	all = append(all, classBytes, classFlows)
	for _, c := range s.Counters {
		one := metric{Name: "weir_sdn_" + c.Name + "_total", Help: counterHelp[c.Name], Counter: true}
		one.Add(float64(c.Value))
		all = append(all, one)
	}
	return exposition.Write(w, all...)
}

// counterHelp says what each counter has counted since the controller started.
var counterHelp = map[string]string{
	"packet_ins":              "Packets that came to the controller.",
	"packet_ins_limited":      "Packets to the controller that were dropped as a flood.",
	"packet_ins_unknown":      "Packets of ports or switches that are gone, or without a path.",
	"packet_ins_on_probation": "Packets of ports that may still be links.",
	"floods_limited":          "Packets to unknown hosts that were not sent to all ports: more than 100 a second of one port.",
	"flows_installed":         "New flows.",
	"flows_reinstalled":       "Flows whose entries were sent again because a switch had lost them.",
	"flows_rerouted":          "Flows that were moved to another path.",
	"flows_reclassified":      "Flows whose class the second look corrected.",
	"flows_evicted":           "Flows that ended to make room.",
	"routed_ttl_expired":      "Packets to other networks whose TTL ended at the controller.",
	"routed_no_route":         "Packets to other networks without a route.",
	"routed_no_answer":        "Packets to other networks whose next hop did not answer.",
	"tables_full":             "Flow entries that switches refused for want of room.",
	"ports_blocked":           "Ports that were blocked because of a loop.",
	"hosts_refused":           "Hosts that were refused: they jump between ports, or are too many.",
	"switch_errors":           "Other refusals of switches.",
	"roles_claimed":           "How often this controller became master.",
	"roles_lost":              "How often another controller took over from this one.",
	"lldp_foreign":            "LLDP frames of others, which make no link.",
	"lldp_forged":             "LLDP frames with a wrong signature, which make no link.",
	"lldp_stale":              "LLDP frames that are too old to make a link.",
	"lldp_on_host_ports":      "LLDP frames that came in where hosts are, which make no link.",
	"connections":             "Connections of switches.",
	"connections_refused":     "Connections of switches that were refused.",
	"connections_duplicate":   "Connections that were refused because another switch has the same datapath identifier.",
	"connections_timed_out":   "Connections that ended because the switch was silent.",
	"connections_overflowed":  "Connections that ended because the switch stopped reading.",
	"messages_unreadable":     "Messages of switches that could not be read and were passed over.",
}

// roleSlave is the role in which a switch refuses changes by this controller.
const roleSlave = "slave"

// stateOK is the state of a port whose queues are configured.
const stateOK = "ok"
