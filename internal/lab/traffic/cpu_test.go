package traffic

import (
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

func TestParseCPUTimes(t *testing.T) {
	times, err := parseCPUTimes("cpu  100 10 200 5000 700 3 7 50 9 9\ncpu0 1 2\ncpu1 3 4\nintr 1\n", time.Minute)
	want := CPUTimes{Busy: 62500 * time.Millisecond, Idle: 57 * time.Second, Stolen: 500 * time.Millisecond}
	if err != nil || times != want {
		t.Errorf("got %+v, %v; want %+v", times, err, want)
	}
	if _, err := parseCPUTimes("intr 1 2 3", time.Minute); err == nil {
		t.Error("read CPU times from another line")
	}
}

// TestReadCPUTimes: a processor that does nothing but count is busy.
func TestReadCPUTimes(t *testing.T) {
	const counting, resolution = 200 * time.Millisecond, 20 * time.Millisecond
	from, err := ReadCPUTimes()
	must.Succeed(t, err)
	for start := time.Now(); time.Since(start) < counting; {
	}
	until, err := ReadCPUTimes()
	must.Succeed(t, err)
	if passed := until.Sub(from); passed.Busy+passed.Stolen < counting-resolution {
		t.Errorf("%+v passed while one processor counted for %v", passed, counting)
	}
}

func TestCPUFractions(t *testing.T) {
	from := CPUTimes{Busy: time.Hour, Idle: time.Hour, Stolen: time.Hour}
	until := CPUTimes{Busy: time.Hour + 2*time.Second, Idle: time.Hour + 5*time.Second, Stolen: time.Hour + time.Second}
	passed := until.Sub(from)
	if busy, stolen := passed.BusyFraction(), passed.StolenFraction(); busy != 0.25 || stolen != 0.125 {
		t.Errorf("%v busy and %v stolen, want 2 and 1 of 8 seconds", busy, stolen)
	}
	if got := (CPUTimes{}).BusyFraction(); got != 0 {
		t.Errorf("%v busy of no time", got)
	}
}
