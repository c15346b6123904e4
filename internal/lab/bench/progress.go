package bench

import (
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
)

// overheadPerRun is roughly what setting up and removing a peer takes, overheadPerContainer what each
// container adds.
const (
	overheadPerRun       = 700 * time.Millisecond
	overheadPerContainer = 5 * time.Millisecond
)

// runLength returns about how long a run of a case takes.
func (c Case) runLength(options Options) time.Duration {
	length := c.timing(options).windowUntil + overheadPerRun + time.Duration(len(c.Containers))*overheadPerContainer
	if c.Measures.has(MeasureCost) {
		length += idleTime
	}
	return length
}

// roundsOf returns about how long the rounds of a case with a number of peers take, and how much longer at most if ratios stay
// undecided.
func (o Options) roundsOf(c Case, peers int) (needed, more time.Duration) {
	needed = time.Duration(o.Repeat*peers) * c.runLength(o)
	if len(c.Ratios) > 0 && o.goesOn(o.Repeat) {
		more = time.Duration(report.MostRounds/o.Repeat-1) * needed
	}
	return needed, more
}

// Length returns about how long a suite takes if no peer is missing, and how much longer at most if ratios stay undecided.
func (o Options) Length() (needed, more time.Duration) {
	cases, _ := o.Cases() // of invalid options there are none
	for _, c := range cases {
		rounds, again := o.roundsOf(c, len(c.peers()))
		needed, more = needed+rounds, more+again
	}
	return needed, more
}

// progress tells a waiting user what is going on.
type progress struct {
	options     Options
	done, total int
}

// expect counts the rounds of cases with peers that follow those done, and says how long they will take.
func (p *progress) expect(cases []Case, peers [][]namedPeer, done int) {
	var needed, again time.Duration
	many, runs := 0, 0
	for i, c := range cases {
		rounds, more := p.options.roundsOf(c, len(peers[i]))
		needed, again = needed+rounds, again+more
		runs += p.options.Repeat * len(peers[i])
		if len(peers[i]) > 0 {
			many++
		}
	}
	p.total += runs
	p.options.Journal.Expect(p.total)
	switch {
	case runs == 0:
		return
	case done > 0:
		fmt.Fprintf(p.options.Progress, "%d cases are undecided: %d more runs, about %v\n", many, runs, needed.Round(time.Second))
	case again > 0:
		fmt.Fprintf(p.options.Progress, "%d cases, %d runs, about %v, and up to %v more for what stays undecided\n", many, runs, needed.Round(time.Second), again.Round(time.Second))
	default:
		fmt.Fprintf(p.options.Progress, "%d cases, %d runs, about %v\n", many, runs, needed.Round(time.Second))
	}
}

func (p *progress) run(c Case, peer string, round int) {
	p.done++
	fmt.Fprintf(p.options.Progress, "[%d/%d] %s, %s, round %d\n", p.done, p.total, c.ID(), peer, round+1)
}
