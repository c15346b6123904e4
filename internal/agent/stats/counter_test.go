package stats

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestLedger(t *testing.T) {
	const number = 16
	type step struct {
		sent    Sent
		dropped uint32
		want    Totals
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"the first reading counts in full", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10, DirectBytes: 50, DirectPackets: 1}, 2, Totals{SentBytes: 1050, SentPackets: 11, DroppedPackets: 2}},
			{Sent{ClassBytes: 1500, ClassPackets: 12, DirectBytes: 80, DirectPackets: 2}, 2, Totals{SentBytes: 1580, SentPackets: 14, DroppedPackets: 2}},
		}},
		{"the class is made again", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10, DirectBytes: 50, DirectPackets: 1}, 5, Totals{SentBytes: 1050, SentPackets: 11, DroppedPackets: 5}},
			{Sent{ClassBytes: 400, ClassPackets: 4, DirectBytes: 60, DirectPackets: 1}, 1, Totals{SentBytes: 1460, SentPackets: 15, DroppedPackets: 6}},
		}},
		{"the class is made again and has dropped more than before", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10}, 1, Totals{SentBytes: 1000, SentPackets: 10, DroppedPackets: 1}},
			{Sent{ClassBytes: 400, ClassPackets: 4}, 3, Totals{SentBytes: 1400, SentPackets: 14, DroppedPackets: 4}},
		}},
		{"the class is made again and has sent more, in larger packets", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10}, 0, Totals{SentBytes: 1000, SentPackets: 10, DroppedPackets: 0}},
			{Sent{ClassBytes: 4500, ClassPackets: 3}, 0, Totals{SentBytes: 5500, SentPackets: 13, DroppedPackets: 0}},
		}},
		{"packets and drops wrap", []step{
			{Sent{ClassBytes: 1e12, ClassPackets: math.MaxUint32 - 1, DirectPackets: math.MaxUint32}, math.MaxUint32, Totals{SentBytes: 1e12, SentPackets: 2*math.MaxUint32 - 1, DroppedPackets: math.MaxUint32}},
			{Sent{ClassBytes: 1e12 + 300, ClassPackets: 1, DirectPackets: 1}, 0, Totals{SentBytes: 1e12 + 300, SentPackets: 2*math.MaxUint32 + 4, DroppedPackets: math.MaxUint32 + 1}},
		}},
		{"what went direct begins again alone", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10, DirectBytes: 500, DirectPackets: 5}, 3, Totals{SentBytes: 1500, SentPackets: 15, DroppedPackets: 3}},
			{Sent{ClassBytes: 1100, ClassPackets: 11, DirectBytes: 100, DirectPackets: 1}, 3, Totals{SentBytes: 1700, SentPackets: 17, DroppedPackets: 3}},
		}},
		{"the queue alone is made again", []step{
			{Sent{ClassBytes: 1000, ClassPackets: 10}, 9, Totals{SentBytes: 1000, SentPackets: 10, DroppedPackets: 9}},
			{Sent{ClassBytes: 1000, ClassPackets: 10}, 4, Totals{SentBytes: 1000, SentPackets: 10, DroppedPackets: 13}},
		}},
		{"nothing is sent", []step{
			{Sent{}, 0, Totals{}},
			{Sent{}, 0, Totals{}},
			{Sent{ClassBytes: 60, ClassPackets: 1}, 0, Totals{SentBytes: 60, SentPackets: 1, DroppedPackets: 0}},
		}},
	} {
		var l Ledger
		var total Totals
		for i, s := range tc.steps {
			l.CountSent(number, s.sent, &total)
			l.CountQueue(number, Queue{DroppedPackets: s.dropped}, &total)
			if total != s.want {
				t.Errorf("%s, reading %d: %+v, want %+v", tc.name, i, total, s.want)
			}
		}
	}
}

