// Package bench measures how the containers of a host share its uplink: with
// Weir, with what one would use otherwise, and against the ideal.
//
// A suite is a table of cases (case.go): a link, containers with policies and
// what they send. One runner puts every peer (peer.go) into every case, peers
// and cases interleaved, so that a disturbance of the machine hits all alike.
// What counts is what the neighbour receives: bytes on the wire, counted by a
// BPF program in its network namespace (package meter). The ideal is
// alloc.Allocate over the containers that are sending, for the link's
// configured rate.
//
// Limits: the link is a veth pair, so peers that do not limit it get a token
// bucket that stands for it; senders, receivers and what is measured share
// the CPUs.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Options of a suite.
type Options struct {
	Suite string
	// RateBPS is the link's rate in bits per second on the wire, for suites
	// that do not set their own.
	RateBPS uint64
	measure.RunOptions
	// Peers are the peers to run; empty means all.
	Peers []string
	// Only selects cases by "group: name"; nil means all.
	Only *regexp.Regexp
	// Judged leaves out the runs of qcon and cntc that no claim and no target is judged by.
	Judged bool
	// Docker runs containers in a private Docker engine; otherwise, and in some
	// suites always, they are network namespaces.
	Docker bool
	// Containers is how many the agent has in the suite about it, and Readers how many
	// pages of its dashboard are open there; 0 leaves those cases out.
	Containers, Readers int
	// PriorityBy is PriorityByWeight where priorities follow from weights.
	PriorityBy string
	// Overload is how many times the link's rate a UDP sender without a rate
	// of its own sends.
	Overload float64
	// Seed makes random weights.
	Seed uint64
	// AgentArgs are further arguments of the agent that is measured.
	AgentArgs []string
	// CacheDir keeps peers that are built.
	CacheDir string
}

// suite is a table of cases.
type suite struct {
	name string
	// about says in a few words what it measures.
	about string
	cases func(Options) []Case
	// rounds are how many it takes unless told otherwise.
	rounds int
	// note is what a reader of the report must know of the suite.
	note string
	// bare suites always use network namespaces: they need modes or numbers of
	// containers that an engine does not easily offer.
	bare bool
}

// The suites that repeat papers, whose claims package claim judges, and the one that judges a p99.9.
const (
	SuiteQCon    = "qcon"
	SuiteCNTC    = "cntc"
	SuiteLatency = "latency"
)

var suites = []suite{
	{SuiteQCon, "figures 3 and 7 to 12 and table 1 of qCon", qconSuite, 1, qconNote, false},
	{SuiteCNTC, "figures 1 and 7 to 11 of CNTC, in four network modes", cntcSuite, 1, cntcNote, true},
	{"accuracy", "error of shares, 10 Mbit/s to 5 Gbit/s", accuracySuite, 1, accuracyNote, false},
	{"reaction", "time to the new allocation", reactionSuite, reactionRounds, "", false},
	{"cap", "by how much maximums are exceeded", capSuite, 1, "", false},
	{SuiteLatency, "round trips beside bulk and floods, in all network modes", latencySuite, 1, "", true},
	{"in", "shares of received traffic", inSuite, 1, inNote, true},
	{"cost", "processor time and packets a second, beside HTB", costSuite, report.LeastRounds, costNote, true},
	{"agent", "what the agent itself takes", agentSuite, 1, agentNote, true},
}

// SuiteNames returns the names of the suites of cases, in the order of weir bench all.
func SuiteNames() []string {
	names := make([]string, len(suites))
	for i, one := range suites {
		names[i] = one.name
	}
	return names
}

// About returns what a suite measures.
func About(name string) string {
	return measure.Find(suites, func(s suite) bool { return s.name == name }).about
}

// Rounds returns how many rounds a suite takes unless told otherwise.
func Rounds(name string) int {
	return measure.Find(suites, func(s suite) bool { return s.name == name }).rounds
}

// RoundsToDecide returns how many rounds decide all verdicts of the suite: ratios take report.LeastRounds.
func (o Options) RoundsToDecide() int {
	if cases, err := o.Cases(); err == nil && slices.ContainsFunc(cases, func(c Case) bool { return len(c.Ratios) > 0 }) {
		return report.LeastRounds
	}
	return Rounds(o.Suite)
}

// suite returns the suite that the options name.
func (o Options) suite() (suite, error) {
	i := slices.IndexFunc(suites, func(s suite) bool { return s.name == o.Suite })
	if i < 0 {
		return suite{}, fmt.Errorf("unknown suite %q: choose from %s", o.Suite, strings.Join(SuiteNames(), ", "))
	}
	return suites[i], nil
}

