// Package bench measures how the containers of a host share its uplink: with
// Weir, with what one would use otherwise, and against the ideal.
//
// A suite is a table of cases (case.go): a link, containers with policies and
// what they send. One runner puts every peer (peer.go) into every case, peers
// interleaved, so that a disturbance of the machine hits all of them alike.
// What counts is what the neighbour receives: bytes on the wire, counted by a
// BPF program in its network namespace (package meter). The ideal is
// alloc.Allocate over the containers that are sending, for the link's
// configured rate.
//
// Limits: the link is a veth pair, so peers that do not limit it get a token
// bucket that stands for it; senders, receivers and what is measured share
// the CPUs; only egress is measured, as only egress is controlled.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options of a suite.
type Options struct {
	Suite string
	// RateBPS is the link's rate in bits per second on the wire, for suites
	// that do not set their own.
	RateBPS uint64
	// Duration is counted in every run, after Warmup.
	Duration, Warmup time.Duration
	// Repeat is the number of interleaved rounds.
	Repeat int
	// Peers are the peers to run; empty means all.
	Peers []string
	// Only selects cases by "group: name"; nil means all.
	Only *regexp.Regexp
	// Docker runs containers in a private Docker engine; otherwise they are
	// network namespaces.
	Docker bool
	// Overload is how many times the link's rate a UDP sender without a rate
	// of its own sends.
	Overload float64
	// Seed makes random weights.
	Seed uint64
	// WeirBinary is the weir that is measured.
	WeirBinary string
	// AgentArgs are further arguments of its agent.
	AgentArgs []string
	// CacheDir keeps peers that are built.
	CacheDir string
	// Command is the command line, for the report.
	Command string
	// Progress gets a line per run.
	Progress io.Writer
}

// suites are the tables of cases by name.
var suites = map[string]func(Options) []Case{
	"qcon":     qconSuite,
	"accuracy": accuracySuite,
	"reaction": reactionSuite,
	"cap":      capSuite,
	"cost":     costSuite,
}

// SuiteNames lists all suites.
func SuiteNames() []string { return []string{"qcon", "accuracy", "reaction", "cap", "cost"} }

// Cases are the cases that the options select. It fails for options that make
// no sense, before anything is started.
func (o Options) Cases() ([]Case, error) {
	build, ok := suites[o.Suite]
	if !ok {
		return nil, fmt.Errorf("unknown suite %q: choose from %s", o.Suite, strings.Join(SuiteNames(), ", "))
	}
	for _, name := range o.Peers {
		if !slices.Contains(PeerNames(), name) {
			return nil, fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(PeerNames(), ", "))
		}
	}
	switch {
	case o.Repeat < 1 || o.Duration <= 0 || o.Warmup < 0:
		return nil, errors.New("rounds and duration must be positive, the warm-up not negative")
	case o.Overload <= 1:
		return nil, errors.New("an overload of 1 or less does not fill the link with UDP")
	}
	cases := slices.DeleteFunc(build(o), func(c Case) bool {
		return o.Only != nil && !o.Only.MatchString(c.ID())
	})
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case of suite %s matches %q", o.Suite, o.Only)
	}
	return cases, nil
}

// Run runs a suite. A peer that fails in a case is reported with it; the
// error is about what made going on impossible.
func Run(ctx context.Context, options Options) (report Report, err error) {
	cases, err := options.Cases()
	if err != nil {
		return report, err
	}
	maxContainers := 0
	for _, c := range cases {
		maxContainers = max(maxContainers, len(c.Containers))
	}

	started := time.Now()
	b, err := newBed(ctx, options, maxContainers)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	report = Report{
		Suite: options.Suite, Command: options.Command, StartedAt: started,
		Environment: environment(ctx, b),
		DurationS:   options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(), Repeat: options.Repeat,
		Skipped: map[string]string{},
	}
	r := &runner{options: options, bed: b, progress: newProgress(options, cases)}
	r.peers, report.Skipped = makePeers(ctx, options, cases)
	for _, c := range cases {
		results, err := r.runCase(ctx, c)
		if err != nil {
			return report, fmt.Errorf("case %q: %w", c.ID(), err)
		}
		report.Results = append(report.Results, results...)
	}
	report.TookSeconds = time.Since(started).Seconds()
	report.Verdicts = verdicts(report.Results)
	return report, nil
}

// namedPeer is a peer that takes part.
type namedPeer struct {
	name string
	peer peer
}

// makePeers makes the peers that the cases need. One that cannot be made is
// skipped.
func makePeers(ctx context.Context, options Options, cases []Case) (peers []namedPeer, skipped map[string]string) {
	skipped = map[string]string{}
	for _, name := range PeerNames() {
		wanted := len(options.Peers) == 0 || slices.Contains(options.Peers, name)
		if !wanted || !slices.ContainsFunc(cases, func(c Case) bool { return c.takesPart(name) }) {
			continue
		}
		made, err := newPeer(ctx, name, options)
		if err != nil {
			skipped[name] = err.Error()
			continue
		}
		peers = append(peers, namedPeer{name, made})
	}
	return peers, skipped
}

// runner runs cases on a bed.
type runner struct {
	options  Options
	bed      *bed
	peers    []namedPeer
	progress *progress
}

// runCase runs one case with all its peers, in rounds.
func (r *runner) runCase(ctx context.Context, c Case) (results []CaseResult, err error) {
	containers, remove, err := r.bed.place(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()

	observed := map[string][]observation{}
	failed := map[string]error{}
	for round := range r.options.Repeat {
		for _, one := range r.peers {
			if !c.takesPart(one.name) {
				continue
			}
			r.progress.run(c, one.name, round)
			seen, err := r.runOnce(ctx, c, one.peer, containers)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				r.progress.failed(err)
				failed[one.name] = err
				continue
			}
			observed[one.name] = append(observed[one.name], seen)
		}
	}
	for _, one := range r.peers {
		if !c.takesPart(one.name) {
			continue
		}
		result := summarise(c, one.name, observed[one.name])
		if err := failed[one.name]; err != nil {
			result.Failure = err.Error()
		}
		results = append(results, result)
	}
	return results, nil
}

func (r *runner) runOnce(ctx context.Context, c Case, p peer, containers []placed) (seen observation, err error) {
	var idleCPU float64
	if c.Measures.has(MeasureCost) {
		if idleCPU, err = idleUse(ctx); err != nil {
			return seen, err
		}
	}
	defer func() {
		// Also after ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, p.remove(ctx, r.bed, containers))
	}()
	if err := p.apply(ctx, r.bed, c, containers); err != nil {
		return seen, err
	}
	seen, err = observe(ctx, r.bed, c, p, containers, r.options)
	seen.idleCPU = idleCPU
	return seen, err
}

// idleTime is how long the idle machine is watched.
const idleTime = time.Second

// idleUse is the fraction of all CPUs that is busy without traffic.
func idleUse(ctx context.Context) (float64, error) {
	from, err := cpuBusy()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	until, err := cpuBusy()
	return cpuUse(until-from, time.Since(started)), err
}
