package sdn

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/report"
)

// Weir's targets for its controller, on the processors that the load leaves it (setApart).
const (
	leastPacketIns = 100_000 // a second
	mostHalfP99MS  = 1
	leastOsKen     = 20
	mostBytes      = 100e6
)

// complete adds what follows from the measurements.
func (r *Report) complete() {
	r.Verdicts = []report.Verdict{}
	r.Note = fmt.Sprintf("%d switches are played on the loopback address, and every packet-in is a new flow. The load has a processor of its own, except beside the load. "+
		"SDN-LLQ gives no speed of its controller, so no claim is judged by this; weir bench sdn --figures repeats its figures 7 to 13.", r.Switches)
	if r.Ratio > 0 {
		r.Note += fmt.Sprintf(" Weir answered %.1f times as many packet-ins a second as os-ken, %.1f times as many for each second of processor time.", r.Ratio, r.RatioCPU)
	}
	table := report.Table{Title: "Controllers", Header: []string{
		"CONTROLLER", "PACKET-INS/S", "FLOW-MODS/S", "PACKET-INS/CPU-S", "CPU-S/S", "LOAD'S CPU-S/S", "AT HALF: /S", "P50, MS", "P99, MS", "SENT LATE P99, MS", "WAITED/RAN", "MEMORY, MB",
	}}
	for _, c := range r.Controllers {
		memory := "-"
		if c.ResidentBytes > 0 {
			memory = fmt.Sprintf("%.1f", float64(c.ResidentBytes)/1e6)
		}
		table.Add(c.Name, fmt.Sprintf("%.0f", c.PacketInsPerSecond), fmt.Sprintf("%.0f", c.FlowModsPerSecond), fmt.Sprintf("%.0f", c.PerCPUSecond),
			fmt.Sprintf("%.2f", c.CPUSeconds), fmt.Sprintf("%.2f", c.LoadCPUSeconds),
			fmt.Sprintf("%.0f", c.HalfPerSecond), fmt.Sprintf("%.2f", c.HalfP50MS), fmt.Sprintf("%.2f", c.HalfP99MS), fmt.Sprintf("%.2f", c.HalfLateP99MS),
			fmt.Sprintf("%.1f", c.HalfWaitRatio), memory)
		r.Quantities = append(r.Quantities,
			report.Quantity{Case: c.Name, Name: "packet-ins", Unit: "1/s", Better: report.Higher, Values: []float64{c.PacketInsPerSecond}},
			report.Quantity{Case: c.Name, Name: "packet-ins for each second of processor time", Unit: "1/s", Better: report.Higher, Values: []float64{c.PerCPUSecond}},
			report.Quantity{Case: c.Name, Name: "p99 at half load", Unit: "ms", Better: report.Lower, Values: []float64{c.HalfP99MS}})
	}
	r.Tables = []report.Table{table}
	if len(r.Controllers) > 0 {
		r.Verdicts = r.verdicts(r.Controllers[0])
	}
}

// verdicts judges Weir's controller.
func (r *Report) verdicts(weir Controller) []report.Verdict {
	where := fmt.Sprintf("%d switches", r.Switches)
	list := []report.Verdict{
		{Target: "packet-ins a second", Limit: fmt.Sprintf("at least %d", leastPacketIns), Measured: fmt.Sprintf("%.0f", weir.PacketInsPerSecond), Where: where,
			Met: weir.PacketInsPerSecond >= leastPacketIns},
		{Target: "p99 at half of that", Limit: fmt.Sprintf("at most %d ms", mostHalfP99MS), Measured: fmt.Sprintf("%.2f ms", weir.HalfP99MS),
			Where: fmt.Sprintf("%s, %.0f packet-ins a second; it waited %.1f times as long for a processor as it had one", where, weir.HalfPerSecond, weir.HalfWaitRatio), Met: weir.HalfP99MS <= mostHalfP99MS},
		{Target: "memory with 10,000 flows", Limit: fmt.Sprintf("below %.0f MB", mostBytes/1e6), Measured: fmt.Sprintf("%.1f MB", float64(weir.ResidentBytes)/1e6), Where: where,
			Met: weir.ResidentBytes < mostBytes},
	}
	if p99 := &list[1]; !p99.Met {
		p99.Change = "a packet-in would have to take less of the processor, and garbage collections to come in smaller parts, or more processors"
	}
	if r.Ratio > 0 {
		list = append(list, report.Verdict{Target: "beside os-ken", Limit: fmt.Sprintf("at least %d times", leastOsKen), Measured: fmt.Sprintf("%.1f times", r.Ratio), Where: where, Met: r.Ratio >= leastOsKen})
	}
	return list
}