// Cases returns the cases that the options select. It returns an error for invalid options,
// before anything is started.
func (o Options) Cases() ([]Case, error) {
	table, err := o.suite()
	if err != nil {
		return nil, err
	}
	for _, name := range o.Peers {
		if !slices.Contains(PeerNames(), name) {
			return nil, fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(PeerNames(), ", "))
		}
	}
	switch {
	case !slices.Contains([]string{"", PriorityByPolicy, PriorityByWeight}, o.PriorityBy):
		return nil, fmt.Errorf("unknown priority by %q: choose %s or %s", o.PriorityBy, PriorityByPolicy, PriorityByWeight)
	case o.Repeat < 1 || o.Duration <= 0 || o.Warmup < 0:
		return nil, errors.New("rounds and duration must be positive, the warm-up not negative")
	case o.Overload <= 1:
		return nil, errors.New("an overload of 1 or less does not fill the link with UDP")
	case o.Readers < 0 || o.Readers > maxPages:
		return nil, fmt.Errorf("the number of readers must be 0 to %d, which is how many the dashboard lets in", maxPages)
	case o.Containers < 1 || o.Containers > maxBedContainers:
		return nil, fmt.Errorf("the number of containers must be 1 to %d", maxBedContainers)
	}
	cases := slices.DeleteFunc(table.cases(o), func(c Case) bool {
		return o.Only != nil && !o.Only.MatchString(c.ID())
	})
	if o.Judged {
		cases = judgedOnly(o.Suite, cases)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("no case of suite %s matches %q", o.Suite, o.Only)
	}
	if o.PriorityBy == PriorityByWeight {
		for i := range cases {
			cases[i] = cases[i].prioritised()
		}
	}
	return cases, nil
}

// Run runs a suite. A peer that fails in a case is reported with it; the
// error is about what made going on impossible.
func Run(ctx context.Context, options Options) (found Report, err error) {
	cases, err := options.Cases()
	if err != nil {
		return found, err
	}
	table, err := options.suite()
	if err != nil {
		return found, err
	}
	options.Docker = options.Docker && !table.bare
	ports := 0
	for _, c := range cases {
		ports = max(ports, c.ports())
	}

	started := time.Now()
	b, err := NewBed(ctx, options, ports)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	found = Report{
		Report: options.NewReport(options.Suite, table.note, started, b.Environment(ctx, options.Version)),
		Suite:  options.Suite, DurationS: options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(),
	}
	found.Seed = options.Seed
	cases, missing, err := b.dropMissingModes(ctx, cases)
	if err != nil {
		return found, err
	}
	for _, mode := range missing {
		found.AddGap(fmt.Sprintf("The mode %s was left out: %v.", mode, testbed.ErrNoIPvlan))
	}
	if options.PriorityBy == PriorityByWeight {
		found.AddNote("Priorities follow from weights.")
	}
	r := &runner{options: options, bed: b, progress: &progress{options: options}}
	var gaps []string
	r.peers, found.Skipped, gaps = makePeers(ctx, options, cases)
	for _, gap := range gaps {
		found.AddGap(gap)
	}
	if r.Recorder, err = NewRecorder[runKey, observation](ctx, options.RunOptions); err != nil {
		return found, err
	}
	defer func() { r.Close(&found.Report) }()
	// Rounds are outermost: what disturbs the machine for a while disturbs
	// one round of some cases, not all rounds of one.
	for done := 0; done == 0 || options.goesOn(done); done += options.Repeat {
		wanted := r.wanted(cases, done)
		r.progress.expect(cases, wanted, done)
		for round := done; round < done+options.Repeat; round++ {
			for i, c := range cases {
				if err := r.runCase(ctx, c, wanted[i], round); err != nil {
					return found, fmt.Errorf("case %q: %w", c.ID(), err)
				}
			}
		}
	}
	r.Complete(&found.Report)
	found.Results = r.results(cases)
	found.TookSeconds = time.Since(started).Seconds()
	found.complete()
	return found, nil
}

// goesOn reports whether what is undecided after rounds is measured again: only of sevens is it known how
// often chance misjudges them.
func (o Options) goesOn(done int) bool {
	return o.Repeat == report.LeastRounds && done < report.MostRounds
}

// namedPeer is a peer that takes part.
type namedPeer struct {
	name string
	peer Peer
}

// makePeers creates the peers that the cases need. A peer that fails is skipped, with the reason; one that this machine
// lacks the means for, and that was not asked for by name, is a gap of the report and no failure.
func makePeers(ctx context.Context, options Options, cases []Case) (peers []namedPeer, skipped map[string]string, gaps []string) {
	skipped = map[string]string{}
	for _, name := range PeerNames() {
		wanted := len(options.Peers) == 0 || slices.Contains(options.Peers, name)
		if !wanted || !slices.ContainsFunc(cases, func(c Case) bool { return c.takesPart(name) }) {
			continue
		}
		made, err := NewPeer(ctx, name, options)
		if lacks := (*lacksError)(nil); errors.As(err, &lacks) && len(options.Peers) == 0 {
			gaps = append(gaps, fmt.Sprintf("The peer %s was left out: %v.", name, err))
			continue
		}
		if err != nil {
			skipped[name] = err.Error()
			continue
		}
		peers = append(peers, namedPeer{name, made})
	}
	return peers, skipped, gaps
}

