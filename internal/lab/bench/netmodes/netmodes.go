// Package netmodes measures what each network mode of containers costs. It is not a
// table of cases for peers: what is compared are modes, and what counts is what
// the senders take of the machine, so each sender is a process of its own.
package netmodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Suite is its name.
const Suite = "netmodes"

// Native is a process of the host that is no container: what modes are
// compared with.
const Native = "native"

const (
	// maxContainers is how many containers send at once at most.
	maxContainers = 64
	// PaperLinkBPS is the link of the paper on network modes.
	PaperLinkBPS = 20e6
)

// Modes returns the modes that are measured by default.
func Modes() []string {
	return []string{
		Native, string(testbed.ModeBridge), string(testbed.ModeHost),
		string(testbed.ModeMacvlan), string(testbed.ModeIPvlanL2), string(testbed.ModeIPvlanL3), string(testbed.ModeOverlay),
	}
}

// knownModes returns all modes.
func knownModes() []string {
	known := []string{Native}
	for _, mode := range testbed.Modes {
		known = append(known, string(mode))
	}
	return known
}

// Options say what is measured.
type Options struct {
	Modes        []string
	Protocols    []traffic.Protocol
	MessageBytes []int
	// Containers is how many send at once at most: 1 to 4, and then powers of two.
	Containers int
	// LinksBPS are rates of the link in bits per second on the wire; 0 is a link
	// that only the processors limit.
	LinksBPS []uint64
	// Agent says whether to measure without Weir's agent, with it, or both.
	Agent []bool
	// Judged leaves out the cases that no claim is judged by.
	Judged bool
	measure.RunOptions
}

// Check returns an error for invalid options, before anything is started.
func (o Options) Check() error {
	for _, mode := range o.Modes {
		if !slices.Contains(knownModes(), mode) {
			return fmt.Errorf("unknown mode %q: choose from %s", mode, strings.Join(knownModes(), ", "))
		}
	}
	for _, protocol := range o.Protocols {
		if protocol != traffic.TCP && protocol != traffic.UDP {
			return fmt.Errorf("unknown protocol %q: choose tcp or udp", protocol)
		}
	}
	for _, bytes := range o.MessageBytes {
		// What does not fit a frame of the overlay would be measured in fragments.
		if bytes < 1 || bytes > maxMessageBytes {
			return fmt.Errorf("messages of %d bytes: choose 1 to %d", bytes, maxMessageBytes)
		}
	}
	switch {
	case len(o.Modes) == 0 || len(o.Protocols) == 0 || len(o.MessageBytes) == 0 || len(o.LinksBPS) == 0 || len(o.Agent) == 0:
		return errors.New("nothing to measure: modes, protocols, sizes and links must each have one at least")
	case o.Containers < 1 || o.Containers > maxContainers:
		return fmt.Errorf("%d containers: choose 1 to %d", o.Containers, maxContainers)
	}
	return o.CheckRuns(MinDuration)
}

const (
	// maxMessageBytes is what a frame of the overlay has room for.
	maxMessageBytes = 1400
	// MinDuration is a few of the ticks that processor time of the whole
	// machine is counted in.
	MinDuration = 50 * time.Millisecond
)

// counts returns the measured numbers of containers.
func (o Options) counts() []int {
	var counts []int
	for _, count := range []int{1, 2, 3, 4, 8, 16, 32, 64} {
		if count < o.Containers {
			counts = append(counts, count)
		}
	}
	return append(counts, o.Containers)
}

// Case is one thing that is measured.
type Case struct {
	Mode         string           `json:"mode"`
	Protocol     traffic.Protocol `json:"protocol"`
	MessageBytes int              `json:"message_bytes"`
	Containers   int              `json:"containers"`
	LinkBPS      uint64           `json:"link_bps"` // 0: not limited
	Agent        bool             `json:"agent"`    // with Weir's agent
}

// setting returns the common part of cases that differ only in their messages; it is set up
// once for them.
func (c Case) setting() Case {
	c.Protocol, c.MessageBytes = "", 0
	return c
}

// cases returns all cases, those of a setting side by side. Cases without Weir come first: the
// papers' claims are about them, and the last cases are left out for lack of time.
func (o Options) cases() []Case {
	var cases []Case
	for _, agent := range o.Agent {
		for _, link := range o.LinksBPS {
			for _, count := range o.counts() {
				for _, mode := range o.Modes {
					for _, protocol := range o.Protocols {
						for _, bytes := range o.MessageBytes {
							cases = append(cases, Case{mode, protocol, bytes, count, link, agent})
						}
					}
				}
			}
		}
	}
	if o.Judged {
		asked := judgedBy(cases)
		cases = slices.DeleteFunc(cases, func(c Case) bool { return !asked[c] })
	}
	return cases
}

// judgedBy returns those of cases that claims are judged by.
func judgedBy(cases []Case) map[Case]bool {
	r := Report{asked: map[Case]bool{}}
	for _, c := range cases {
		r.Results = append(r.Results, Result{Case: c, Runs: 1})
	}
	r.judge()
	return r.asked
}

