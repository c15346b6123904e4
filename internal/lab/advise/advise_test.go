package advise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// result is a result on an unlimited link with the agent.
func result(mode string, containers, bytes int, mbps, cpu float64) Result {
	return Result{
		Mode: mode, Protocol: "tcp", MessageBytes: bytes, Containers: containers, Agent: true, Runs: 1,
		Rate: Median{Median: mbps * 1e6}, CPU: Median{Median: cpu},
	}
}

// TestChoose: throughput first, then processor time, then control and isolation.
func TestChoose(t *testing.T) {
	question := Question{Containers: 1, Protocol: "tcp", MessageBytes: 64}
	without := func(r Result) Result { r.Agent = false; return r }
	for _, test := range []struct {
		name         string
		measurements Measurements
		question     Question
		mode         string
		says         []string // in the reason or a note
	}{
		{
			"the fastest", Measurements{Results: []Result{
				result("native", 1, 64, 200, 1), result("bridge", 1, 64, 100, 1), result("host", 1, 64, 150, 1), result("macvlan", 1, 64, 120, 1),
			}},
			question, "host", []string{"No other mode carries as much", "-33 % throughput", "-20 % throughput", "no container, to compare with"},
		},
		{
			"of equally fast ones that with the least processor time", Measurements{Results: []Result{
				result("bridge", 1, 64, 102, 0.9), result("host", 1, 64, 100, 0.3), result("overlay", 1, 64, 101, 1),
			}},
			question, "host", []string{"takes the least processor time", "no difference in throughput beyond noise, 2.9 times the processor time"},
		},
		{
			"a thousandth of a processor is no reason", Measurements{Results: []Result{
				result("bridge", 1, 64, 10, 0.006), result("host", 1, 64, 10, 0.003),
			}},
			question, "bridge", []string{"none in processor time that counts", "keeps containers apart best"},
		},
		{
			"a tenth is one", Measurements{Results: []Result{
				result("bridge", 1, 64, 10, 0.2), result("host", 1, 64, 10, 0.1),
			}},
			question, "host", []string{"takes the least processor time"},
		},
		{
			"of equals the one that isolates best", Measurements{Results: []Result{
				result("host", 1, 64, 101, 0.50), result("macvlan", 1, 64, 100, 0.50), result("bridge", 1, 64, 99, 0.50),
			}},
			question, "bridge", []string{"keeps containers apart best"},
		},
		{
			"of equals one that Weir controls", Measurements{
				Uncontrolled: map[string]string{"bridge": "no veth"},
				Results:      []Result{without(result("bridge", 1, 64, 100, 0.5)), result("host", 1, 64, 100, 0.5)},
			},
			question, "host", []string{"WEIR CANNOT CONTROL IT"},
		},
		{
			"a mode that the host lacks is named", Measurements{
				Unavailable: map[string]string{"macvlan": "no driver"},
				Results:     []Result{result("bridge", 1, 64, 100, 0.5)},
			},
			question, "bridge", []string{"this host does not have it: no driver"},
		},
		{
			"another number of containers, another mode", Measurements{Results: []Result{
				result("bridge", 1, 64, 125, 1), result("host", 1, 64, 100, 1), result("bridge", 4, 64, 100, 1), result("host", 4, 64, 145, 1),
			}},
			Question{Containers: 4, Protocol: "tcp", MessageBytes: 64}, "host", []string{"-31 % throughput"},
		},
		{
			"an uplink bounds what modes carry", Measurements{Results: []Result{
				result("bridge", 1, 64, 500, 1), result("host", 1, 64, 900, 0.9),
			}},
			Question{Containers: 1, Protocol: "tcp", MessageBytes: 64, RateBPS: 100e6}, "host", []string{"100.0 Mbit/s", "takes the least processor time"},
		},
		{
			"not measured with the agent", Measurements{Results: []Result{without(result("bridge", 1, 64, 100, 1)), without(result("host", 1, 64, 50, 1))}},
			question, "bridge", []string{"not measured with Weir's agent"},
		},
	} {
		advice, err := Choose(test.measurements, test.question)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		text := fmt.Sprint(advice.Reason, advice.Options)
		if advice.Mode != test.mode || advice.Options[0].Mode != test.mode {
			t.Errorf("%s: %s, want %s: %s", test.name, advice.Mode, test.mode, text)
		}
		for _, want := range test.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: does not say %q: %s", test.name, want, text)
			}
		}
	}
}