// runner runs cases on a bed.
type runner struct {
	*Recorder[runKey, observation]
	options  Options
	bed      *Bed
	peers    []namedPeer
	progress *progress
}

// runKey identifies a case, by its ID, with a peer.
type runKey struct{ id, peer string }

// runCase runs one round of a case with peers.
func (r *runner) runCase(ctx context.Context, c Case, peers []namedPeer, round int) error {
	keys := make([]runKey, len(peers))
	for i, one := range peers {
		keys[i] = runKey{c.ID(), one.name}
	}
	if len(peers) == 0 {
		return nil
	}
	untaken, err := r.TakeTogether(keys...)
	r.progress.done += len(keys) - len(untaken)
	if len(untaken) == 0 || err != nil {
		return err
	}
	if r.LeaveOut(1) {
		return nil
	}
	fail := func(err error) error {
		r.progress.done += len(untaken)
		return r.FailSetting(ctx, err, untaken...)
	}
	if err := r.Clear(); err != nil {
		return fail(err)
	}
	containers, remove, err := r.bed.Place(ctx, c)
	defer func() { _ = r.Clear(remove) }() // its error is the next case's
	if err != nil {
		return fail(err)
	}
	removePath, err := r.bed.usePath(ctx, c, containers)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = r.Clear(removePath) }()
	for _, one := range inTurn(peers, round) {
		key := runKey{c.ID(), one.name}
		if !slices.Contains(untaken, key) || measure.Overdue(r.options.Until) {
			continue
		}
		r.progress.run(c, one.name, round)
		err := r.Run(ctx, key, fmt.Sprintf("%s, %s, round %d", c.ID(), one.name, round+1), c.runLength(r.options), func() (observation, error) {
			seen, err := r.runOnce(ctx, c, one.peer, containers)
			if err == nil {
				err = c.checkPings(one.name, seen.Ping)
			}
			seen.Round = round
			seen.Pause = r.Longest(seen.FromNS, seen.FromNS+seen.Window.Nanoseconds())
			return seen, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// results summarises all that was observed.
func (r *runner) results(cases []Case) []CaseResult {
	var results []CaseResult
	for _, c := range cases {
		for _, one := range r.peers {
			found := r.Of(runKey{c.ID(), one.name})
			if len(found.Seen) == 0 && found.Failure == nil {
				continue
			}
			result := summarise(c, one.name, found.Seen)
			result.Ratios = r.ratios(c, one.name)
			if found.Failure != nil {
				result.Failure = found.Failure.Error()
			}
			results = append(results, result)
		}
	}
	compare(cases, results)
	return results
}

func (r *runner) runOnce(ctx context.Context, c Case, p Peer, containers []Placed) (seen observation, err error) {
	var idleCPU float64
	if c.Measures.has(MeasureCost) {
		if idleCPU, err = idleUse(ctx, watchUse); err != nil {
			return seen, err
		}
	}
	defer func() {
		// Also after ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, p.Remove(ctx, r.bed, containers))
	}()
	if err := p.Apply(ctx, r.bed, c, containers); err != nil {
		return seen, err
	}
	seen, err = observe(ctx, r.bed, c, p, containers, r.options)
	seen.IdleCPU = idleCPU
	return seen, err
}

// idleTime is how long the idle machine is watched, idleTries times at most, until no more than quietUse of it is busy.
const (
	idleTime  = time.Second
	idleTries = 5
	quietUse  = 0.05
)

// idleUse returns the fraction of all CPUs that is busy without traffic, as watch tells of a second. It is the least of
// some seconds: what disturbs only one of them, and not the run after it, would be counted as saved by the peer.
func idleUse(ctx context.Context, watch func(context.Context) (float64, error)) (float64, error) {
	least := math.Inf(1)
	for try := 0; try < idleTries && least > quietUse; try++ {
		use, err := watch(ctx)
		if err != nil {
			return 0, err
		}
		least = min(least, use)
	}
	return least, nil
}

// watchUse returns the fraction of all CPUs that is busy for the next second.
func watchUse(ctx context.Context) (float64, error) {
	from, err := traffic.ReadCPUTimes()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	until, err := traffic.ReadCPUTimes()
	return until.Sub(from).BusyFraction(), err
}
