package bench

import (
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/report"
)

// ModeResult is what was found for a case. All of it is for a second, and for all
// containers together; null is what this machine does not count.
type ModeResult struct {
	ModeCase
	Runs int `json:"runs"`
	// Failure is why runs are missing.
	Failure string `json:"failure,omitempty"`
	// RateBPS is payload that arrived, WireBPS the same with all headers.
	RateBPS Spread `json:"rate_bps"`
	WireBPS Spread `json:"wire_bps"`
	// CPU is processor time of the senders in seconds; Busy that of the whole
	// machine, of which Softirq went into softirqs.
	CPU        Spread  `json:"cpu_s"`
	Busy       Spread  `json:"busy_s"`
	Softirq    Spread  `json:"softirq_s"`
	Switches   Spread  `json:"switches"`
	Faults     Spread  `json:"faults"`
	Migrations *Spread `json:"migrations"`
	Cycles     *Spread `json:"cycles"`
	// IPC is instructions per cycle.
	IPC *Spread `json:"instructions_per_cycle"`
}

// paused counts the runs that count in spite of a pause.
func (o *modeOutcomes) paused() int {
	count := 0
	for _, seen := range o.seen {
		if seen.pause > 0 {
			count++
		}
	}
	return count
}

// summarise makes a result of all rounds.
func (o *modeOutcomes) summarise(c ModeCase) ModeResult {
	result := ModeResult{ModeCase: c, Runs: len(o.seen)}
	if o.failure != nil {
		result.Failure = o.failure.Error()
	}
	over := func(value func(modeObservation) *float64) *Spread {
		var values []float64
		for _, seen := range o.seen {
			if v := value(seen); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil
		}
		spread := spreadOf(values)
		return &spread
	}
	always := func(value func(modeObservation) float64) Spread {
		if spread := over(func(seen modeObservation) *float64 { return report.Number(value(seen)) }); spread != nil {
			return *spread
		}
		return Spread{}
	}
	result.RateBPS = always(func(seen modeObservation) float64 { return seen.payloadBPS(c) })
	result.WireBPS = always(func(seen modeObservation) float64 { return float64(seen.arrived.Bytes) * 8 / seen.window.Seconds() })
	result.CPU = always(func(seen modeObservation) float64 { return seen.use.cpu })
	result.Busy = always(func(seen modeObservation) float64 { return seen.cpu.Busy.Seconds() / seen.window.Seconds() })
	result.Softirq = always(func(seen modeObservation) float64 { return seen.softirq.Seconds() / seen.window.Seconds() })
	result.Switches = always(func(seen modeObservation) float64 { return seen.use.switches })
	result.Faults = always(func(seen modeObservation) float64 { return seen.use.faults })
	result.Migrations = over(func(seen modeObservation) *float64 { return seen.use.migrations })
	result.Cycles = over(func(seen modeObservation) *float64 { return seen.use.cycles })
	result.IPC = over(func(seen modeObservation) *float64 {
		if cycles, instructions := seen.use.cycles, seen.use.instructions; cycles != nil && instructions != nil && *cycles > 0 {
			return report.Number(*instructions / *cycles)
		}
		return nil
	})
	return result
}

// Headers in bytes: Ethernet and IPv4 with UDP, or with TCP and its timestamps
// option, which Linux sends by default; and what VXLAN puts before the frame.
const (
	udpHeaderBytes     = 14 + 20 + 8
	tcpHeaderBytes     = 14 + 20 + 20 + 12
	overlayHeaderBytes = 14 + 20 + 8 + 8
)

// payloadBPS is what arrived without headers, in bits per second.
func (o modeObservation) payloadBPS(c ModeCase) float64 {
	header := uint64(tcpHeaderBytes)
	if c.Protocol == traffic.UDP {
		header = udpHeaderBytes
	}
	if c.Mode == "overlay" {
		header += overlayHeaderBytes
	}
	headers := min(header*o.arrived.Packets, o.arrived.Bytes)
	return float64(o.arrived.Bytes-headers) * 8 / o.window.Seconds()
}

// find is the result of a case; nil if there is none.
func (r NetmodesReport) find(c ModeCase) *ModeResult {
	i := slices.IndexFunc(r.Results, func(one ModeResult) bool { return one.ModeCase == c && one.Runs > 0 })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// distinct lists the values of a field of all results, in their order.
func distinct[T comparable](r NetmodesReport, field func(ModeResult) T) []T {
	var values []T
	for _, one := range r.Results {
		if value := field(one); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

func (r NetmodesReport) links() []uint64 {
	return distinct(r, func(one ModeResult) uint64 { return one.LinkBPS })
}

func (r NetmodesReport) modes() []string {
	return distinct(r, func(one ModeResult) string { return one.Mode })
}

// what names what is sent.
func (c ModeCase) what() string { return fmt.Sprintf("%s, %d bytes", c.Protocol, c.MessageBytes) }

// netmodesTables are the paper's two tables beside this machine's numbers, and all
// that was measured.
func (r NetmodesReport) netmodesTables() []report.Table {
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

// spreadText is a median, or a dash where there is none.
func spreadText(value *Spread, factor float64) string {
	if value == nil {
		return "-"
	}
	return report.Text(report.Number(value.Median * factor))
}

// netmodesPlots are figures 3 to 5 as this machine has them, for each link: the
// modes side by side for what is sent, and over the number of senders.
func (r NetmodesReport) netmodesPlots() []report.Plot {
	var plots []report.Plot
	modes := r.modes()
	sent := distinct(r, func(one ModeResult) ModeCase {
		return ModeCase{Protocol: one.Protocol, MessageBytes: one.MessageBytes}
	})
	counts := distinct(r, func(one ModeResult) int { return one.Containers })
	var series []report.Series
	for i, mode := range modes {
		series = append(series, report.Series{Name: mode, Role: report.Measured, Colour: i})
	}
	for _, link := range r.links() {
		alone := report.Plot{Title: "Throughput of one sender, " + linkName(link), Kind: report.Bars, YLabel: "Mbit/s", Series: series}
		many := report.Plot{Title: "Throughput of several senders, " + linkName(link), Kind: report.Bars, YLabel: "Mbit/s", Series: series}
		for _, agent := range distinct(r, func(one ModeResult) bool { return one.Agent }) {
			title := map[bool]string{false: "without Weir", true: "with Weir"}[agent]
			var names []string
			for _, one := range sent {
				names = append(names, one.what())
			}
			panel := newBarPanel(title, series, names...)
			for i, one := range sent {
				r.setBars(panel, i, ModeCase{"", one.Protocol, one.MessageBytes, 1, link, agent})
			}
			alone.Panels = append(alone.Panels, *panel.panel)
			names = nil
			for _, count := range counts {
				names = append(names, fmt.Sprint(count))
			}
			for _, one := range sent {
				panel := newBarPanel(one.what()+", "+title, series, names...)
				for i, count := range counts {
					r.setBars(panel, i, ModeCase{"", one.Protocol, one.MessageBytes, count, link, agent})
				}
				many.Panels = append(many.Panels, *panel.panel)
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
func (r NetmodesReport) setBars(panel barPanel, category int, c ModeCase) {
	for _, mode := range r.modes() {
		c.Mode = mode
		if one := r.find(c); one != nil {
			panel.set(mode, category, one.RateBPS, 1e-6)
		}
	}
}
