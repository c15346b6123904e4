// Package advise says which network mode a container should have on a host, from
// what `weir bench netmodes` measured there.
//
// It is pure: measurements and a question go in, advice comes out. The rule: of the
// modes that carry the most, those that differ by no more than the repeats of one case
// do count as equal; of these the one that takes the least processor time for a
// gigabit; and of those that are equal in this too, one that Weir controls and that
// isolates best.
package advise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
)

// Measurements are the part of a report of `weir bench netmodes -o json` that
// advice is made of.
type Measurements struct {
	Suite       string      `json:"suite"`
	Host        string      `json:"host"`
	StartedAt   time.Time   `json:"started_at"`
	Environment Environment `json:"environment"`
	// Unavailable are modes that the host does not have, Uncontrolled those that
	// Weir does not control there, each with the reason.
	Unavailable  map[string]string `json:"unavailable"`
	Uncontrolled map[string]string `json:"uncontrolled"`
	// PausedRuns are those of Runs in which a processor stood still.
	Runs       int      `json:"runs"`
	PausedRuns int      `json:"paused_runs"`
	Results    []Result `json:"-"`
}

// Environment is the measured machine.
type Environment struct {
	Kernel   string `json:"kernel"`
	CPUs     int    `json:"cpus"`
	CPUModel string `json:"cpu_model"`
}

// Result is the performance of one mode in one case, per second, of all containers together.
type Result struct {
	Mode         string `json:"mode"`
	Protocol     string `json:"protocol"`
	MessageBytes int    `json:"message_bytes"`
	Containers   int    `json:"containers"`
	LinkBPS      uint64 `json:"link_bps"` // 0: not limited
	Agent        bool   `json:"agent"`    // with Weir's agent
	Runs         int    `json:"runs"`
	Rate         Median `json:"rate_bps"`
	CPU          Median `json:"cpu_s"`
}

// Median is the median of several runs with their smallest and largest value, which are 0 if only
// the median is known.
type Median struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// span returns the smallest and largest of the runs; of a single value that value twice.
func (m Median) span() (low, high float64) {
	if m.Min == 0 && m.Max == 0 {
		return m.Median, m.Median
	}
	return m.Min, m.Max
}

// file is a whole report, of which Measurements are a part.
type file struct {
	report.Report
	Suite           string            `json:"suite"`
	Host            string            `json:"host"`
	DurationS       float64           `json:"duration_s"`
	WarmupS         float64           `json:"warmup_s"`
	Unavailable     map[string]string `json:"unavailable"`
	Uncontrolled    map[string]string `json:"uncontrolled"`
	CountersMissing string            `json:"counters_missing"`
	Results         []fileResult      `json:"results"`
}

// fileResult is a whole result.
type fileResult struct {
	Result
	Failure    string  `json:"failure"`
	WireBPS    Median  `json:"wire_bps"`
	Busy       Median  `json:"busy_s"`
	Softirq    Median  `json:"softirq_s"`
	Switches   Median  `json:"switches"`
	Faults     Median  `json:"faults"`
	Migrations *Median `json:"migrations"`
	Cycles     *Median `json:"cycles"`
	IPC        *Median `json:"instructions_per_cycle"`
}

// Parse reads a report of `weir bench netmodes`, strictly; an error names the line, and
// the column where it is about one value.
func Parse(data []byte) (Measurements, error) {
	kind, err := report.ParseKind(data)
	if err != nil {
		return Measurements{}, err
	}
	if kind.Suite == "" {
		return Measurements{}, errors.New("it is no report of weir bench netmodes")
	}
	if kind.Suite != "netmodes" {
		return Measurements{}, fmt.Errorf("it is a report of %q, not of weir bench netmodes", kind.Suite)
	}
	var parsed file
	if err := report.Parse(data, &parsed); err != nil {
		return Measurements{}, err
	}
	e := parsed.Environment
	m := Measurements{
		Suite: parsed.Suite, Host: parsed.Host, StartedAt: parsed.StartedAt,
		Environment: Environment{Kernel: e.Kernel, CPUs: e.CPUs, CPUModel: e.CPUModel},
		Unavailable: parsed.Unavailable, Uncontrolled: parsed.Uncontrolled, Runs: parsed.Runs, PausedRuns: parsed.PausedRuns,
	}
	for i, one := range parsed.Results {
		if err := one.check(); err != nil {
			return m, fmt.Errorf("line %d: %w", lineOf(data, offsetOf(data, i)), err)
		}
		if one.Runs > 0 {
			m.Results = append(m.Results, one.Result)
		}
	}
	if len(m.Results) == 0 {
		return m, errors.New("it has no results")
	}
	return m, nil
}