// TestUDPOnAnotherLink: what UDP costs without limit says nothing of a slower link.
func TestUDPOnAnotherLink(t *testing.T) {
	one := result("bridge", 1, 64, 500, 1)
	for protocol, warns := range map[string]bool{"udp": true, "tcp": false} {
		one.Protocol = protocol
		for rate, slower := range map[uint64]bool{0: false, 100e6: true} {
			advice, err := Choose(Measurements{Results: []Result{one}}, Question{1, protocol, 64, rate})
			if err != nil || strings.Contains(fmt.Sprint(advice.Warnings), "nothing pushes back") != (warns && slower) {
				t.Errorf("%s at %d bit/s: %v, warnings %q", protocol, rate, err, advice.Warnings)
			}
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	m := Measurements{Results: []Result{result("native", 1, 64, 100, 1), result("bridge", 1, 64, 100, 1)}}
	for _, test := range []struct {
		question Question
		want     string
	}{
		{Question{0, "tcp", 64, 0}, "one at least"},
		{Question{1, "sctp", 64, 0}, "choose tcp or udp"},
		{Question{1, "tcp", 0, 0}, "choose 1 to 65507"},
		{Question{1, "udp", 64, 0}, "weir bench netmodes --save"},
	} {
		if _, err := Choose(m, test.question); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.question, err, test.want)
		}
	}
}

// TestInterpolate: between measured points the estimate is, outside the nearest,
// with a warning. 64 bytes take 5.12 us and 1024 take 20.48, so 256 take 8.192.
func TestInterpolate(t *testing.T) {
	m := Measurements{Results: []Result{
		result("bridge", 1, 64, 100, 0.2), result("bridge", 1, 1024, 400, 0.4),
		result("bridge", 4, 64, 100, 0.2), result("bridge", 4, 1024, 400, 0.4),
	}}
	for _, test := range []struct {
		containers, bytes int
		mbps              float64
		warns             bool
	}{{1, 64, 100, false}, {2, 256, 250, false}, {4, 1024, 400, false}, {9, 1024, 400, true}, {1, 9000, 400, true}} {
		advice, err := Choose(m, Question{Containers: test.containers, Protocol: "tcp", MessageBytes: test.bytes})
		if err != nil {
			t.Fatal(err)
		}
		if got := advice.Options[0].RateBPS / 1e6; got < test.mbps-0.1 || got > test.mbps+0.1 {
			t.Errorf("%+v: %.1f Mbit/s", test, got)
		}
		if warns := slices.ContainsFunc(advice.Warnings, func(w string) bool { return strings.Contains(w, "outside") }); warns != test.warns {
			t.Errorf("%+v: warnings %q", test, advice.Warnings)
		}
	}
}

