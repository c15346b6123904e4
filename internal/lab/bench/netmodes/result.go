package netmodes

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Result is what was found for a case. All of it is for a second, and for all
// containers together; null is what this machine does not count.
type Result struct {
	Case
	Runs int `json:"runs"`
	// Failure is why runs are missing.
	Failure string `json:"failure,omitempty"`
	// RateBPS is payload that arrived, WireBPS the same with all headers.
	RateBPS measure.Spread `json:"rate_bps"`
	WireBPS measure.Spread `json:"wire_bps"`
	// CPU is processor time of the senders in seconds; Busy that of the whole
	// machine, of which Softirq went into softirqs.
	CPU        measure.Spread  `json:"cpu_s"`
	Busy       measure.Spread  `json:"busy_s"`
	Softirq    measure.Spread  `json:"softirq_s"`
	Switches   measure.Spread  `json:"switches"`
	Faults     measure.Spread  `json:"faults"`
	Migrations *measure.Spread `json:"migrations"`
	Cycles     *measure.Spread `json:"cycles"`
	// IPC is instructions per cycle.
	IPC *measure.Spread `json:"instructions_per_cycle"`
}

// summarise returns the result of all rounds of a case.
func summarise(c Case, of *bench.Observed[observation]) Result {
	result := Result{Case: c, Runs: len(of.Seen)}
	if of.Failure != nil {
		result.Failure = of.Failure.Error()
	}
	over := func(value func(observation) *float64) *measure.Spread {
		var values []float64
		for _, seen := range of.Seen {
			if v := value(seen); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil
		}
		spread := measure.SpreadOf(values)
		return &spread
	}
	always := func(value func(observation) float64) measure.Spread {
		if spread := over(func(seen observation) *float64 { return report.Number(value(seen)) }); spread != nil {
			return *spread
		}
		return measure.Spread{}
	}
	result.RateBPS = always(func(seen observation) float64 { return seen.payloadBPS(c) })
	result.WireBPS = always(func(seen observation) float64 { return float64(seen.Arrived.Bytes) * 8 / seen.Window.Seconds() })
	result.CPU = always(func(seen observation) float64 { return seen.Use.CPU })
	result.Busy = always(func(seen observation) float64 { return seen.CPU.Busy.Seconds() / seen.Window.Seconds() })
	result.Softirq = always(func(seen observation) float64 { return seen.Softirq.Seconds() / seen.Window.Seconds() })
	result.Switches = always(func(seen observation) float64 { return seen.Use.Switches })
	result.Faults = always(func(seen observation) float64 { return seen.Use.Faults })
	result.Migrations = over(func(seen observation) *float64 { return seen.Use.Migrations })
	result.Cycles = over(func(seen observation) *float64 { return seen.Use.Cycles })
	result.IPC = over(func(seen observation) *float64 {
		if cycles, instructions := seen.Use.Cycles, seen.Use.Instructions; cycles != nil && instructions != nil && *cycles > 0 {
			return report.Number(*instructions / *cycles)
		}
		return nil
	})
	return result
}

// round returns what claims compare of one round.
func (r Result) round(i int) Result {
	r.RateBPS, r.CPU, r.Switches, r.Faults = r.RateBPS.Round(i), r.CPU.Round(i), r.Switches.Round(i), r.Faults.Round(i)
	for _, counted := range []**measure.Spread{&r.Migrations, &r.Cycles, &r.IPC} {
		if *counted != nil {
			one := (*counted).Round(i)
			*counted = &one
		}
	}
	return r
}

// rounds returns a value of each round; none where the machine does not count it.
func (r Result) rounds(value func(Result) *float64) (values []float64) {
	for i := range r.Runs {
		if v := value(r.round(i)); v != nil {
			values = append(values, *v)
		}
	}
	return values
}

// overlayHeaderBytes is what VXLAN puts before the frame.
const overlayHeaderBytes = 14 + 20 + 8 + 8

// payloadBPS returns the rate of the payload that arrived, in bits per second.
func (o observation) payloadBPS(c Case) float64 {
	header := uint64(measure.TCPHeaderBytes)
	if c.Protocol == traffic.UDP {
		header = measure.UDPHeaderBytes
	}
	if c.Mode == "overlay" {
		header += overlayHeaderBytes
	}
	headers := min(header*o.Arrived.Packets, o.Arrived.Bytes)
	return float64(o.Arrived.Bytes-headers) * 8 / o.Window.Seconds()
}

// find returns the result of a case; nil if there is none.
func (r Report) find(c Case) *Result {
	if r.asked != nil {
		r.asked[c] = true
	}
	return measure.Find(r.Results, func(one Result) bool { return one.Case == c && one.Runs > 0 })
}

func (r Report) links() []uint64 {
	return measure.Distinct(r.Results, func(one Result) uint64 { return one.LinkBPS })
}

