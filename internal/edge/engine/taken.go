package engine

import "time"

// Taken is what users take where they come to, as far as it is known: where it has been
// clearly less than what is in force.
type Taken map[Entry]Took

// Took is what the users of an entry took at most, in bits per second.
type Took struct {
	// MostBPS is of the last Window, BeforeBPS of the one before that.
	MostBPS, BeforeBPS uint64
	Window             time.Duration
}

// bps is what users take: their peaks are what they want, and do not vary as what they take
// from second to second.
func (t Took) bps() float64 { return float64(max(t.MostBPS, t.BeforeBPS)) }

const (
	// fullyTaken is the part of what is in force from which on users may want more: a
	// proxy has no use for the extra of a relay, and not for all of it in each second.
	fullyTaken = 0.85
	// takenWindow is for how long peaks count, and as long again.
	takenWindow = 15 * time.Second
)

// Next is what is known after a while in which proxies had givenBPS in force and sent
// sentBPS in the last second. Of a proxy that nobody has looked at the same is known as
// before, and nothing of one that had nothing in force. What is known rises at once, and
// falls once in each window, from what was in force when it began to be known.
func (t Taken) Next(givenBPS, sentBPS map[Entry]uint64, passed time.Duration) Taken {
	after := Taken{}
	for entry, given := range givenBPS {
		took, known := t[entry]
		sent, looked := sentBPS[entry]
		switch {
		case !looked && known:
			after[entry] = took
		case !looked, float64(sent) >= fullyTaken*float64(given):
		case !known:
			after[entry] = Took{MostBPS: sent, BeforeBPS: given}
		case took.Window+passed >= takenWindow:
			after[entry] = Took{MostBPS: sent, BeforeBPS: max(took.MostBPS, sent)}
		default:
			after[entry] = Took{MostBPS: max(took.MostBPS, sent), BeforeBPS: took.BeforeBPS, Window: took.Window + max(passed, 0)}
		}
	}
	return after
}
