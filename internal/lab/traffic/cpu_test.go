package traffic

import (
	"testing"
	"time"
)

func TestParseCPUTimes(t *testing.T) {
	times, err := parseCPUTimes("cpu  100 10 200 5000 700 3 7 50 9 9")
	want := CPUTimes{Busy: 3200 * time.Millisecond, Idle: 57 * time.Second, Stolen: 500 * time.Millisecond}
	if err != nil || times != want {
		t.Errorf("got %+v, %v; want %+v", times, err, want)
	}
	if _, err := parseCPUTimes("intr 1 2 3"); err == nil {
		t.Error("read CPU times from another line")
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