func (r Report) modes() []string {
	return measure.Distinct(r.Results, func(one Result) string { return one.Mode })
}

// what names what is sent.
func (c Case) what() string { return fmt.Sprintf("%s, %d bytes", c.Protocol, c.MessageBytes) }

// tables returns the paper's two tables beside this machine's numbers, and all results.
func (r Report) tables() []report.Table {
	tables := r.paperTables()
	for _, link := range r.links() {
		t := report.Table{Title: "All cases, " + linkName(link), Header: []string{
			"MODE", "SENT", "SENDERS", "WEIR", "MBIT/S", "CPU S", "BUSY S", "SOFTIRQ S", "SWITCHES/S", "FAULTS/S", "MIGRATIONS/S", "CYCLES/S, 10^6", "IPC", "FAILED",
		}}
		for _, one := range r.Results {
			if one.LinkBPS != link {
				continue
			}
			weir := "no"
			if one.Agent {
				weir = "yes"
			}
			t.Add(one.Mode, one.what(), fmt.Sprint(one.Containers), weir,
				fmt.Sprintf("%.2f", one.RateBPS.Median/1e6), fmt.Sprintf("%.3f", one.CPU.Median),
				fmt.Sprintf("%.2f", one.Busy.Median), fmt.Sprintf("%.2f", one.Softirq.Median),
				fmt.Sprintf("%.0f", one.Switches.Median), fmt.Sprintf("%.1f", one.Faults.Median),
				spreadText(one.Migrations, 1), spreadText(one.Cycles, 1e-6), spreadText(one.IPC, 1), one.Failure)
		}
		tables = append(tables, t)
	}
	return tables
}

// spreadText formats a median; a dash without one.
func spreadText(value *measure.Spread, factor float64) string {
	if value == nil {
		return "-"
	}
	return report.Text(report.Number(value.Median * factor))
}

// plots returns figures 3 to 5 as this machine has them, for each link: the
// modes side by side for what is sent, and over the number of senders.
func (r Report) plots() []report.Plot {
	var plots []report.Plot
	sent := measure.Distinct(r.Results, func(one Result) Case {
		return Case{Protocol: one.Protocol, MessageBytes: one.MessageBytes}
	})
	counts := measure.Distinct(r.Results, func(one Result) int { return one.Containers })
	series := report.MeasuredSeries(r.modes()...)
	for _, link := range r.links() {
		alone := report.Plot{Title: "Throughput of one sender, " + linkName(link), Kind: report.Bars, YLabel: "Mbit/s", Series: series}
		many := report.Plot{Title: "Throughput of several senders, " + linkName(link), Kind: report.Bars, YLabel: "Mbit/s", Series: series}
		for _, agent := range measure.Distinct(r.Results, func(one Result) bool { return one.Agent }) {
			title := map[bool]string{false: "without Weir", true: "with Weir"}[agent]
			var names []string
			for _, one := range sent {
				names = append(names, one.what())
			}
			panel := measure.NewBarPanel(title, series, names...)
			for i, one := range sent {
				r.setBars(panel, i, Case{"", one.Protocol, one.MessageBytes, 1, link, agent})
			}
			alone.Panels = append(alone.Panels, *panel.Panel)
			names = nil
			for _, count := range counts {
				names = append(names, fmt.Sprint(count))
			}
			for _, one := range sent {
				panel := measure.NewBarPanel(one.what()+", "+title, series, names...)
				for i, count := range counts {
					r.setBars(panel, i, Case{"", one.Protocol, one.MessageBytes, count, link, agent})
				}
				many.Panels = append(many.Panels, *panel.Panel)
			}
		}
		plots = append(plots, alone.WithoutEmpty())
		if len(counts) > 1 {
			plots = append(plots, many.WithoutEmpty())
		}
	}
	return plots
}

// setBars sets the throughput of every mode in a category.
func (r Report) setBars(panel measure.BarPanel, category int, c Case) {
	for _, mode := range r.modes() {
		c.Mode = mode
		if one := r.find(c); one != nil {
			panel.Set(mode, category, one.RateBPS, 1e-6)
		}
	}
}

// quantities returns all numbers of the network modes.
func (r Report) quantities() []report.Quantity {
	var list measure.Quantities
	for _, one := range r.Results {
		of := one.settingName() + ", " + one.what()
		list.Add(of, "throughput", "bit/s", report.Higher, &one.RateBPS)
		list.Add(of, "senders' processor time", "s/s", report.Lower, &one.CPU)
		list.Add(of, "context switches", "1/s", report.Lower, &one.Switches)
		list.Add(of, "page faults", "1/s", report.Lower, &one.Faults)
		list.Add(of, "migrations", "1/s", report.Lower, one.Migrations)
		list.Add(of, "cycles", "1/s", report.Lower, one.Cycles)
		list.Add(of, "instructions per cycle", "", report.Higher, one.IPC)
	}
	return list
}
