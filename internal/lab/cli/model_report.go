package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
)

// llqReport is what `weir model llq -o json` prints: a report with the answer
// beside it.
type llqReport struct {
	report.Report
	llqAnswer
}

// llqSweepReport is the same of a sweep.
type llqSweepReport struct {
	report.Report
	llqSweep
}

const modelNote = "Computed, not measured: the Markov chain of docs/model.md. Arrivals are Poisson, packet sizes and turns exponential; " +
	"the numbers hold for the long run."

// newModelReport returns a report of a computation that began at started.
func newModelReport(title string, started time.Time) report.Report {
	return report.Report{
		Format: report.Format, Title: title, Note: modelNote, Provenance: modelProvenance(started), Verdicts: []report.Verdict{},
	}
}

// modelProvenance returns the provenance of computed numbers.
func modelProvenance(started time.Time) report.Provenance {
	return report.Provenance{
		Command: strings.Join(os.Args, " "), StartedAt: started, TookSeconds: time.Since(started).Seconds(),
		Environment: machine.Read(cmdline.Version),
	}
}

func newLLQReport(a llqAnswer, started time.Time) llqReport {
	r := llqReport{newModelReport("weir model llq", started), a}
	p := a.Parameters
	r.Tables = []report.Table{parameterTable(p), {Title: "Queues", Header: llqHeader}}
	for q, queue := range a.queues() {
		r.Tables[1].Add(queue.row(q, p)...)
	}
	line := report.Table{Title: "What the line sends, of all time", Header: []string{"EF", "AF", "BE", "IDLE"}}
	percent := func(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
	line.Add(percent(a.Line.EF), percent(a.Line.AF), percent(a.Line.BE), percent(a.Line.Idle))
	r.Tables = append(r.Tables, line)
	if most := max(p.Places[0], p.Places[1], p.Places[2]); most <= maxDrawnPlaces {
		r.Plots = []report.Plot{distributionPlot(a, most)}
	}
	for q, queue := range a.queues() {
		r.Quantities = append(r.Quantities, queue.quantities(model.QueueNames[q])...)
	}
	return r
}

// maxDrawnPlaces is the longest queue whose distribution is drawn.
const maxDrawnPlaces = 100

// quantities returns the answer's numbers under the name of a case.
func (q *llqQueue) quantities(of string) []report.Quantity {
	quantity := func(name, unit string, better report.Better, value float64) report.Quantity {
		return report.Quantity{Case: of, Name: name, Unit: unit, Better: better, Values: []float64{value}, Exact: true}
	}
	return []report.Quantity{
		quantity("mean queue", "packets", report.Lower, q.MeanQueue),
		quantity("throughput", "bit/s", report.Higher, q.ThroughputBPS),
		quantity("wait", "ms", report.Lower, q.WaitMS),
		quantity("loss", "fraction", report.Lower, q.Loss),
	}
}

// parameterTable returns the parameters of a port.
func parameterTable(p llqParameters) report.Table {
	t := report.Table{Title: "Port", Header: []string{"RATE", "AF'S RATE", "BE'S RATE", "PACKET, BYTES", "TURNS A SECOND", "AFTER EF", "SWITCH", "EMPTY QUEUE"}}
	t.Add(formatBPS(p.RateBPS), formatBPS(p.AFRateBPS), formatBPS(p.BERateBPS), fmt.Sprint(p.PacketBytes),
		fmt.Sprint(p.PollPerSecond), string(p.AfterEF), string(p.Switch), string(p.Empty))
	return t
}

// distributionPlot returns the share of time with each number of packets in each queue.
func distributionPlot(a llqAnswer, most int) report.Plot {
	plot := report.Plot{Title: "Packets in each queue", Kind: report.Bars, YLabel: "share of time", Series: model.QueueSeries()}
	panel := report.Panel{}
	for packets := range most + 1 {
		panel.Categories = append(panel.Categories, strconv.Itoa(packets))
	}
	for _, queue := range a.queues() {
		row := make([]*float64, most+1)
		for packets, share := range queue.Distribution {
			row[packets] = report.Number(share)
		}
		panel.Values = append(panel.Values, row)
	}
	plot.Panels = []report.Panel{panel}
	return plot
}

func newLLQSweepReport(s llqSweep, started time.Time) llqSweepReport {
	r := llqSweepReport{newModelReport("weir model llq, "+s.Sweep+" swept", started), s}
	first := s.Points[0].Parameters
	t := report.Table{Title: "Queues", Header: append([]string{strings.ToUpper(s.Sweep)}, llqHeader...)}
	for n := range s.Points {
		for q, queue := range s.Points[n].queues() {
			t.Add(append([]string{s.Points[n].Value}, queue.row(q, s.Points[n].Parameters)...)...)
			r.Quantities = append(r.Quantities, queue.quantities(s.Sweep+" "+s.Points[n].Value+", "+model.QueueNames[q])...)
		}
	}
	r.Tables = []report.Table{parameterTable(first), t}
	x := s.numbers()
	plot := func(title, label string, value func(*llqQueue) float64) report.Plot {
		p := report.Plot{Title: title, Kind: report.Lines, XLabel: s.Sweep, YLabel: label, Series: model.QueueSeries()}
		p.Panels = []report.Panel{report.LinePanel("", x, len(model.QueueNames), func(q, at int) *float64 {
			return report.Number(value(s.Points[at].queues()[q]))
		})}
		return p
	}
	if len(x) > 1 {
		r.Plots = []report.Plot{
			plot("Mean queue", "packets", func(q *llqQueue) float64 { return q.MeanQueue }),
			plot("Throughput", "Mbit/s", func(q *llqQueue) float64 { return q.ThroughputBPS / 1e6 }),
			plot("Mean waiting time", "ms", func(q *llqQueue) float64 { return q.WaitMS }),
			plot("Loss", "%", func(q *llqQueue) float64 { return 100 * q.Loss }),
		}
	}
	return r
}

// numbers returns the swept values for a plot's axis, rates in Mbit/s.
func (s llqSweep) numbers() []float64 {
	var list []float64
	for _, point := range s.Points {
		value, err := strconv.ParseFloat(point.Value, 64)
		if err != nil {
			value, _ = parseArrival(point.Value) // it was read before
			value /= 1e6
		}
		list = append(list, value)
	}
	return list
}

// figuresReport returns figures 3 to 5 of the paper.
func figuresReport(cmd *cobra.Command) (report.Report, error) {
	started := time.Now()
	found, err := model.Figures(cmd.Context())
	found.Provenance = modelProvenance(started)
	return found, err
}

func (f *llqFlags) runFigures(cmd *cobra.Command, format cmdline.Output) error {
	for _, name := range []string{
		"rate", "packet", "arrival", "places", "af-rate", "poll", "empty", "switch", "after-ef", "sweep", "joint", "report",
	} {
		if cmd.Flags().Changed(name) {
			return cmdline.Usagef("--figures is the paper's port: leave out --%s, or use --sweep and --report without --figures", name)
		}
	}
	found, err := figuresReport(cmd)
	if err != nil {
		return err
	}
	if err := writePage(f.figures, found); err != nil {
		return err
	}
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), found)
	}
	var text strings.Builder
	for _, judgement := range report.Judgements() {
		if count := found.Count(judgement); count > 0 {
			fmt.Fprintf(&text, "%d of %d claims %s\n", count, len(found.Claims), judgement)
		}
	}
	text.WriteString("\n")
	for _, row := range found.Tables[0].Rows {
		fmt.Fprintf(&text, "%s reproduced: %s\n", row[1], row[0])
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text.String())
	return err
}

// writePage writes a report as an HTML page.
func writePage(path string, found report.Report) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return found.WriteHTML(file)
}
