package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/share/policy"
)

// llqQueue is what happens to one queue, as printed.
type llqQueue struct {
	MeanQueue     float64 `json:"mean_queue"`
	ThroughputBPS float64 `json:"throughput_bps"`
	WaitMS        float64 `json:"wait_ms"`
	Loss          float64 `json:"loss"`
	// Distribution is the share of time with 0, 1, ... packets.
	Distribution []float64 `json:"distribution"`

	arrivalBPS, serviceBPS float64
}

// llqParameters are what was solved.
type llqParameters struct {
	RateBPS       float64       `json:"rate_bps"`
	PacketBytes   float64       `json:"packet_bytes"`
	ArrivalBPS    [3]float64    `json:"arrival_bps"`
	Places        [3]int        `json:"places"`
	AFRateBPS     float64       `json:"af_rate_bps"`
	BERateBPS     float64       `json:"be_rate_bps"`
	PollPerSecond float64       `json:"poll_per_second"`
	AfterEF       model.AfterEF `json:"after_ef"`
	Switch        model.Switch  `json:"switch"`
	Empty         model.Empty   `json:"empty"`
}

// llqShares are shares of time in which a packet of each queue, or none, is on
// the line.
type llqShares struct {
	EF   float64 `json:"ef"`
	AF   float64 `json:"af"`
	BE   float64 `json:"be"`
	Idle float64 `json:"idle"`
}

type llqState struct {
	F     int     `json:"f"`
	I     int     `json:"i"`
	J     int     `json:"j"`
	K     int     `json:"k"`
	Share float64 `json:"share"`
}

// llqAnswer is the answer for one port.
type llqAnswer struct {
	Model      string        `json:"model"`
	Value      string        `json:"value,omitempty"` // of a sweep
	Parameters llqParameters `json:"parameters"`
	EF         llqQueue      `json:"ef"`
	AF         llqQueue      `json:"af"`
	BE         llqQueue      `json:"be"`
	Line       llqShares     `json:"line"`
	States     int           `json:"states"`
	Residual   float64       `json:"residual"`
	Joint      []llqState    `json:"joint,omitempty"`
}

func newLLQAnswer(port model.LLQ, r *model.Result, joint bool) llqAnswer {
	a := llqAnswer{
		Model: "llq", States: r.States, Residual: r.Residual,
		Parameters: llqParameters{
			RateBPS: port.RateBPS, PacketBytes: port.PacketBytes, ArrivalBPS: port.ArrivalBPS, Places: port.Places,
			AFRateBPS: port.AFRateBPS, BERateBPS: port.RateBPS - port.AFRateBPS, PollPerSecond: port.PollPerSecond,
			AfterEF: port.AfterEF, Switch: port.Switch, Empty: port.Empty,
		},
		Line: llqShares{EF: r.Serves[model.EF], AF: r.Serves[model.AF], BE: r.Serves[model.BE]},
	}
	a.Line.Idle = max(0, 1-a.Line.EF-a.Line.AF-a.Line.BE)
	service := port.ServiceBPS()
	for q, queue := range a.queues() {
		from := r.Queues[q]
		*queue = llqQueue{
			MeanQueue: from.MeanPackets, ThroughputBPS: from.ThroughputPPS * port.BitsPerPacket(),
			WaitMS: from.WaitSeconds * 1e3, Loss: from.Loss, Distribution: from.Distribution,
			arrivalBPS: port.ArrivalBPS[q], serviceBPS: service[q],
		}
	}
	if joint {
		for _, s := range r.StateShares() {
			a.Joint = append(a.Joint, llqState(s))
		}
	}
	return a
}

func (a *llqAnswer) queues() [3]*llqQueue { return [3]*llqQueue{&a.EF, &a.AF, &a.BE} }

func formatBPS(bps float64) string { return policy.FormatRateShort(uint64(bps + 0.5)) }

var llqHeader = []string{"QUEUE", "ARRIVES", "SERVED AT", "THROUGHPUT", "MEAN QUEUE", "WAIT", "LOSS"}

// row is a queue's row of a table.
func (q *llqQueue) row(number int, p llqParameters) []string {
	return []string{
		model.QueueNames[number], formatBPS(q.arrivalBPS), formatBPS(q.serviceBPS), formatBPS(q.ThroughputBPS),
		fmt.Sprintf("%.3f of %d", q.MeanQueue, p.Places[number]), fmt.Sprintf("%.4g ms", q.WaitMS), fmt.Sprintf("%.3g %%", 100*q.Loss),
	}
}

func (a *llqAnswer) writeTable(out io.Writer) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(llqHeader, "\t"))
	for q, queue := range a.queues() {
		fmt.Fprintln(w, strings.Join(queue.row(q, a.Parameters), "\t"))
	}
	_ = w.Flush() // into memory
	fmt.Fprintf(&b, "\nThe line sends EF %.1f %%, AF %.1f %%, BE %.1f %% of the time and is idle %.1f %%.\n",
		100*a.Line.EF, 100*a.Line.AF, 100*a.Line.BE, 100*a.Line.Idle)
	fmt.Fprintf(&b, "%d states, balanced to %.1g of the flow.\n", a.States, a.Residual)
	return printText(out, b.Bytes())
}

func (s *llqSweep) writeTable(out io.Writer) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, s.Sweep)
	for _, name := range []string{"EF", "AF", "BE"} {
		fmt.Fprintf(w, "\t%s THROUGHPUT\tQUEUE\tWAIT ms\tLOSS %%", name)
	}
	fmt.Fprintln(w)
	for n := range s.Points {
		fmt.Fprint(w, s.Points[n].Value)
		for _, queue := range s.Points[n].queues() {
			fmt.Fprintf(w, "\t%s\t%.3f\t%.4g\t%.3g", formatBPS(queue.ThroughputBPS), queue.MeanQueue, queue.WaitMS, 100*queue.Loss)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
	return printText(out, b.Bytes())
}

func printText(out io.Writer, text []byte) error {
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	return nil
}