// offsetOf returns the byte offset of a result in a parsed report.
func offsetOf(data []byte, number int) int {
	var texts struct {
		Results []json.RawMessage `json:"results"`
	}
	if json.Unmarshal(data, &texts) != nil {
		return 0
	}
	at := 0
	for i, text := range texts.Results {
		// What was decoded stands in data as it was, one after the other.
		at += max(0, bytes.Index(data[at:], text))
		if i == number {
			break
		}
		at += len(text)
	}
	return at
}

// lineOf returns the line number of an offset, from 1.
func lineOf(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), len(data))], []byte("\n"))
}

const (
	// leastRateBPS is below any link's rate: a smaller number was meant in another unit.
	leastRateBPS = 1000
	// overLink is the largest measured rate of a short run, relative to its link.
	overLink = 1.1
)

// check returns an error for values that no machine can have measured.
func (r Result) check() error {
	switch {
	case r.Runs == 0:
		return nil // a case whose runs failed
	case r.Mode == "":
		return errors.New("a result without mode")
	case r.Protocol != "tcp" && r.Protocol != "udp":
		return fmt.Errorf("protocol %q is neither tcp nor udp", r.Protocol)
	case r.MessageBytes < 1 || r.Containers < 1:
		return fmt.Errorf("%d containers with messages of %d bytes: both must be positive", r.Containers, r.MessageBytes)
	case r.Rate.Median <= 0 || r.CPU.Median < 0:
		return fmt.Errorf("rate_bps %g and cpu_s %g: the rate must be positive, the time not negative", r.Rate.Median, r.CPU.Median)
	case r.LinkBPS > 0 && r.LinkBPS < leastRateBPS:
		return fmt.Errorf("link_bps %d: rates are in bits per second", r.LinkBPS)
	case r.LinkBPS > 0 && r.Rate.Median > overLink*float64(r.LinkBPS):
		return fmt.Errorf("rate_bps %g is more than the link's %d: rates are in bits per second", r.Rate.Median, r.LinkBPS)
	case r.CPU.Median > float64(r.Containers)*overLink:
		return fmt.Errorf("cpu_s %g: %d threads cannot run that long in a second; times are in seconds", r.CPU.Median, r.Containers)
	}
	return nil
}

// fewPauses is the tolerated fraction of runs in which a CPU was paused.
const fewPauses = 0.05

// Disturbed returns why the measurements are too noisy to compare modes.
func (m Measurements) Disturbed() []string {
	if float64(m.PausedRuns) <= fewPauses*float64(m.Runs) {
		return nil
	}
	return []string{fmt.Sprintf("in %d of %d runs a processor stood still: modes that differ little cannot be told apart; "+
		"measure again on an idle machine with weir bench netmodes --save --repeat 3", m.PausedRuns, m.Runs)}
}

// once returns a note if cases were measured only once, so that their noise is unknown.
func (m Measurements) once() []string {
	for _, one := range m.Results {
		if one.Runs > 1 {
			return nil
		}
	}
	return []string{fmt.Sprintf("everything was measured once, so what runs differ by is not known: %.0f %% of throughput and %.0f %% of processor time count as noise; "+
		"measure with weir bench netmodes --save --repeat 3", sameRate*100, sameCPU*100)}
}

// Foreign returns how the measured machine differs from this one, which makes its advice less
// reliable.
func (m Measurements) Foreign(host, kernel string) []string {
	var warnings []string
	if m.Host != host {
		warnings = append(warnings, fmt.Sprintf("the measurements are of host %s, this is %s; refresh them with weir advise --refresh", m.Host, host))
	}
	if m.Environment.Kernel != kernel {
		warnings = append(warnings, fmt.Sprintf("the measurements are of kernel %s, this is %s; refresh them with weir advise --refresh",
			m.Environment.Kernel, kernel))
	}
	return warnings
}
