package netmodes

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/must"
)

// validOptions are valid options.
func validOptions() Options {
	return Options{
		Modes: Modes(), Protocols: []traffic.Protocol{traffic.TCP, traffic.UDP}, MessageBytes: []int{64, 1024},
		Containers: 4, LinksBPS: []uint64{PaperLinkBPS, 0}, Agent: []bool{false, true},
		RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1},
	}
}

func TestNetmodesRefusesNonsense(t *testing.T) {
	if err := validOptions().Check(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Modes = []string{"bridge", "token-ring"} }, `unknown mode "token-ring": choose from native, bridge`},
		{func(o *Options) { o.Protocols = []traffic.Protocol{"sctp"} }, "choose tcp or udp"},
		{func(o *Options) { o.MessageBytes = []int{0} }, "choose 1 to 1400"},
		{func(o *Options) { o.MessageBytes = []int{9000} }, "choose 1 to 1400"},
		{func(o *Options) { o.Containers = 65 }, "choose 1 to 64"},
		{func(o *Options) { o.Containers = 0 }, "choose 1 to 64"},
		{func(o *Options) { o.Duration = time.Millisecond }, "50ms or longer"},
		{func(o *Options) { o.LinksBPS = nil }, "nothing to measure"},
	} {
		options := validOptions()
		test.change(&options)
		if err := options.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}

// TestNetmodesCases: every combination once, those of a setting side by side.
func TestNetmodesCases(t *testing.T) {
	options := validOptions()
	cases := options.cases()
	if want := 2 * 4 * 7 * 2 * 2 * 2; len(cases) != want {
		t.Errorf("%d cases, want %d", len(cases), want)
	}
	seen := map[Case]int{}
	settings := map[Case]bool{}
	for i, c := range cases {
		seen[c]++
		if i == 0 || cases[i-1].setting() != c.setting() {
			if settings[c.setting()] {
				t.Errorf("setting %q comes twice", c.settingName())
			}
			settings[c.setting()] = true
		}
	}
	if len(seen) != len(cases) {
		t.Errorf("%d of %d cases differ", len(seen), len(cases))
	}
	options.Containers = 20
	if counts := options.counts(); len(counts) != 7 || counts[6] != 20 || counts[5] != 16 {
		t.Errorf("up to 20 containers are measured as %v", counts)
	}
}

// boardResults are the paper's own board, as far as the paper tells: 20 Mbit/s,
// throughputs in the ratios of the text.
func boardResults() Report {
	exact := func(value float64) *measure.Spread { s := measure.Exactly(value); return &s }
	add := func(r *Report, mode string, protocol traffic.Protocol, bytes, count int, mbps, cycles, switches, faults, ipc float64) {
		r.Results = append(r.Results, Result{
			Case: Case{mode, protocol, bytes, count, PaperLinkBPS, false}, Runs: 1,
			RateBPS: measure.Exactly(mbps * 1e6), CPU: measure.Exactly(cycles / 1200), Switches: measure.Exactly(switches), Faults: measure.Exactly(faults),
			Cycles: exact(cycles * 1e6), IPC: exact(ipc), Migrations: exact(float64(max(2, bytes/256))),
		})
	}
	r := Report{DurationS: 10}
	add(&r, Native, traffic.TCP, 64, 1, 16, 490, 200, 2, 0.5)
	add(&r, Native, traffic.TCP, 1024, 1, 16, 285, 200, 2, 0.5)
	add(&r, Native, traffic.UDP, 64, 1, 10, 800, 200, 2, 0.5)
	add(&r, Native, traffic.UDP, 1024, 1, 17, 255, 200, 2, 0.5)
	add(&r, bridge, traffic.TCP, 64, 1, 15.04, 985, 224, 13, 0.51)
	add(&r, bridge, traffic.TCP, 1024, 1, 15.04, 570, 343, 5, 0.42)
	add(&r, bridge, traffic.UDP, 64, 1, 8.2, 1597, 580, 6, 0.48)
	add(&r, bridge, traffic.UDP, 1024, 1, 13.94, 510, 341, 6, 0.45)
	add(&r, host, traffic.TCP, 64, 1, 12.03, 1050, 337, 14, 0.49)
	add(&r, host, traffic.TCP, 1024, 1, 12.03, 600, 400, 14, 0.49)
	add(&r, host, traffic.UDP, 64, 1, 8.2, 1597, 580, 14, 0.49)
	add(&r, host, traffic.UDP, 1024, 1, 12.9, 510, 341, 14, 0.49)
	for i, mbps := range []float64{16, 17, 12.42} {
		add(&r, bridge, traffic.TCP, 64, i+2, mbps, 1000, 300, 13, 0.5)
	}
	for i, mbps := range []float64{17, 19, 18} {
		add(&r, host, traffic.TCP, 64, i+2, mbps, 1000, 300, 13, 0.5)
	}
	return r
}

