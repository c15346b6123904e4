package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/report"
)

// llqOf runs `weir model llq ... -o json`.
func llqOf(t *testing.T, args ...string) llqAnswer {
	t.Helper()
	code, stdout, stderr := run(append([]string{"model", "llq", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	var answer llqAnswer
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestModelLLQTable(t *testing.T) {
	code, stdout, stderr := run("model", "llq")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	compareGolden(t, "model-llq", withoutResidual(stdout))
	code, stdout, stderr = run("model", "llq", "--sweep", "af-rate=40mbit:66mbit:13mbit")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	compareGolden(t, "model-llq-sweep", stdout)
}

// withoutResidual leaves out what rounding decides.
func withoutResidual(text string) string {
	before, _, _ := strings.Cut(text, ", balanced to")
	return before + "\n"
}

// TestModelLLQJSON: the names of the output, and that what is written arrives in
// the model: EF alone is M/M/1/5, and units agree.
func TestModelLLQJSON(t *testing.T) {
	_, stdout, _ := run("model", "llq", "--rate", "100mbit", "--packet", "1000", "--arrival", "33.3mbit,33.3mbit,33.3mbit",
		"--places", "5,5,5", "--af-rate", "40mbit", "--poll", "100", "-o", "json")
	var fields map[string]map[string]any
	_ = json.Unmarshal([]byte(stdout), &fields) // numbers at the top are no maps
	for _, queue := range []string{"ef", "af", "be"} {
		for _, name := range []string{"mean_queue", "throughput_bps", "wait_ms", "loss"} {
			if value, ok := fields[queue][name].(float64); !ok || value <= 0 {
				t.Errorf("%s.%s is %v", queue, name, fields[queue][name])
			}
		}
	}

	a := llqOf(t, "--arrival", "50mbit,0,0mbit", "--places", "1,2,3")
	if want := 1.0 / 3; math.Abs(a.EF.Loss-want) > 1e-9 || math.Abs(a.EF.MeanQueue-want) > 1e-9 {
		t.Errorf("EF alone with one place at half load has %+v", a.EF)
	}
	if math.Abs(a.EF.ThroughputBPS-100e6/3) > 1 || math.Abs(a.EF.WaitMS-0.08) > 1e-9 {
		t.Errorf("EF sends %v bit/s and waits %v ms", a.EF.ThroughputBPS, a.EF.WaitMS)
	}
	if a.BE.ThroughputBPS != 0 || a.BE.WaitMS != 0 || a.BE.Loss != 0 || len(a.BE.Distribution) != 4 || a.BE.Distribution[0] < 1-1e-12 {
		t.Errorf("BE carries nothing, but has %+v", a.BE)
	}

	// Twice what the port sends is no unstable queue, as it is finite: M/M/1/3 at a load of 2.
	a = llqOf(t, "--arrival", "200mbit,0,0", "--places", "3,1,1")
	if want := 8.0 / 15; math.Abs(a.EF.Loss-want) > 1e-9 || math.Abs(a.EF.MeanQueue-34.0/15) > 1e-9 {
		t.Errorf("EF alone at twice the rate has %+v", a.EF)
	}

	times, rates := llqOf(t, "--poll", "10ms"), llqOf(t, "--poll", "100")
	if times.AF.WaitMS != rates.AF.WaitMS {
		t.Errorf("a turn of 10ms and 100 a second differ: %v and %v ms", times.AF.WaitMS, rates.AF.WaitMS)
	}
	for _, decision := range [][]string{{"--empty", "skip"}, {"--empty", "wait"}, {"--switch", "at-once"}, {"--after-ef", "af"}} {
		if llqOf(t, decision...).AF.WaitMS == rates.AF.WaitMS {
			t.Errorf("%v changes nothing", decision)
		}
	}
	sum := 0.0
	for _, s := range llqOf(t, "--joint").Joint {
		sum += s.Share
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the shares of all states sum up to %v", sum)
	}
}

func TestModelLLQSweep(t *testing.T) {
	for _, test := range []struct {
		sweep  string
		values string
		value  func(llqAnswer) float64
		last   float64
	}{
		{"af-rate=40mbit:66mbit:13mbit", "40mbit 53mbit 66mbit", func(a llqAnswer) float64 { return a.Parameters.AFRateBPS }, 66e6},
		{"rate=50mbit:60mbit:4mbit", "50mbit 54mbit 58mbit", func(a llqAnswer) float64 { return a.Parameters.RateBPS }, 58e6},
		{"arrival=0:20mbit:10mbit", "", nil, 0},
		{"arrival=10mbit:20mbit:10mbit", "10mbit 20mbit", func(a llqAnswer) float64 { return a.Parameters.ArrivalBPS[2] }, 20e6},
		{"ef-arrival=0:20mbit:10mbit", "0bit 10mbit 20mbit", func(a llqAnswer) float64 { return a.Parameters.ArrivalBPS[0] }, 20e6},
		{"be-arrival=0:20mbit:10mbit", "0bit 10mbit 20mbit", func(a llqAnswer) float64 { return a.Parameters.ArrivalBPS[2] }, 20e6},
		{"packet=500:1000:250", "500 750 1000", func(a llqAnswer) float64 { return a.Parameters.PacketBytes }, 1000},
		{"places=1:5:2", "1 3 5", func(a llqAnswer) float64 { return float64(a.Parameters.Places[1]) }, 5},
		{"poll=0.1:0.3:0.1", "0.1 0.2 0.3", func(a llqAnswer) float64 { return a.Parameters.PollPerSecond }, 0.3},
	} {
		code, stdout, stderr := run("model", "llq", "-o", "json", "--sweep", test.sweep)
		if test.values == "" { // nothing arrives at the first point
			if code != cmdline.Usage || !strings.Contains(stderr, "at 0bit: nothing arrives at any queue") {
				t.Errorf("%s: exit code %d: %s", test.sweep, code, stderr)
			}
			continue
		}
		var sweep llqSweep
		if err := json.Unmarshal([]byte(stdout), &sweep); err != nil {
			t.Fatalf("%s: %v: %s", test.sweep, err, stderr)
		}
		var values []string
		for _, point := range sweep.Points {
			values = append(values, point.Value)
		}
		if got := strings.Join(values, " "); got != test.values {
			t.Errorf("%s has the values %s, want %s", test.sweep, got, test.values)
		}
		if got := test.value(sweep.Points[len(sweep.Points)-1]); got != test.last {
			t.Errorf("%s: the last point was solved with %v, want %v", test.sweep, got, test.last)
		}
	}
}

func TestModelLLQFigures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "llq.html")
	code, stdout, stderr := run("model", "llq", "--figures", file)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		"4 of 10 claims reproduced\n", "6 of 10 claims different by design\n",
		"10 of 10 reproduced: --empty wait; theta is a time, 0.01 s\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not printed:\n%s", want, stdout)
		}
	}
	checkPage(t, file, "Figure 5: mean waiting time", "<td>L_AF falls as mu_AF grows</td><td>--empty wait; theta is a time, 0.01 s</td><td>reproduced</td>",
		"different by design", "Kernel")
	code, stdout, _ = run("model", "llq", "--figures", file, "-o", "json")
	var data report.Report
	if err := json.Unmarshal([]byte(stdout), &data); code != 0 || err != nil || len(data.Plots) != 3 || len(data.Claims) != 10 || data.Environment.CPUs < 1 {
		t.Errorf("exit code %d, %v, %d plots, %d claims", code, err, len(data.Plots), len(data.Claims))
	}
	code, _, stderr = run("model", "llq", "--figures", filepath.Join(file, "below"))
	if code != cmdline.Failed || !strings.Contains(stderr, "write the report: open") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// checkPage looks for parts of a page, and that it loads nothing.
