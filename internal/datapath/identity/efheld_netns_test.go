//go:build netns

package identity

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// What was left behind long ago, or at a lower rate, does not hold EF off.
func TestEFIsNotHeldOff(t *testing.T) {
	b := newBed(t)
	ns := b.bridgeContainer("one")
	b.assign(ns, v1.ModeBridge, NumberFirst)
	b.tree("1gbit", 1<<20, NumberHost, NumberControl, NumberFirst)
	target := b.targets()[0]
	want := frameBytes(target)
	must.Succeed(t, b.uplink.SetTrafficClass(NumberFirst, sched.EF))
	must.Succeed(t, b.uplink.SetEFRate(NumberFirst, 1e9))
	now := func() uint64 {
		var ts unix.Timespec
		must.Succeed(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
		return uint64(ts.Nano())
	}
	leave := func(left uplinkWeirClassActivity) {
		t.Helper()
		must.Succeed(t, b.uplink.classes.activities.Update(uint32(NumberFirst), left, ebpf.UpdateExist))
	}
	sent := func() ClassOffered {
		t.Helper()
		offered, err := b.uplink.ClassOffered(NumberFirst)
		must.Succeed(t, err)
		return offered
	}
	send := func() { b.sendIn(ns, target, 0) }

	var old uplinkWeirClassActivity
	for i := range old.EfExcessUntilMs { // from a month ago
		old.EfExcessUntilMs[i] = uint32(now()/1e6) + 1<<30
	}
	leave(old)
	b.expect("after a month", NumberFirst, want, send)
	if got := sent(); got.Bytes[sched.EF] != want {
		t.Errorf("offered %+v: want all %d bytes to be EF", got, want)
	}

	leave(uplinkWeirClassActivity{EfDue: now() + 60e9})
	b.expect("with a debt", NumberFirst, want, send)
	time.Sleep(500 * time.Millisecond) // its flow is held off for half of that
	b.expect("after the debt", NumberFirst, want, send)
	if got := sent(); got.Bytes[sched.EF] < want/2 {
		t.Errorf("offered %+v: EF still owes what it did at a lower rate", got)
	}
}
