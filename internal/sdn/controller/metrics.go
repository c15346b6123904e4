package controller

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	v1 "github.com/weir-project/weir/api/v1"
)

// metric is one family with its series.
type metric struct {
	name, help string
	counter    bool
	series     []*dto.Metric
}

func (m *metric) add(value float64, labels ...string) {
	one := &dto.Metric{}
	for i := 0; i < len(labels); i += 2 {
		one.Label = append(one.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	if m.counter {
		one.Counter = &dto.Counter{Value: &value}
	} else {
		one.Gauge = &dto.Gauge{Value: &value}
	}
	m.series = append(m.series, one)
}

// writeMetrics writes what ps shows in Prometheus' text format. Rates are bytes
// per second here; labels are bounded by switches, ports and queues.
func writeMetrics(w io.Writer, s v1.SDN) error {
	connected := metric{name: "weir_sdn_switch_connected", help: "1 if the switch is connected."}
	master := metric{name: "weir_sdn_switch_master", help: "1 if the switch is connected and does what this controller says, 0 if it obeys another."}
	flows := metric{name: "weir_sdn_switch_flows", help: "Flows that begin at the switch."}
	full := metric{name: "weir_sdn_switch_table_full", help: "1 if the switch refused a flow for want of room lately."}
	refused := metric{name: "weir_sdn_port_degraded", help: "1 if the port does not have the queues that it should have."}
	portSent := metric{name: "weir_sdn_port_sent_bytes_total", help: "What the port has sent, by the switch's counters.", counter: true}
	portReceived := metric{name: "weir_sdn_port_received_bytes_total", help: "What the port has received.", counter: true}
	portDropped := metric{name: "weir_sdn_port_dropped_packets_total", help: "How many packets the port has dropped instead of sending them.", counter: true}
	rate := metric{name: "weir_sdn_queue_rate_bytes_per_second", help: "What the queue sent between the last two statistics."}
	least := metric{name: "weir_sdn_queue_minimum_bytes_per_second", help: "What the queue can always have."}
	bytes := metric{name: "weir_sdn_queue_sent_bytes_total", help: "What the queue has sent, by the switch's counters.", counter: true}
	packets := metric{name: "weir_sdn_queue_sent_packets_total", help: "How many packets the queue has sent.", counter: true}
	dropped := metric{name: "weir_sdn_queue_dropped_packets_total", help: "How many packets the queue has dropped.", counter: true}
	for _, n := range s.Switches {
		connected.add(truth(n.Connected), "switch", n.DPID)
		master.add(truth(n.Connected && n.Role != roleSlave), "switch", n.DPID)
		flows.add(float64(n.Flows), "switch", n.DPID)
		full.add(truth(n.TableFull), "switch", n.DPID)
		for _, p := range n.Ports {
			// Names are cut off at 15 bytes and may be there twice.
			port := []string{"switch", n.DPID, "port", p.Name, "number", strconv.FormatUint(uint64(p.Number), 10)}
			if p.State != "" {
				refused.add(truth(p.State != stateOK), port...)
			}
			portSent.add(float64(p.SentBytes), port...)
			portReceived.add(float64(p.ReceivedBytes), port...)
			portDropped.add(float64(p.DroppedPackets), port...)
			for _, q := range p.Queues {
				labels := append(slices.Clone(port), "queue", strconv.FormatUint(uint64(q.ID), 10), "class", q.Class)
				rate.add(float64(q.RateBPS)/8, labels...)
				least.add(float64(q.MinBPS)/8, labels...)
				bytes.add(float64(q.SentBytes), labels...)
				packets.add(float64(q.SentPackets), labels...)
				dropped.add(float64(q.DroppedPackets), labels...)
			}
		}
	}
	links := metric{name: "weir_sdn_links", help: "Links between switches."}
	links.add(float64(len(s.Links)))
	all := []metric{connected, master, flows, full, refused, portSent, portReceived, portDropped, rate, least, bytes, packets, dropped, links}
	classBytes := metric{name: "weir_sdn_class_sent_bytes_total", help: "What all flows of a class have carried.", counter: true}
	classFlows := metric{name: "weir_sdn_class_flows_total", help: "How many flows were given a class.", counter: true}
	for _, c := range s.Classes {
		classBytes.add(float64(c.SentBytes), "class", c.Class)
		classFlows.add(float64(c.Flows), "class", c.Class)
	}
	all = append(all, classBytes, classFlows)
	for _, c := range s.Counters {
		one := metric{name: "weir_sdn_" + c.Name + "_total", help: "How often since the controller started; docs/sdn.md says what it is.", counter: true}
		one.add(float64(c.Value))
		all = append(all, one)
	}
	for i := range all {
		if err := all[i].write(w); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
}

func (m *metric) write(w io.Writer) error {
	if len(m.series) == 0 {
		return nil
	}
	kind := dto.MetricType_GAUGE
	if m.counter {
		kind = dto.MetricType_COUNTER
	}
	_, err := expfmt.MetricFamilyToText(w, &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &kind, Metric: m.series})
	return err
}

// roleSlave is the role of a controller that a switch obeys not.
const roleSlave = "slave"

// stateOK is a port with its queues.
const stateOK = "ok"

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