func checkPage(t *testing.T, file string, parts ...string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range parts {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, reference := range []string{" src=", "@import", "url(", "<link"} {
		if strings.Contains(string(page), reference) {
			t.Errorf("the page is not self-contained: it has %s", reference)
		}
	}
}

// TestModelLLQReport: one port and a sweep are reports too, with provenance and a page.
func TestModelLLQReport(t *testing.T) {
	for _, args := range [][]string{nil, {"--sweep", "af-rate=40mbit:66mbit:13mbit"}} {
		file := filepath.Join(t.TempDir(), "llq.html")
		code, stdout, stderr := run(append([]string{"model", "llq", "-o", "json", "--report", file}, args...)...)
		if code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		var found report.Report
		if err := json.Unmarshal([]byte(stdout), &found); err != nil {
			t.Fatal(err)
		}
		if found.Format != report.Format || found.Environment.Kernel == "" || found.StartedAt.IsZero() || found.Command == "" ||
			len(found.Plots) == 0 || len(found.Tables) < 2 || len(found.Quantities) < 12 || !found.Quantities[0].Exact {
			t.Errorf("%v: %+v", args, found)
		}
		checkPage(t, file, "Where the numbers come from", "TURNS A SECOND", found.Plots[0].Title)
	}
	code, _, stderr := run("model", "llq", "--report", "/nowhere/x.html")
	if code != cmdline.Failed || !strings.Contains(stderr, "write the report: open /nowhere/x.html") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestModelBadInput(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"model", "which model? There is: llq"},
		{"model fifo", `unknown model "fifo"; there is: llq`},
		{"model llq paper", `unexpected argument "paper"`},
		{"model llq --rate=-5mbit", "--rate -5mbit is negative; write for example 30mbit"},
		{"model llq --rate=0", "--rate 0 is zero"},
		{"model llq --rate=12500pps", `--rate 12500pps has the unknown unit "pps"; write bit, kbit, mbit`},
		{"model llq --rate=10MB", "bytes are not accepted"},
		{"model llq --af-rate=100mbit", "--af-rate 100mbit leaves nothing of --rate 100mbit to BE; give AF less"},
		{"model llq --af-rate=0", "--af-rate 0 is zero"},
		{"model llq --packet=1500B", "--packet 1500B is not a number of bytes; write it without a unit"},
		{"model llq --packet=0", "--packet 0 is not between 1 and 1000000 bytes"},
		{"model llq --packet=NaN", "--packet NaN is not between 1 and 1000000 bytes"},
		{"model llq --arrival=", `--arrival "" is not three values for ef,af,be; write for example 10mbit,50mbit,0`},
		{"model llq --arrival=1mbit,2mbit", "is not three values for ef,af,be"},
		{"model llq --arrival=1mbit,2mbit,3mbit,4mbit", "is not three values for ef,af,be"},
		{"model llq --arrival=1mbit,-2mbit,3mbit", `"-2mbit" of af is negative`},
		{"model llq --arrival=0,0,0", "nothing arrives at any queue; give at least one"},
		{"model llq --arrival=0MB,0,1mbit", `"0MB" of ef has the unit "MB": bytes are not accepted`},
		{"model llq --places=5,5", `--places "5,5" is not three values for ef,af,be; write for example 5,5,5`},
		{"model llq --places=5,0,5", `--places 5,0,5: "0" of af is not between 1 and 1000000 packets`},
		{"model llq --places=5,5,-1", `"-1" of be is not between 1 and 1000000 packets`},
		{"model llq --places=5,5,1.5", `"1.5" of be is not a whole number of packets`},
		{"model llq --places=5,5,5mbit", `"5mbit" of be is not a number of packets`},
		{"model llq --places=1000,1000,1000", "1000, 1000 and 1000 places are 6.02e+09 states, which take 1.29e+03 GB of memory (at most 1.07 GB is used); give fewer places"},
		{"model llq --places=1000000,1000000,1000000", "give fewer places"},
		{"model llq --poll=0", "--poll 0 is not above 0; write for example 100 or 10ms"},
		{"model llq --poll=-10ms", "--poll -10ms is not above 0"},
		{"model llq --poll=0s", "--poll 0s is not above 0"},
		{"model llq --poll=100mbit", "--poll 100mbit is neither a number of turns per second nor a time; write for example 100 or 10ms"},
		{"model llq --empty=idle", `empty queue "idle" is neither lend, skip nor wait`},
		{"model llq --switch=never", `switch "never" is neither packet-end nor at-once`},
		{"model llq --after-ef=be", `polling after EF "be" is neither resume nor af`},
		{"model llq --joint", "--joint prints every state: add -o json"},
		{"model llq --figures=x.html --rate=1gbit", "--figures is the paper's port: leave out --rate"},
		{"model llq --sweep=af-rate", "is not NAME=FROM:TO:STEP; write for example af-rate=40mbit:66mbit:2mbit"},
		{"model llq --sweep=af-rate=1mbit:2mbit", "is not NAME=FROM:TO:STEP"},
		{"model llq --sweep=color=1:2:1", `"color" cannot be swept; there are af-rate, rate,`},
		{"model llq --sweep=af-rate=1mbit:2mbyte:1mbit", `"2mbyte" has the unit "mbyte": bytes are not accepted`},
		{"model llq --sweep=af-rate=1mbit:2mbit:0", `step "0" is not above 0`},
		{"model llq --sweep=af-rate=3mbit:2mbit:1mbit", "2mbit is less than 3mbit; write the smaller value first"},
		{"model llq --sweep=af-rate=1mbit:2mbit:1bit", "are more than 1000 points; take a larger step"},
		{"model llq --sweep=af-rate=80mbit:120mbit:20mbit", "at 100mbit: --af-rate 100mbit leaves nothing"},
		{"model llq --sweep=places=1:2:0.5", "at 1.5: --places 1.5,1.5,1.5"},
		{"model llq --sweep=poll=10ms:20ms:1ms", `"10ms" is not a number`},
		{"model llq --sweep=be-arrival=0:1mbit:1mbit --arrival=1mbit", "is not three values for ef,af,be"},
	} {
		code, stdout, stderr := run(strings.Fields(test.args)...)
		if code != cmdline.Usage || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("weir %s: exit code %d: %s, want %q", test.args, code, stderr, test.want)
		}
	}
	// Well-formed, but out of what floating point can balance.
	code, _, stderr := run("model", "llq", "--poll", "1000000000000")
	if code != cmdline.Failed || !strings.Contains(stderr, "of the flow does not balance") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
