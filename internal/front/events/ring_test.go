package events

import (
	"slices"
	"testing"
	"time"
)

type testEvent struct {
	number uint64
	name   string
}

var epoch = time.Unix(1_700_000_000, 0)

func newRing(now time.Time, kept ...testEvent) *Ring[testEvent] {
	return NewRing(func(e *testEvent) *uint64 { return &e.number }, kept, now)
}

func TestRing(t *testing.T) {
	e := newRing(epoch)
	first := uint64(epoch.UnixMilli())
	if b := e.Since(0); len(b.Events) > 0 || b.Missed > 0 || b.Closed {
		t.Errorf("nothing has happened: %+v", b)
	}
	more := e.Since(0).More
	e.Add()
	select {
	case <-more:
		t.Error("told of nothing")
	default:
	}
	add := func(n int) {
		for range n {
			e.Add(testEvent{}, testEvent{})
		}
	}
	add(1)
	<-more
	numbers := func(b Batch[testEvent]) (list []uint64) {
		for _, event := range b.Events {
			list = append(list, event.number-first)
		}
		return list
	}
	for _, tc := range []struct {
		name  string
		since uint64
		want  []uint64
	}{
		{"from the start", 0, []uint64{0, 1}},
		{"after the events of an earlier run", first - 5000, []uint64{0, 1}},
		{"after the first", first, []uint64{1}},
		{"after the last", first + 1, nil},
		{"from the future", first + 2, []uint64{0, 1}},
	} {
		if b := e.Since(tc.since); !slices.Equal(numbers(b), tc.want) || b.Missed > 0 {
			t.Errorf("%s: %v, missed %d", tc.name, numbers(b), b.Missed)
		}
	}

	// A reader that sleeps misses what is not kept, and is told how much.
	add(Kept/2 + 4) // 10 more than are kept, with the 2 before
	var got []uint64
	missed, since := uint64(0), first+1
	for {
		b := e.Since(since)
		if len(b.Events) == 0 {
			break
		}
		if len(b.Events) > batchEvents {
			t.Fatalf("%d events at once", len(b.Events))
		}
		missed += b.Missed
		got = append(got, numbers(b)...)
		since = b.Events[len(b.Events)-1].number
	}
	if missed != 8 || len(got) != Kept || got[0] != 10 || got[len(got)-1] != Kept+9 {
		t.Errorf("missed %d, got %d from %d", missed, len(got), got[0])
	}
	for i := range got {
		if got[i] != got[0]+uint64(i) {
			t.Fatalf("event %d has number %d", i, got[i])
		}
	}

	// A reader that waits when the ring is closed is told.
	more = e.Since(since).More
	e.Close()
	e.Close()
	<-more
	e.Add(testEvent{})
	if b := e.Since(since); !b.Closed || len(b.Events) != 1 {
		t.Errorf("after the end: %+v", b)
	}
}

// Readers do not hold up Add, and get each event once or count it as missed.
func TestReadersAtOnce(t *testing.T) {
	e := newRing(epoch)
	const events, readers = 20_000, 4
	done := make(chan uint64, readers)
	for range readers {
		go func() {
			since, seen := uint64(0), uint64(0)
			for {
				b := e.Since(since)
				seen += b.Missed
				for _, event := range b.Events {
					seen++
					since = event.number
				}
				if len(b.Events) > 0 {
					continue
				}
				if b.Closed {
					done <- seen
					return
				}
				<-b.More
			}
		}()
	}
	for range events {
		e.Add(testEvent{})
	}
	e.Close()
	for range readers {
		if seen := <-done; seen != events {
			t.Errorf("a reader got or missed %d events of %d", seen, events)
		}
	}
}

func TestKeeps(t *testing.T) {
	e := newRing(time.UnixMilli(5000))
	keeps := func(want map[uint64]bool) {
		t.Helper()
		for seq, kept := range want {
			if e.Keeps(seq) != kept {
				t.Errorf("all after %d: %t", seq, !kept)
			}
		}
	}
	keeps(map[uint64]bool{0: false, 4998: false, 4999: true, 5000: false})
	for range Kept + 10 {
		e.Add(testEvent{})
	}
	keeps(map[uint64]bool{4999: false, 5008: false, 5009: true, 5000 + Kept + 9: true, 5000 + Kept + 10: false})
}

// A ring goes on after the events of the run before, between which numbers may be missing.
func TestKeptEvents(t *testing.T) {
	e := newRing(time.UnixMilli(100), testEvent{5, "a"}, testEvent{7, "b"}, testEvent{120, "a"})
	if added := e.Add(testEvent{name: "b"}); added[0].number != 121 {
		t.Errorf("a new event has number %d", added[0].number)
	}
	for since, want := range map[uint64][]uint64{0: {5, 7, 120, 121}, 5: {7, 120, 121}, 8: {120, 121}, 120: {121}, 121: nil} {
		var got []uint64
		for _, event := range e.Since(since).Events {
			got = append(got, event.number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", since, got, want)
		}
	}
	found := e.Newest(2, func(e testEvent) bool { return e.name == "a" })
	if !slices.Equal(found, []testEvent{{120, "a"}, {5, "a"}}) {
		t.Errorf("the newest: %v", found)
	}
	many := make([]testEvent, Kept+5)
	for i := range many {
		many[i].number = uint64(i + 1)
	}
	if b := newRing(epoch, many...).Since(0); b.Events[0].number != 6 || b.Missed != 0 {
		t.Errorf("more than are kept: begins with %d, missed %d", b.Events[0].number, b.Missed)
	}
}