// JudgedPart returns the part of the cases that Judged selects.
func JudgedPart(o Options) float64 {
	o.Judged = false
	all := o.cases()
	o.Judged = true
	return float64(len(o.cases())) / float64(max(1, len(all)))
}

// Report is what `weir bench netmodes -o json` prints. Field names are
// only ever added to.
type Report struct {
	report.Report
	Suite string `json:"suite"`
	// Host is the machine's name.
	Host      string   `json:"host"`
	DurationS float64  `json:"duration_s"` // counted per run
	WarmupS   float64  `json:"warmup_s"`   // before it
	Results   []Result `json:"results"`
	// Unavailable are modes for which this host's kernel has no driver, and why.
	Unavailable map[string]string `json:"unavailable,omitempty"`
	// Uncontrolled are modes in which the agent did not get hold of the
	// containers, and why.
	Uncontrolled map[string]string `json:"uncontrolled,omitempty"`
	// CountersMissing says which performance counters were left out, and why.
	CountersMissing string `json:"counters_missing,omitempty"`

	asked map[Case]bool // notes what claims look up, unless it is nil
}

// Failed returns the number of cases in which a run failed.
func (r Report) Failed() int {
	count := 0
	for _, result := range r.Results {
		if result.Failure != "" {
			count++
		}
	}
	return count
}

const note = "Throughput is payload that arrives at the neighbour. Processor time, context switches, page faults, migrations, " +
	"cycles and instructions are those of the sending threads, all containers together, kernel included; busy and softirq are those of " +
	"the whole machine, which receives as well. A container is a set of namespaces; native is a process of the host."

// Run measures the modes. A mode that the host does not have is left out
// and named; the error is about what made going on impossible.
func Run(ctx context.Context, options Options) (found Report, err error) {
	if err := options.Check(); err != nil {
		return found, err
	}
	started := time.Now()
	hostname, err := os.Hostname()
	if err != nil {
		return found, fmt.Errorf("find the machine's name: %w", err)
	}
	b, err := bench.NewBed(ctx, bench.Options{}, options.Containers)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r := &runner{options: options, bed: b, unavailable: map[string]string{}, uncontrolled: map[string]string{}}
	if r.Recorder, err = bench.NewRecorder[Case, observation](ctx, options.RunOptions); err != nil {
		return found, err
	}
	defer func() { r.Close(&found.Report) }()
	cases := options.cases()
	options.Journal.Expect(options.Repeat * len(cases))
	for round := range options.Repeat {
		for rest := cases; len(rest) > 0; {
			same := slices.IndexFunc(rest, func(c Case) bool { return c.setting() != rest[0].setting() })
			if same < 0 {
				same = len(rest)
			}
			untaken, err := r.TakeKept(rest[:same]...)
			if err != nil {
				return found, err
			}
			if len(untaken) > 0 && !r.LeaveOut(len(untaken)) {
				fmt.Fprintf(options.Progress, "round %d of %d, %3d of %d: %s\n", round+1, options.Repeat, len(cases)-len(rest)+1, len(cases), rest[0].settingName())
				if err := r.runSetting(ctx, untaken); err != nil {
					return found, err
				}
			}
			rest = rest[same:]
		}
	}
	found = Report{
		Report: options.NewReport(Suite, note, started, b.Environment(ctx, options.Version)),
		Suite:  Suite, Host: hostname, DurationS: options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(),
		Unavailable: r.unavailable, Uncontrolled: r.uncontrolled,
	}
	r.Complete(&found.Report)
	for _, c := range cases {
		of := r.Of(c)
		if len(of.Seen) > 0 || of.Failure != nil {
			found.Results = append(found.Results, summarise(c, of))
		}
		for _, seen := range of.Seen {
			found.CountersMissing = cmp.Or(found.CountersMissing, seen.Missing)
		}
	}
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}

// complete adds what follows from the results.
func (r *Report) complete() {
	if r.CountersMissing != "" {
		r.AddGap("Left out: " + r.CountersMissing + ".")
	}
	for _, mode := range knownModes() {
		if reason, ok := r.Unavailable[mode]; ok {
			r.AddGap(fmt.Sprintf("This host does not have the mode %s: %s.", mode, reason))
		}
		if reason, ok := r.Uncontrolled[mode]; ok {
			r.AddGap(fmt.Sprintf("Weir does not control the mode %s here: %s.", mode, reason))
		}
	}
	r.Claims = r.judge()
	r.Tables = r.tables()
	r.Plots = r.plots()
	r.Quantities = r.quantities()
}

// settingName names what cases have in common.
func (c Case) settingName() string {
	agent := "without Weir"
	if c.Agent {
		agent = "with Weir"
	}
	return fmt.Sprintf("%s, %s, %d sending, %s", linkName(c.LinkBPS), c.Mode, c.Containers, agent)
}

// linkName names a link by its rate.
func linkName(linkBPS uint64) string {
	if linkBPS == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%g Mbit/s", float64(linkBPS)/1e6)
}

// testbedMode returns the test bed's name for a mode; a native process is in the host's
// network.
func (c Case) testbedMode() testbed.Mode {
	if c.Mode == Native {
		return testbed.ModeHost
	}
	return testbed.Mode(c.Mode)
}