// TestInterpolatesCosts: where a message costs a fixed time and one for each byte, of the
// link or of the processor, what was measured at two sizes says what is between them exactly.
func TestInterpolatesCosts(t *testing.T) {
	const fixedNS, byteNS, fixedCPUNS, byteCPUNS = 2000, 3, 1500, 1
	at := func(bytes int) Result {
		messages := 1e9 / (fixedNS + byteNS*float64(bytes)) // a second
		return result("bridge", 1, bytes, messages*float64(bytes)*8/1e6, messages*(fixedCPUNS+byteCPUNS*float64(bytes))/1e9)
	}
	m := Measurements{Results: []Result{at(64), at(1024)}}
	for _, bytes := range []int{64, 65, 200, 512, 1000, 1024} {
		advice, err := Choose(m, Question{Containers: 1, Protocol: "tcp", MessageBytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		want, got := at(bytes), advice.Options[0]
		if off := got.RateBPS/want.Rate.Median - 1; math.Abs(off) > 1e-9 {
			t.Errorf("%d bytes: the rate is off by %v", bytes, off)
		}
		if off := got.CPUPerGbit/(want.CPU.Median/want.Rate.Median*1e9) - 1; math.Abs(off) > 1e-9 {
			t.Errorf("%d bytes: the processor time is off by %v", bytes, off)
		}
	}
}

// TestDisturbed: measurements of a busy machine are used with a warning.
func TestDisturbed(t *testing.T) {
	for paused, warns := range map[int]bool{0: false, 5: false, 6: true} {
		m := Measurements{Runs: 100, PausedRuns: paused, Results: []Result{result("bridge", 1, 64, 100, 1)}}
		advice, err := Choose(m, Question{Containers: 1, Protocol: "tcp", MessageBytes: 64})
		if err != nil || strings.Contains(fmt.Sprint(advice.Warnings), "stood still") != warns {
			t.Errorf("%d paused runs: %v, warnings %q", paused, err, advice.Warnings)
		}
	}
}

// spread gives a result repeats.
func spread(r Result, part float64) Result {
	r.Runs = 3
	r.Rate.Min, r.Rate.Max = r.Rate.Median*(1-part), r.Rate.Median*(1+part)
	r.CPU.Min, r.CPU.Max = r.CPU.Median, r.CPU.Median
	return r
}

// TestNoise: modes whose repeats overlap are equal, however far their medians are
// apart, and then the one that isolates best is advised; those that do not overlap are
// told apart.
func TestNoise(t *testing.T) {
	question := Question{Containers: 1, Protocol: "tcp", MessageBytes: 64}
	for _, test := range []struct {
		part float64
		mode string
		says string
	}{
		{0.15, "bridge", "No difference in throughput beyond noise, and none in processor time that counts: host"},
		{0.02, "host", "No other mode carries as much"},
	} {
		// As much processor time for a gigabit.
		m := Measurements{Results: []Result{spread(result("bridge", 1, 64, 100, 0.50), test.part), spread(result("host", 1, 64, 125, 0.625), test.part)}}
		advice, err := Choose(m, question)
		if err != nil || advice.Mode != test.mode || !strings.Contains(advice.Reason, test.says) || len(advice.Warnings) != 0 {
			t.Errorf("%v: %v: %s: %s, warnings %q", test.part, err, advice.Mode, advice.Reason, advice.Warnings)
		}
	}
	once := Measurements{Results: []Result{result("bridge", 1, 64, 100, 1)}}
	if advice, err := Choose(once, question); err != nil || !strings.Contains(fmt.Sprint(advice.Warnings), "everything was measured once") {
		t.Errorf("%v: warnings %q", err, advice.Warnings)
	}
}

// TestCheck: advice agrees with a measurement of the scenario itself if that names the
// mode, or cannot tell it from the best.
func TestCheck(t *testing.T) {
	base := Measurements{Results: []Result{
		result("bridge", 1, 64, 100, 0.5), result("host", 1, 64, 100, 0.5), result("bridge", 1, 1024, 100, 0.5), result("host", 1, 1024, 100, 0.5),
	}}
	exhaustive := Measurements{Results: []Result{
		result("native", 1, 200, 500, 0.5),
		spread(result("bridge", 1, 200, 100, 0.5), 0.2), spread(result("host", 1, 200, 120, 0.6), 0.2), // a tie
		spread(result("bridge", 1, 400, 60, 0.5), 0.02), spread(result("host", 1, 400, 120, 0.5), 0.02), // host
		spread(result("bridge", 1, 600, 120, 0.5), 0.02), spread(result("host", 1, 600, 60, 0.5), 0.02), // bridge
	}}
	got, err := Check(base, exhaustive)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	for i, want := range []bool{true, false, true} {
		if got[i].Agrees != want || got[i].Advised != "bridge" {
			t.Errorf("%+v", got[i])
		}
	}
	if len(got[0].Best) != 2 || got[1].Lost < 0.49 || got[1].Lost > 0.51 {
		t.Errorf("%+v", got)
	}
	if _, err := Check(base, Measurements{Results: []Result{result("overlay", 1, 64, 1, 1)}}); err == nil || !strings.Contains(err.Error(), "have no mode bridge") {
		t.Errorf("error %v", err)
	}
	// Cut off before the agent's part of a link: nothing to compare with there.
	cut := result("bridge", 1, 64, 1, 1)
	cut.Agent, cut.LinkBPS = !cut.Agent, 20e6
	if _, err := Check(base, Measurements{Results: []Result{cut, result("bridge", 1, 64, 1, 1)}}); err == nil || !strings.Contains(err.Error(), "with or without the agent") {
		t.Errorf("error %v", err)
	}
}

const saved = `{
  "format": 1,
  "suite": "netmodes",
  "host": "gateway",
  "started_at": "2026-11-22T12:00:00Z",
  "environment": {"kernel": "6.18.0", "cpus": 4},
  "results": [
    {"mode": "bridge", "protocol": "tcp", "message_bytes": 64, "containers": 1, "link_bps": 20000000, "runs": 1,
     "rate_bps": {"median": 19e6}, "cpu_s": {"median": 0.1}},
    {"mode": "host", "protocol": "tcp", "message_bytes": 64, "containers": 1, "link_bps": 20000000, "runs": 0,
     "rate_bps": {"median": 0}, "cpu_s": {"median": 0}}
  ]
}
`

func TestParse(t *testing.T) {
	m, err := Parse([]byte(saved))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Results) != 1 || m.Results[0].Rate.Median != 19e6 || m.Host != "gateway" || m.StartedAt.Year() != 2026 {
		t.Errorf("%+v", m)
	}
	if warnings := m.Foreign("gateway", "6.18.0"); len(warnings) != 0 {
		t.Errorf("the same machine: %q", warnings)
	}
	warnings := strings.Join(m.Foreign("other", "6.1"), "; ")
	if !strings.Contains(warnings, "host gateway, this is other") || !strings.Contains(warnings, "kernel 6.18.0, this is 6.1") {
		t.Errorf("another machine: %q", warnings)
	}
}

// TestParseRefuses: what is damaged or in other units is named with its line.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ old, replacement, want string }{
		{`"results": [`, `"results": `, "line "},
		{`"runs": 1,`, `"runs": 1,,`, "line 8, column 113: it is no JSON"},
		{`{"median": 19e6}`, `{"median": "19mbit"}`, "line 9, column 29: results/0/rate_bps/median is a string"},
		{`{"median": 0.1}`, `{"median": 100}`, "line 8: cpu_s 100: 1 threads cannot run that long"},
		{`"link_bps": 20000000, "runs": 1`, `"link_bps": 20, "runs": 1`, "line 8: link_bps 20: rates are in bits per second"},
		{`{"median": 19e6}`, `{"median": 19e9}`, "line 8: rate_bps 1.9e+10 is more than the link's"},
		{`{"median": 19e6}`, `{"median": -1}`, "must be positive"},
		{`"containers": 1`, `"containers": 0`, "both must be positive"},
		{`"protocol": "tcp"`, `"protocol": "icmp"`, "neither tcp nor udp"},
		{`"suite": "netmodes"`, `"suite": "qcon"`, `a report of "qcon"`},
		{`"suite": "netmodes",`, "", "it is no report of weir bench netmodes"},
		{`"runs": 1`, `"runs": 0`, "no results"},
		{`"runs": 1,`, `"runs": 1, "colour": "red",`, `line 8, column 114: unknown field "results/0/colour"`},
		{`"host": "gateway"`, `"hast": "gateway"`, `line 4, column 3: unknown field "hast"`},
		{`"cpus": 4`, `"cpus": "4"`, "line 6, column "},
	} {
		text := strings.Replace(saved, test.old, test.replacement, 1)
		if text == saved {
			t.Fatalf("%q is not in the report", test.old)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.replacement, err, test.want)
		}
	}
	if _, err := Parse([]byte(saved[:len(saved)/2])); err == nil || !strings.Contains(err.Error(), "line ") {
		t.Errorf("half a file: %v", err)
	}
	if _, err := Parse(nil); err == nil {
		t.Error("an empty file: no error")
	}
}
