package traffic

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of /proc/stat, fixed for user space (proc(5)).
const userHZ = 100

// CPUTimes are times of all processors together. Idle and Stolen are the kernel's, Busy is the rest of the
// time that passed. The kernel's own sum of busy times is of little use: it samples what a processor does at
// each tick (CONFIG_TICK_CPU_ACCOUNTING), and stops the tick while a processor is idle. The interrupts
// and softirqs that wake it in between, which is where a queue that waits for its timer sends, are then in none of
// the times. Idle times are measured by the clock (kernel/time/tick-sched.c, get_cpu_idle_time_us).
type CPUTimes struct {
	Busy, Idle time.Duration
	// Stolen is for how long they had something to do and the machine that this
	// one is a guest of did something else.
	Stolen time.Duration
}

// Sub is what passed after from.
func (t CPUTimes) Sub(from CPUTimes) CPUTimes {
	return CPUTimes{Busy: t.Busy - from.Busy, Idle: t.Idle - from.Idle, Stolen: t.Stolen - from.Stolen}
}

// Total is all the time, of all processors together.
func (t CPUTimes) Total() time.Duration { return t.Busy + t.Idle + t.Stolen }

// BusyFraction is what part of all the time was busy, from 0 to 1.
func (t CPUTimes) BusyFraction() float64 { return t.fraction(t.Busy) }

// StolenFraction is what part of all the time was stolen, from 0 to 1.
func (t CPUTimes) StolenFraction() float64 { return t.fraction(t.Stolen) }

func (t CPUTimes) fraction(part time.Duration) float64 {
	return float64(part) / float64(max(t.Total(), 1))
}

// ReadCPUTimes reads the times since some moment, which is the same in each call: only differences mean something.
func ReadCPUTimes() (CPUTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUTimes{}, fmt.Errorf("read CPU times: %w", err)
	}
	return parseCPUTimes(string(text), time.Since(began))
}

var began = time.Now()

// parseCPUTimes reads the lines of /proc/stat for all processors and for each: user, nice, system, idle,
// iowait, irq, softirq, steal, and times that are counted among these as well. The rest of passed is busy.
func parseCPUTimes(text string, passed time.Duration) (times CPUTimes, err error) {
	const idle, ioWait, steal, count = 4, 5, 8, 9
	all, each, _ := strings.Cut(text, "\n")
	fields := strings.Fields(all)
	if len(fields) < count || fields[0] != "cpu" {
		return times, fmt.Errorf("read CPU times: unexpected line %q", all)
	}
	var read [count]time.Duration
	for _, i := range []int{idle, ioWait, steal} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return times, fmt.Errorf("read CPU times: %w", err)
		}
		read[i] = time.Duration(ticks) * time.Second / userHZ
	}
	for strings.HasPrefix(each, "cpu") {
		times.Busy += passed
		_, each, _ = strings.Cut(each, "\n")
	}
	times.Idle, times.Stolen = read[idle]+read[ioWait], read[steal]
	times.Busy -= times.Idle + times.Stolen
	return times, nil
}
