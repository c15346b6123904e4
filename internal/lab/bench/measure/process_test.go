package measure

import (
	"os"
	"os/exec"
	"slices"
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

// TestMemoryOfAFamily: what a process and its child hold is counted, anonymous and file pages apart.
func TestMemoryOfAFamily(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	family, err := Family(os.Getpid())
	if err != nil || family[0] != os.Getpid() || !slices.Contains(family, child.Process.Pid) {
		t.Fatalf("the family of %d is %d, %v; want its child %d", os.Getpid(), family, err, child.Process.Pid)
	}
	one, err := MemoryOf([]int{child.Process.Pid})
	for deadline := time.Now().Add(10 * time.Second); err == nil && one.File == 0 && time.Now().Before(deadline); { // it has just started
		time.Sleep(time.Millisecond)
		one, err = MemoryOf([]int{child.Process.Pid})
	}
	if err != nil || one.File == 0 || one.BPF != 0 {
		t.Fatalf("the child has %+v, %v", one, err)
	}
	const bytes = 64 << 20
	before, err := MemoryOf([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	held, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	after, err := MemoryOf([]int{os.Getpid(), child.Process.Pid})
	if unmapped := unix.Munmap(held); unmapped != nil {
		t.Fatal(unmapped)
	}
	if grown := int64(after.Anonymous) - int64(before.Anonymous); err != nil || grown < bytes/2 {
		t.Errorf("%d bytes more of no file, of %d, %v", grown, bytes, err)
	}
	if after.File < one.File || after.Sum() != after.Anonymous+after.File+after.BPF {
		t.Errorf("%+v without the child's %+v", after, one)
	}
	if _, err := MemoryOf([]int{1 << 23}); err == nil {
		t.Error("a process that cannot be has memory")
	}
}