// TestNetmodesIntervals: of three rounds each number of a claim has its median, its lowest and its highest.
func TestNetmodesIntervals(t *testing.T) {
	r := boardResults()
	for i := range r.Results {
		one := &r.Results[i]
		one.Runs = 3
		for k, s := range []*measure.Spread{&one.RateBPS, &one.CPU, &one.Switches, &one.Faults, one.Migrations, one.Cycles, one.IPC} {
			factor := 0.86 + 0.02*float64((3*i+k)%7) // no two alike
			if one.Containers == 3 {
				factor *= 0.8 // another number is the best
			}
			*s = measure.SpreadOf([]float64{s.Median * factor, s.Median, s.Median * 1.02})
		}
	}
	r.Format = report.Format
	r.complete()
	stored := must.Reread(t, r, func(text []byte, into *Report) error { return report.Parse(text, into) })
	if stored.JudgeAgain(); !reflect.DeepEqual(stored.Claims, r.Claims) {
		t.Error("a stored report is judged otherwise")
	}
	stored.Claims = nil // all rounds are its own
	if stored.JudgeAgain(); !reflect.DeepEqual(stored.Claims, r.Claims) {
		t.Error("a stored report is judged otherwise without the earlier judgements")
	}
	for _, judged := range r.Claims {
		if judged.Section == "" {
			t.Errorf("%s, %s has no section", judged.Where, judged.Says)
		}
		for _, v := range judged.Values {
			if v.Low == nil || v.High == nil || *v.Low >= *v.High || *v.Low > *v.Measured || *v.High < *v.Measured {
				t.Errorf("%s, %s: %s has no interval", judged.Where, judged.Says, v.Name)
			}
		}
	}
}

// TestNetmodesClaimsHoldForThePaper: the paper's own numbers reproduce all claims.
func TestNetmodesClaimsHoldForThePaper(t *testing.T) {
	r := boardResults()
	r.complete()
	if len(r.Claims) != 25 {
		t.Errorf("%d claims", len(r.Claims))
	}
	for _, claim := range r.Claims {
		if claim.Judgement != report.Reproduced {
			t.Errorf("%s: %q is %s: %s", claim.Where, claim.Says, claim.Judgement, claim.Reason)
		}
	}
	if len(r.Tables) != 3 || len(r.Plots) != 2 {
		t.Errorf("%d tables, %d plots", len(r.Tables), len(r.Plots))
	}
}

// TestNetmodesRareEvents: the ratio of a few events in a run decides nothing, also if there are none at all.
func TestNetmodesRareEvents(t *testing.T) {
	r := boardResults()
	r.DurationS = 1
	for i := range r.Results {
		if r.Results[i].Mode == host || r.Results[i].Mode == bridge && r.Results[i].MessageBytes == SmallBytes {
			r.Results[i].Faults = measure.Exactly(0)
		}
	}
	var moot []string
	for _, c := range r.judge() {
		if c.Judgement == report.NotMeasured {
			moot = append(moot, c.Reason)
		}
	}
	want := []string{
		"Runs of 1 s have 0 and 2 page faults: a ratio of fewer than 10 is chance.", "Runs of 1 s have 4 and 2 migrations: a ratio of fewer than 10 is chance.",
		"Runs of 1 s have 0 and 0 page faults: a ratio of fewer than 10 is chance.",
	}
	if !slices.Equal(moot, want) {
		t.Errorf("moot are %q, want %q", moot, want)
	}
}

