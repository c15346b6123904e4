package liveport

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

// liveRun is a run of a port in which every queue's packets wait so long.
func liveRun(waitMS float64) observation {
	seen := observation{Port: traffic.PortResult{FromNS: 1e9, UntilNS: 2e9, GapVariation: 1, MaxLateNS: 5e6}}
	for q := range seen.Port.Arrived {
		seen.Port.Arrived[q], seen.Port.Sent[q] = 1000, 1000
		seen.Port.ArrivedBytes += 1000 * 1000
		var arrivals []traffic.Arrival
		for i := range int64(1000) {
			at := seen.Port.FromNS + i*1e6
			arrivals = append(arrivals, traffic.Arrival{SentNS: at, ArrivedNS: at + int64(waitMS*1e6), Bytes: 958})
		}
		seen.Arrivals = append(seen.Arrivals, arrivals)
	}
	return seen
}

// TestLiveResult: what arrived is counted, and the model is solved for that.
func TestLiveResult(t *testing.T) {
	c := allCases()[0]
	result, err := newResult(t.Context(), c, []observation{liveRun(0.1), liveRun(0.2), liveRun(0.3)})
	if err != nil {
		t.Fatal(err)
	}
	port := model.Paper()
	port.ArrivalBPS = [3]float64{8e6, 8e6, 8e6}
	want, err := port.Solve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for q, queue := range result.Queues {
		if queue.ThroughputPPS.Median != 1000 || math.Abs(queue.WaitMS.Median-0.2) > 1e-9 || queue.Loss.Max != 0 || queue.ThroughputInterval > 1e-9 {
			t.Errorf("queue %d: %+v", q, queue)
		}
		if got := queue.ModelWaitMS; math.Abs(got/(want.Queues[q].WaitSeconds*1e3)-1) > 1e-9 {
			t.Errorf("queue %d: the model waits %v ms, want %v", q, got, want.Queues[q].WaitSeconds*1e3)
		}
		if queue.LineRateWaitMS != 0 {
			t.Error("a port has a model of HTB")
		}
	}
	// 30 batches: ten of each run, whose waits are 0.1, 0.2 and 0.3.
	if got := result.Queues[0].WaitInterval; math.Abs(got-studentT*0.0831/math.Sqrt(30)) > 1e-3 {
		t.Errorf("the interval of the wait is +- %v", got)
	}
	if result.Runs != 3 || result.MeanBytes != 1000 {
		t.Errorf("%+v", result)
	}
}

// TestLiveClaims: each outcome is judged with the reason that was measured.
func TestLiveClaims(t *testing.T) {
	queue := func(throughput, wait, interval float64) Queue {
		return Queue{
			ThroughputPPS: measure.SpreadOf([]float64{throughput - 9, throughput, throughput + 7}), WaitMS: measure.SpreadOf([]float64{wait - 0.1, wait, wait + 0.2}),
			ThroughputInterval: interval, WaitInterval: interval / 1000,
			ModelThroughputPPS: 1000, ModelWaitMS: 1, PortWaitMS: 1.01, LateMS: 0.4, LineRateThroughputPPS: 1234, LineRateWaitMS: 0.5,
		}
	}
	for _, test := range []struct {
		name   string
		server string
		queue  Queue
		want   [2]report.Judgement
		reason string
	}{
		{"as the model", serverPort, queue(1010, 1.1, 5), [2]report.Judgement{report.Reproduced, report.Reproduced}, "The largest difference is 1.00 %, of 2 % allowed"},
		{"late", serverPort, queue(1010, 1.5, 5), [2]report.Judgement{report.Reproduced, report.NotReproduced}, "packets leave it 0.4 ms late on average"},
		{"too short", serverPort, queue(1030, 1.1, 50), [2]report.Judgement{report.NotReproduced, report.Reproduced}, "The run was too short to tell"},
		{"HTB", serverHTB, queue(1500, 0.5, 5), [2]report.Judgement{report.DifferentByDesign, report.DifferentByDesign}, "EF 1234 packets/s and 0.5 ms (measured: 1500 and 0.5)"},
	} {
		r := Result{Case: Case{Name: test.name, Server: test.server}, Queues: [3]Queue{test.queue, test.queue, test.queue}}
		claims := r.claims()
		for i, spread := range []measure.Spread{test.queue.ThroughputPPS, test.queue.WaitMS} {
			if v := claims[i].Values[0]; v.Low == nil || v.High == nil || *v.Low != spread.Min || *v.High != spread.Max {
				t.Errorf("%s: the rounds of %s are %v to %v, want %v to %v", test.name, v.Name, v.Low, v.High, spread.Min, spread.Max)
			}
		}
		if got := [2]report.Judgement{claims[0].Judgement, claims[1].Judgement}; got != test.want {
			t.Errorf("%s: judged %q, want %q", test.name, got, test.want)
		}
		if all := claims[0].Reason + claims[1].Reason; !strings.Contains(all, test.reason) {
			t.Errorf("%s: no %q in %s", test.name, test.reason, all)
		}
	}
}

// TestModelReportIsComplete: a report has the live claims, none of the paper's (weir model llq --figures has these), and
// everything that it can be compared by.
func TestModelReportIsComplete(t *testing.T) {
	var r Report
	for _, c := range allCases() {
		result, err := newResult(t.Context(), c, []observation{liveRun(0.1)})
		if err != nil {
			t.Fatal(err)
		}
		r.Results = append(r.Results, result)
	}
	r.Failures = map[string]string{allCases()[0].Name: "no\nroot"}
	r.complete()
	if want := 2 * len(r.Results); len(r.Claims) != want || len(r.Tables) != 3 || len(r.Plots) != 2 || len(r.Quantities) != 9*len(r.Results) {
		t.Errorf("%d claims (want %d), %d tables, %d plots, %d quantities", len(r.Claims), want, len(r.Tables), len(r.Plots), len(r.Quantities))
	}
	if rows := len(r.Tables[0].Rows); rows != 3*len(r.Results) {
		t.Errorf("%d rows", rows)
	}
	for _, c := range r.Claims {
		if c.Source != liveSource || !strings.Contains(c.Source, "Weir's own") {
			t.Errorf("%s is of %s", c.Where, c.Source)
		}
	}
	if r.Failed() != 1 || !strings.Contains(r.Tables[2].Rows[0][1], "no; root") {
		t.Errorf("failures: %+v", r.Tables[2])
	}
}

func TestModelRefusesNonsense(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{RunOptions: measure.RunOptions{Duration: time.Millisecond, Repeat: 1}}, "the duration 300ms or longer"},
		{Options{RunOptions: measure.RunOptions{Duration: time.Second}}, "rounds must be positive"},
		{Options{Only: regexp.MustCompile("x25"), RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1}}, `no port matches "x25"`},
	} {
		if _, err := Run(t.Context(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}

// TestObservationIsKept: a journal keeps all of an observation.
func TestObservationIsKept(t *testing.T) {
	must.Keep[observation](t, measure.Pack, measure.Unpack)
}
