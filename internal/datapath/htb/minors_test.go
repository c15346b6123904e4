package htb

import (
	"testing"

	"github.com/weir-project/weir/internal/share/sched"
)

// Where packets of a class go is told once, when its classes are there, and again to
// a classifier that was attached anew.
func TestMinorsAreTold(t *testing.T) {
	b := newBed(t, 100e6)
	// What the number's last holder had.
	b.traffic.minors[16] = sched.Minors{0, 77, 78, 79}
	b.kernel.onApply = func() {
		if b.traffic.minors[16] == (sched.Minors{}) {
			t.Error("told of a class that is not there")
		}
	}
	m := b.start()
	b.kernel.onApply = nil
	if got := b.traffic.minors[m.want.Number]; got != minorsOf(&m.want) {
		t.Errorf("the classifier knows %v", got)
	}
	told := b.traffic.told
	b.change(m, maximum(10e6))
	b.reconcile()
	if b.traffic.told != told {
		t.Errorf("told %d times more", b.traffic.told-told)
	}
	if err := b.Connect(b.tree, b.traffic); err != nil || b.traffic.told != told {
		t.Errorf("told before anything was applied; error %v", err)
	}
	b.reconcile()
	if b.traffic.told != told+2 { // the host, too
		t.Errorf("a new classifier was told %d times", b.traffic.told-told)
	}
}