// TestNetmodesClaimsCanFail: a bridge that loses half of everything.
func TestNetmodesClaimsCanFail(t *testing.T) {
	r := boardResults()
	for i, one := range r.Results {
		if one.Mode == bridge {
			r.Results[i].RateBPS = measure.Exactly(one.RateBPS.Median / 2)
		}
	}
	r.complete()
	for _, claim := range r.Claims {
		if (strings.HasPrefix(claim.Where, "figure 3") || strings.HasPrefix(claim.Where, "figure 4") || strings.Contains(claim.Says, "31 %")) &&
			claim.Judgement != report.NotReproduced {
			t.Errorf("%s: %q is %s", claim.Where, claim.Says, claim.Judgement)
		}
	}
}

// TestNetmodesOppositeFindings: modes that do not differ, and senders with as many page faults and migrations, reproduce no
// difference between them, and exceed none.
func TestNetmodesOppositeFindings(t *testing.T) {
	r := boardResults()
	for i := range r.Results {
		one := &r.Results[i]
		one.RateBPS, one.Faults, *one.Migrations = measure.Exactly(10e6), measure.Exactly(3), measure.Exactly(3)
	}
	refuted := 0
	for _, c := range r.judge() {
		for _, words := range []string{"loses", "lower", "25 %", "8 %", "faults are frequent", "migrates", "3 Mbit/s"} {
			if !strings.Contains(c.Says, words) {
				continue
			}
			if refuted++; c.Judgement != report.NotReproduced {
				t.Errorf("%s: %q is %s: %s", c.Where, c.Says, c.Judgement, c.Reason)
			}
			break
		}
		if strings.Contains(c.Says, "as many") && strings.Contains(c.Says, "page faults") && !strings.Contains(c.Says, "frequent") && c.Judgement != report.Reproduced {
			t.Errorf("as many faults: %q is %s: %s", c.Says, c.Judgement, c.Reason)
		}
	}
	if refuted != 10 {
		t.Errorf("%d claims are refuted, want 10", refuted)
	}
}

// TestNetmodesReadings: a factor in the paper's text is a lower limit, and an average is compared with the mean of both sizes.
func TestNetmodesReadings(t *testing.T) {
	r := boardResults()
	for i := range r.Results {
		one := &r.Results[i]
		switch one.Case {
		case Case{bridge, traffic.UDP, 64, 1, PaperLinkBPS, false}:
			one.Switches = measure.Exactly(4 * 224)
		case Case{host, traffic.TCP, 64, 1, PaperLinkBPS, false}:
			one.RateBPS = measure.Exactly(15.04e6 / 1.4)
		case Case{host, traffic.TCP, 1024, 1, PaperLinkBPS, false}:
			one.RateBPS = measure.Exactly(15.04e6 / 1.1)
		}
	}
	for _, words := range []string{"switches contexts twice as often", "25 % more TCP"} {
		if i := slices.IndexFunc(r.judge(), func(c report.Claim) bool { return strings.Contains(c.Says, words) }); i < 0 || r.judge()[i].Judgement != report.Reproduced {
			t.Errorf("%s: %d, %+v", words, i, r.judge()[max(i, 0)])
		}
	}
}

// TestNetmodesOnlyOf: a claim of the page is judged by the cases of its command.
func TestNetmodesOnlyOf(t *testing.T) {
	for _, c := range boardResults().judge() {
		where, _, _ := strings.Cut(c.Where, ", ")
		o := only(where)
		o.LinksBPS, o.Agent = []uint64{PaperLinkBPS}, []bool{false}
		r := boardResults()
		r.Results = slices.DeleteFunc(r.Results, func(one Result) bool { return !slices.Contains(o.cases(), one.Case) })
		judged := r.judge()
		if i := slices.IndexFunc(judged, func(one report.Claim) bool { return one.Says == c.Says }); i < 0 || judged[i].Judgement != c.Judgement {
			t.Errorf("%s, %s: %s by its command: %s", c.Where, c.Says, judged[max(i, 0)].Judgement, OnlyOf(c.Where))
		}
	}
	for where, want := range map[string]string{
		"figure 5, no limit": "--modes bridge,host --protocols tcp --bytes 64 --containers 4 --links none --agent without",
		"text, 20 Mbit/s":    "--modes native,bridge,host --protocols tcp,udp --bytes 64,1024 --containers 1 --links 20mbit --agent without",
		"":                   "",
	} {
		if got := OnlyOf(where); got != want {
			t.Errorf("%q: %q, want %q", where, got, want)
		}
	}
}

