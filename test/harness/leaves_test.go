package harness

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// A queue ran dry that was empty for longer than a sender may be late: over all its traffic classes,
// and also if it still is. One that is not known is not dry.
func TestDryLeaves(t *testing.T) {
	const ms = int64(time.Millisecond)
	w := &leafWatch{leaves: []leaf{{number: 16}, {number: 17}}}
	class := func(minor uint16, backlogBytes uint32) kernel.ClassStats {
		return kernel.ClassStats{Handle: kernel.NewHandle(classMajor, minor), BacklogBytes: backlogBytes}
	}
	// 17 has a queue for each of two traffic classes, of which one always has packets.
	for at, backlog := range []uint32{3028, 0, 0, 0, 0, 3028, 0, 3028, 3028, 0, 0, 0, 0, 0} {
		w.look(int64(3*at)*ms, []kernel.ClassStats{class(16, backlog), class(0x1000|17, 0), class(0x3000|17, 1514)})
	}
	for _, test := range []struct{ from, until, want int64 }{
		{0, 24, 12},   // from 3 to 15 ms; 18 to 21 is too short
		{6, 9, 3},     // within
		{16, 26, 0},   // between
		{0, 42, 27},   // and from 27 on
		{27, 31, 0},   // not for long enough yet
		{40, 100, 60}, // for as long as nothing else was seen
	} {
		got, err := w.dry(test.from*ms, test.until*ms)
		if err != nil || got != time.Duration(test.want*ms) {
			t.Errorf("from %d to %d ms: dry for %v, %v, want %d ms", test.from, test.until, got, err, test.want)
		}
	}
	unknown := &leafWatch{leaves: []leaf{{number: 16}}}
	unknown.look(ms, nil)
	if got, _ := unknown.dry(0, 100*ms); got != 0 {
		t.Errorf("a container without a class was dry for %v", got)
	}
}
