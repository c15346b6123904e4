package measure

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessTimes burns processor time and finds it again.
func TestProcessTimes(t *testing.T) {
	self := os.Getpid()
	read := func() (processor, ran time.Duration) {
		processor, err := ProcessorTime(self)
		if err != nil {
			t.Fatal(err)
		}
		ran, _, err = ThreadTimes(self)
		if err != nil {
			t.Fatal(err)
		}
		return processor, ran
	}
	processor, ran := read()
	if ran == 0 {
		t.Skip("this kernel keeps no run times of threads (CONFIG_SCHED_INFO)")
	}
	burnt := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano()
	}
	for begin := burnt(); burnt()-begin < 50e6; {
	}
	processorAfter, ranAfter := read()
	for name, took := range map[string]time.Duration{"processor time": processorAfter - processor, "run time of threads": ranAfter - ran} {
		if took < 30*time.Millisecond || took > 5*time.Second {
			t.Errorf("found a %s of %v, of at least 50 ms", name, took)
		}
	}
}

func TestResidentBytes(t *testing.T) {
	now, peak, err := ResidentBytes(os.Getpid())
	if err != nil || now < 1<<20 || peak < now/2 {
		t.Errorf("%d bytes now, %d at most, %v", now, peak, err)
	}
	const nobody = 1 << 23 // more than the kernel's largest number of a process
	if _, _, err := ResidentBytes(nobody); err == nil {
		t.Error("there is a process that cannot be")
	}
	if _, err := ProcessorTime(nobody); err == nil {
		t.Error("it took processor time")
	}
	if _, _, err := ThreadTimes(nobody); err == nil {
		t.Error("it has threads")
	}
}