// TestNetmodesClaimsOnAFullLink: where both sides fill the link, nothing that is said of
// their throughput is judged, and the reason says where it is; where one does not, or
// nothing limits them, it is.
func TestNetmodesClaimsOnAFullLink(t *testing.T) {
	throughput := func(c report.Claim) bool {
		return strings.HasPrefix(c.Where, "figure") || strings.Contains(c.Says, "throughput")
	}
	// Everything fills the link, and the bridge carries half of what others do without one.
	r := boardResults()
	for _, one := range r.Results {
		one.LinkBPS = 0
		r.Results = append(r.Results, one)
	}
	for i := range r.Results {
		one := &r.Results[i]
		switch {
		case one.LinkBPS > 0:
			one.RateBPS, one.WireBPS = measure.Exactly(0.96*PaperLinkBPS), measure.Exactly(0.999*PaperLinkBPS)
		case one.Mode == bridge:
			one.RateBPS, one.WireBPS = measure.Exactly(40e6), measure.Exactly(42e6)
		default:
			one.RateBPS, one.WireBPS = measure.Exactly(80e6), measure.Exactly(82e6)
		}
	}
	judged := 0
	r.complete()
	for _, c := range r.Claims {
		if !throughput(c) {
			if c.Judgement == report.NotMeasured {
				t.Errorf("%s: %q is %s: %s", c.Where, c.Says, c.Judgement, c.Reason)
			}
			continue
		}
		want, reason := report.NotMeasured, "It is judged without limit"
		switch {
		case strings.Contains(c.Says, "3 Mbit/s"):
			reason = "can neither fail nor hold."
		case strings.HasSuffix(c.Where, "no limit") && strings.Contains(c.Says, "almost the same"):
			want, reason = report.Reproduced, ""
		case strings.HasSuffix(c.Where, "no limit"):
			want, reason = report.NotReproduced, ""
		}
		if c.Judgement != want || !strings.Contains(c.Reason, reason) {
			t.Errorf("%s: %q is %s: %s", c.Where, c.Says, c.Judgement, c.Reason)
		}
		judged++
	}
	if judged != 2*10+1 { // one on the paper's link alone
		t.Errorf("%d claims about throughput, want 21", judged)
	}
	// A bridge that does not fill it can be told from others that do.
	r = boardResults()
	for i := range r.Results {
		one := &r.Results[i]
		one.RateBPS, one.WireBPS = measure.Exactly(0.96*PaperLinkBPS), measure.Exactly(0.999*PaperLinkBPS)
		if one.Mode == bridge {
			one.RateBPS, one.WireBPS = measure.Exactly(0.5*PaperLinkBPS), measure.Exactly(0.6*PaperLinkBPS)
		}
	}
	r.complete()
	for _, c := range r.Claims {
		if !throughput(c) {
			continue
		}
		want := report.NotReproduced
		switch {
		case strings.Contains(c.Says, "three containers"): // host mode fills it with any number
			want = report.NotMeasured
		case strings.Contains(c.Says, "almost the same"):
			want = report.Reproduced
		}
		if c.Judgement != want || want == report.NotMeasured && !strings.Contains(c.Reason, "--links none") {
			t.Errorf("half a link in bridge mode: %s: %q is %s: %s", c.Where, c.Says, c.Judgement, c.Reason)
		}
	}
}

