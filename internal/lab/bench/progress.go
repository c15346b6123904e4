package bench

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// overheadPerRun is roughly what setting up and removing a peer takes.
const overheadPerRun = 500 * time.Millisecond

// progress tells a waiting user what is going on.
type progress struct {
	out         io.Writer
	done, total int
}

// newProgress counts the runs of the cases and says how long they will take.
func newProgress(options Options, cases []Case) *progress {
	p := &progress{out: options.Progress}
	var needed time.Duration
	for _, c := range cases {
		for _, name := range PeerNames() {
			if c.takesPart(name) && (len(options.Peers) == 0 || slices.Contains(options.Peers, name)) {
				p.total += options.Repeat
				needed += time.Duration(options.Repeat) * (c.timing(options).windowUntil + overheadPerRun)
			}
		}
	}
	fmt.Fprintf(p.out, "%d cases, %d runs, about %v\n", len(cases), p.total, needed.Round(time.Second))
	return p
}

func (p *progress) run(c Case, peer string, round int) {
	p.done++
	fmt.Fprintf(p.out, "[%d/%d] %s, %s, round %d\n", p.done, p.total, c.ID(), peer, round+1)
}
