package response

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// answer is a response that a proxy has written to the kernel.
type answer struct {
	service, instance string
	conn              kernel.Connection
	// writtenAt is when the proxy wrote the last byte, took the time until then, first the part of
	// it until the instance's first byte.
	writtenAt   time.Time
	took, first time.Duration

	// held: the first look found bytes of it in the kernel.
	held   bool
	looked time.Time // the last look; zero: none yet
	due    time.Time // the next look
	// leftAt is when the last byte left the host; zero while it has not.
	leftAt      time.Time
	retransmits uint32
	received    uint64
	minRTT      time.Duration
}

// parseLine reads a proxy's line about a request: service, instance, user's address and port, own
// address and port, times in milliseconds (the request's head, the queue, the connection to the
// instance, its first byte, all), microseconds to open the connection ("-" if it was open), and how
// it ended. It returns false for requests that were not answered in full.
func parseLine(line string, now time.Time) (*answer, bool) {
	f := strings.Fields(line)
	if len(f) != 13 || f[12] != "--" {
		return nil, false
	}
	remote, err1 := netip.ParseAddrPort(net.JoinHostPort(f[2], f[3]))
	local, err2 := netip.ParseAddrPort(net.JoinHostPort(f[4], f[5]))
	if err1 != nil || err2 != nil {
		return nil, false
	}
	a := &answer{service: f[0], instance: f[1], conn: kernel.Connection{Local: local, Remote: remote}, writtenAt: now, due: now}
	for i, text := range f[6:11] {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil { // -1: it did not come so far
			return nil, false
		}
		if d := time.Duration(ms) * time.Millisecond; i < 4 {
			a.first += d
		} else {
			a.took = d
		}
	}
	if us, err := strconv.ParseUint(f[11], 10, 31); err == nil {
		a.took += time.Duration(us) * time.Microsecond
	}
	return a, true
}

const (
	// mostTracked bounds the answers that are followed at a time, so what this costs; the statistics
	// lack those beyond it. turnLines bounds those that begin in a turn.
	mostTracked = 64
	turnLines   = 20
	// overdue is the age at which an answer makes room for another one.
	overdue = 10 * time.Second
	// An answer is looked at again when it has become a part of precision older.
	precision   = 12
	leastBreak  = 2 * time.Millisecond
	mostBreak   = 250 * time.Millisecond
	acknowledge = 20 * time.Millisecond // between looks for the last acknowledgement
	patience    = 2 * time.Minute
)

// budget divides the lines of a turn among the services that had some in the turn before.
type budget struct {
	taken map[string]int
	share int
}

// renew begins a turn.
func (b *budget) renew() {
	b.share = max(turnLines/max(len(b.taken), 1), 1)
	b.taken = map[string]int{}
}

// take reports whether a line of the service may be looked at.
func (b *budget) take(service string) bool {
	b.taken[service]++
	return b.taken[service] <= b.share
}

// tracker follows answers until their last byte is delivered.
type tracker struct {
	look   func(kernel.Connection) (kernel.Sending, bool, error)
	done   func(a *answer, deliveredAt time.Time)
	budget budget
	active []*answer // oldest first
}

// take begins to follow the answer that a line is about, if its service is within the budget.
func (t *tracker) take(line string, writtenAt time.Time) {
	if service, _, _ := strings.Cut(line, " "); !t.budget.take(service) {
		return
	}
	if a, ok := parseLine(line, writtenAt); ok {
		t.add(a)
	}
}

// add begins to follow an answer, if there is room.
func (t *tracker) add(a *answer) {
	if len(t.active) < mostTracked || t.makeRoom(a) {
		t.active = append(t.active, a)
	}
}

// makeRoom ends following one answer, and reports whether it did. The oldest one counts with its time
// so far if it is overdue: of users who do not read there may be many. Younger ones stay, as their
// loss would leave the short times only. But a service makes room for one with fewer answers: its
// last one goes, uncounted.
func (t *tracker) makeRoom(a *answer) bool {
	if oldest := t.active[0]; a.writtenAt.Sub(oldest.writtenAt) >= overdue {
		t.done(oldest, cmp.Or(oldest.leftAt, a.writtenAt).Add(oldest.minRTT))
		t.active = slices.Delete(t.active, 0, 1)
		return true
	}
	followed := map[string]int{}
	for _, other := range t.active {
		followed[other.service]++
	}
	most, last := followed[a.service]+1, -1 // it has more than this
	for i, other := range t.active {
		if n := followed[other.service]; n > most || n == most && last >= 0 {
			most, last = n, i
		}
	}
	if last < 0 {
		return false
	}
	t.active = slices.Delete(t.active, last, last+1)
	return true
}

// step looks at the answers that are due, and returns when the next one is; zero: none.
func (t *tracker) step(now time.Time) (next time.Time) {
	kept := t.active[:0]
	for _, a := range t.active {
		if !now.Before(a.due) && t.follow(a, now) {
			continue
		}
		kept = append(kept, a)
		if next.IsZero() || a.due.Before(next) {
			next = a.due
		}
	}
	clear(t.active[len(kept):])
	t.active = kept
	return next
}

// follow looks at an answer and reports whether that was the last time.
func (t *tracker) follow(a *answer, now time.Time) bool {
	since := a.writtenAt // by the first look all may have been delivered
	if !a.looked.IsZero() {
		since = a.looked.Add(now.Sub(a.looked) / 2)
	}
	seen, open, err := t.look(a.conn)
	again := a.received > 0 && seen.ReceivedBytes != a.received // the user has it: the next request is here
	if err != nil || !open || again {
		if a.leftAt.IsZero() {
			a.leftAt = since
		}
		t.done(a, a.leftAt.Add(a.minRTT))
		return true
	}
	a.received, a.minRTT = seen.ReceivedBytes, seen.MinRTT
	switch {
	case seen.Held:
		a.held, a.leftAt = true, time.Time{}
	case a.leftAt.IsZero() || seen.Retransmits != a.retransmits: // it left, or was lost and left again
		a.leftAt = since
	}
	a.retransmits, a.looked = seen.Retransmits, now
	if seen.UnackedBytes == 0 || now.Sub(a.writtenAt) > patience {
		if a.leftAt.IsZero() {
			a.leftAt = now
		}
		t.done(a, a.leftAt.Add(a.minRTT))
		return true
	}
	a.due = now.Add(min(max((a.took+now.Sub(a.writtenAt))/precision, leastBreak), mostBreak))
	if !seen.Held {
		a.due = now.Add(acknowledge)
	}
	return false
}