// TestNetmodesWithoutCounters: on a machine without performance counters what is
// about them is not measured, and the report says why.
func TestNetmodesWithoutCounters(t *testing.T) {
	r := boardResults()
	r.CountersMissing = "cycles: this machine does not count them"
	for i := range r.Results {
		r.Results[i].Cycles, r.Results[i].IPC = nil, nil
	}
	r.complete()
	if !strings.Contains(r.Note, "does not count them") {
		t.Errorf("the note does not say so: %s", r.Note)
	}
	found := 0
	for _, claim := range r.Claims {
		if strings.Contains(claim.Says, "cycle") {
			found++
			if claim.Judgement != report.NotMeasured || !strings.Contains(claim.Reason, "does not count them") {
				t.Errorf("%q is %s: %s", claim.Says, claim.Judgement, claim.Reason)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d claims about cycles, want 5", found)
	}
	var page strings.Builder
	if err := r.WriteHTML(&page); err != nil {
		t.Error(err)
	}
}

func TestParseSoftirq(t *testing.T) {
	took, err := parseSoftirq("cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 2\n")
	if err != nil || took != 700*time.Millisecond {
		t.Errorf("%v, %v, want 700ms", took, err)
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu 1 2 3 4 5 6 x 8", "intr 1 2 3 4 5 6 7 8"} {
		if _, err := parseSoftirq(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestNetmodesFailsRunsOfMeasuredModes: a failure in a mode that was measured with Weir before is a
// run; the mode is still one that Weir controls.
func TestNetmodesFailsRunsOfMeasuredModes(t *testing.T) {
	var progress strings.Builder
	options := measure.RunOptions{Progress: &progress}
	r := &runner{Recorder: &bench.Recorder[Case, observation]{Options: options}, options: Options{
		Modes: []string{"bridge"}, Protocols: []traffic.Protocol{""}, MessageBytes: []int{0}, Containers: 2, LinksBPS: []uint64{0},
		Agent: []bool{false, true}, RunOptions: options,
	}}
	seen, without := Case{Mode: "bridge", Containers: 1, Agent: true}, Case{Mode: "bridge", Containers: 1}
	r.Of(without).Seen = []observation{{}}
	if r.controlled("bridge") {
		t.Error("measured without Weir: controlled")
	}
	r.Of(seen).Seen = []observation{{}}
	if !r.controlled("bridge") || r.controlled("host") {
		t.Error("what was measured is not known")
	}
	missed := Case{Mode: "bridge", Containers: 2}
	r.Fail(errors.New("no time"), seen, missed)
	if result := summarise(missed, r.Of(missed)); result.Runs != 0 || result.Failure != "no time" {
		t.Errorf("%+v", result)
	}
	if !strings.Contains(progress.String(), "no time") {
		t.Errorf("says %q", progress.String())
	}
}

// TestObservationIsKept: a journal keeps all of an observation.
func TestObservationIsKept(t *testing.T) {
	must.Keep[observation](t, measure.Pack, measure.Unpack)
}

// TestOnlyAMissingDriverLeavesAModeOut: any other error is a failure of the runs, which the next process measures.
func TestOnlyAMissingDriverLeavesAModeOut(t *testing.T) {
	ipvlan, bridge := Case{Mode: string(testbed.ModeIPvlanL2)}, Case{Mode: string(testbed.ModeBridge)}
	r := &runner{unavailable: map[string]string{}, Recorder: &bench.Recorder[Case, observation]{}}
	r.options.Progress, r.Recorder.Options.Progress = io.Discard, io.Discard
	must.Succeed(t, r.leaveOut(t.Context(), fmt.Errorf("add a container: %w", testbed.ErrNoIPvlan), []Case{ipvlan}))
	must.Succeed(t, r.leaveOut(t.Context(), errors.New("no memory"), []Case{bridge}))
	if len(r.unavailable) != 1 || r.unavailable[ipvlan.Mode] == "" || r.Of(ipvlan).Failure != nil || r.Of(bridge).Failure == nil {
		t.Errorf("left out: %v; failed: %v, %v", r.unavailable, r.Of(ipvlan).Failure, r.Of(bridge).Failure)
	}
}
