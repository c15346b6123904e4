package bench

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/meter"
	"github.com/weir-project/weir/internal/traffic"
)

// seenRates is a run of one second in which containers sent these rates, in
// Mbit/s.
func seenRates(mbps ...uint64) observation {
	o := observation{window: time.Second}
	for _, rate := range mbps {
		o.arrived = append(o.arrived, meter.Counter{Bytes: rate * 1e6 / 8, Packets: rate * 100})
	}
	return o
}

func TestSharesAreMediansOfRuns(t *testing.T) {
	load := Load{Protocol: traffic.TCP}
	c := Case{LinkBPS: 100e6, Containers: []Container{
		{Name: "C1", Weight: 1, Load: load}, {Name: "C2", Weight: 1}, {Name: "C3", Weight: 3, Load: load, PaperMbps: 70},
	}}
	list, use := shares(c, []observation{seenRates(20, 0, 79), seenRates(26, 0, 74), seenRates(25, 0, 73)})
	if len(list) != 2 || list[0].Container != "C1" || list[1].Container != "C3" {
		t.Fatalf("shares of %+v, want C1 and C3", list)
	}
	if want := (Spread{25e6, 20e6, 26e6}); list[0].Measured != want || list[0].Error != 0 || list[0].PaperBPS != nil {
		t.Errorf("C1: %+v, want %+v without error", list[0], want)
	}
	if got := list[1]; got.IdealBPS != 75e6 || math.Abs(got.Error+1.0/75) > 1e-9 || *got.PaperBPS != 70e6 {
		t.Errorf("C3: %+v", got)
	}
	if want := (Spread{0.99, 0.98, 1}); *use != want {
		t.Errorf("link use %+v, want %+v", *use, want)
	}
}

func TestSharesOfNobody(t *testing.T) {
	for name, c := range map[string]Case{
		"nobody sends":        {LinkBPS: 100e6, Containers: []Container{{Name: "C1", Weight: 1}}},
		"link without a rate": {Containers: []Container{{Name: "C1", Weight: 1, Load: Load{Protocol: traffic.TCP}}}},
	} {
		if list, use := shares(c, []observation{seenRates(0)}); list != nil || use != nil {
			t.Errorf("%s: shares %+v, use %+v", name, list, use)
		}
	}
}

func TestCostLeavesTheIdleMachineOut(t *testing.T) {
	o := seenRates(500, 500)
	o.cpuBusy = time.Duration(runtime.NumCPU()) * 300 * time.Millisecond
	o.idleCPU = 0.1
	got := cost([]observation{o})
	for name, pair := range map[string][2]float64{
		"CPU use":               {got.CPUUse.Median, 0.2},
		"seconds per gigabit":   {got.CPUSecondsPerGbit.Median, 0.2 * float64(runtime.NumCPU())},
		"packets per second":    {got.PacketsPerSecond.Median, 100_000},
		"rate, bits per second": {got.RateBPS.Median, 1e9},
	} {
		if math.Abs(pair[0]-pair[1]) > pair[1]*1e-6 {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestLatencySkipsRunsWithoutAnswers(t *testing.T) {
	const ms = time.Millisecond
	answered := observation{ping: traffic.PingResult{Sent: 3, RTTs: []time.Duration{1 * ms, 2 * ms, 3 * ms}}}
	silent := observation{ping: traffic.PingResult{Sent: 2, Lost: 2}}
	got := latency(Case{PaperLatencyMS: map[string]float64{PeerHTB: 0.6}}, PeerHTB, []observation{answered, silent})
	if got.MeanMS.Median != 2 || got.P50MS.Median != 2 || got.Sent != 5 || got.Lost != 2 || *got.PaperMS != 0.6 {
		t.Errorf("latency %+v", *got)
	}
}

func TestReactionsSpanFromChangeToChange(t *testing.T) {
	c := startStopCase(traffic.UDP, 100e6)
	o := observation{binWidth: time.Millisecond}
	for i := range c.Containers {
		row := make([]uint64, c.Length/time.Millisecond)
		for bin := range row {
			// Everyone gets the ideal of 30 ms ago.
			at := max(time.Duration(bin)*time.Millisecond-30*time.Millisecond, 0)
			row[bin] = c.ideal(at)[i] / 8 / 1000
		}
		o.series = append(o.series, row)
	}
	list := reactions(c, []observation{o})
	if len(list) != 7 {
		t.Fatalf("%d reactions, want 7", len(list))
	}
	for i, reaction := range list {
		// A window may hold a little of the old rates and still be within 5 %.
		late := reaction.SettleMS.Median
		if reaction.SettledRuns != 1 || reaction.Held.Median != 1 || late > 30 || i > 0 && late < 20 {
			t.Errorf("%s: %+v, want about 30 ms", reaction.Change, reaction)
		}
	}
	series := rateSeries(c, o)
	if steps := len(series.RateBPS[0]); steps != int(c.Length/seriesStep) {
		t.Errorf("%d steps of %v, want %v of them", steps, seriesStep, c.Length)
	}
}
