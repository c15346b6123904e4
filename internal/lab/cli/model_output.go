package cli

import (
	"fmt"
	"io"

	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
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

// row returns a queue's row of a table.
func (q *llqQueue) row(number int, p llqParameters) []string {
	return []string{
		model.QueueNames[number], formatBPS(q.arrivalBPS), formatBPS(q.serviceBPS), formatBPS(q.ThroughputBPS),
		fmt.Sprintf("%.3f of %d", q.MeanQueue, p.Places[number]), fmt.Sprintf("%.4g ms", q.WaitMS), fmt.Sprintf("%.3g %%", 100*q.Loss),
	}
}

// writeText prints a report of an answer for a terminal: its queues, and two sentences.
func (r *llqReport) writeText(out io.Writer) error {
	if err := r.Tables[1].WriteText(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nThe line sends EF %.1f %%, AF %.1f %%, BE %.1f %% of the time and is idle %.1f %%.\n"+
		"%d states, balanced to %.1g of the flow.\n", 100*r.Line.EF, 100*r.Line.AF, 100*r.Line.BE, 100*r.Line.Idle, r.States, r.Residual)
	return err
}

func (s *llqSweep) writeText(out io.Writer) error {
	t := report.Table{Header: []string{s.Sweep}}
	for _, name := range []string{"EF", "AF", "BE"} {
		t.Header = append(t.Header, name+" THROUGHPUT", "QUEUE", "WAIT ms", "LOSS %")
	}
	for n := range s.Points {
		cells := []string{s.Points[n].Value}
		for _, queue := range s.Points[n].queues() {
			cells = append(cells, formatBPS(queue.ThroughputBPS), fmt.Sprintf("%.3f", queue.MeanQueue), fmt.Sprintf("%.4g", queue.WaitMS), fmt.Sprintf("%.3g", 100*queue.Loss))
		}
		t.Add(cells...)
	}
	return t.WriteText(out)
}