// Marks are counted as drops are: they outlive a queue, and wrap.
func TestLedgerOfMarks(t *testing.T) {
	const number = 16
	var l Ledger
	var total Totals
	sent := Sent{ClassBytes: 1000, ClassPackets: 10}
	for i, step := range []struct {
		queue Queue
		want  uint64
		made  bool // all classes are made again before
	}{
		{queue: Queue{MarkedPackets: 3}, want: 3},
		{queue: Queue{DroppedPackets: 8, MarkedPackets: 5}, want: 5},
		// The queue is made again; its drops alone say so.
		{queue: Queue{DroppedPackets: 1, MarkedPackets: 6}, want: 11},
		{queue: Queue{DroppedPackets: 1, MarkedPackets: 2}, want: 13},
		{queue: Queue{MarkedPackets: 9}, want: 22, made: true},
		{queue: Queue{MarkedPackets: 1 << 31}, want: 1<<31 + 13},
		{queue: Queue{MarkedPackets: math.MaxUint32}, want: math.MaxUint32 + 13},
		{queue: Queue{MarkedPackets: 4}, want: math.MaxUint32 + 18},
	} {
		if step.made {
			l.ClassesMade()
		}
		l.CountSent(number, sent, &total)
		l.CountQueue(number, step.queue, &total)
		if total.MarkedPackets != step.want {
			t.Errorf("reading %d: %d marked packets, want %d", i, total.MarkedPackets, step.want)
		}
	}
	if last := l.Last(number); last.MarkedPackets != 4 {
		t.Errorf("read last: %+v", last)
	}
}

// A number goes from one container to the next.
func TestLedgerOfAReusedNumber(t *testing.T) {
	const number = 16
	had := Sent{ClassBytes: 1000, ClassPackets: 10, DirectBytes: 100, DirectPackets: 1}
	more := Sent{ClassBytes: 1200, ClassPackets: 12, DirectBytes: 100, DirectPackets: 1}
	for _, tc := range []struct {
		name string
		do   func(l *Ledger)
		want Totals
	}{
		{"the class stays", func(*Ledger) {}, Totals{SentBytes: 200, SentPackets: 2, DroppedPackets: 1}},
		{"the class goes in between", func(l *Ledger) { l.Keep(func(uint16) bool { return false }) }, Totals{SentBytes: 1300, SentPackets: 13, DroppedPackets: 4}},
		{"another's class goes", func(l *Ledger) { l.Keep(func(n uint16) bool { return n == number }) }, Totals{SentBytes: 200, SentPackets: 2, DroppedPackets: 1}},
		{"all classes are made again", func(l *Ledger) { l.ClassesMade() }, Totals{SentBytes: 1200, SentPackets: 12, DroppedPackets: 4}},
		{"another agent has read it", func(l *Ledger) {
			last := l.Last(number)
			*l = Ledger{}
			l.Resume(number, last)
		}, Totals{SentBytes: 200, SentPackets: 2, DroppedPackets: 1}},
	} {
		var l Ledger
		var before, next Totals
		l.CountSent(number, had, &before)
		l.CountQueue(number, Queue{DroppedPackets: 3}, &before)
		tc.do(&l)
		l.CountSent(number, more, &next)
		l.CountQueue(number, Queue{DroppedPackets: 4}, &next)
		if next != tc.want {
			t.Errorf("%s: the next holder has %+v, want %+v", tc.name, next, tc.want)
		}
	}
}

// Readings may be missing, classes made again at any time: totals never fall,
// and never exceed what was sent.
func TestTotalsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		var total, sent Totals
		var kernel Sent
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			packets := rapid.Uint32Range(0, 1<<20).Draw(t, "packets")
			bytes := uint64(packets) * rapid.Uint64Range(60, 1514).Draw(t, "size")
			if rapid.IntRange(0, 4).Draw(t, "made again") == 0 {
				kernel.ClassBytes, kernel.ClassPackets = 0, 0
			}
			kernel.ClassBytes += bytes
			kernel.ClassPackets += packets
			sent.SentBytes += bytes
			sent.SentPackets += uint64(packets)
			if rapid.Bool().Draw(t, "missing") {
				continue
			}
			before := total
			l.CountSent(16, kernel, &total)
			if total.SentBytes < before.SentBytes || total.SentPackets < before.SentPackets {
				t.Fatalf("from %+v to %+v", before, total)
			}
			if total.SentBytes > sent.SentBytes || total.SentPackets > sent.SentPackets {
				t.Fatalf("counted %+v, sent %+v", total, sent)
			}
		}
	})
}
