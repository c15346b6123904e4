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

// CPUTimes are times of all processors together. Every moment of each is in one
// of them.
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

// ReadCPUTimes reads the times since boot.
func ReadCPUTimes() (CPUTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUTimes{}, fmt.Errorf("read CPU times: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return parseCPUTimes(line)
}

// parseCPUTimes reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal, and times that are counted among these as well.
func parseCPUTimes(line string) (times CPUTimes, err error) {
	const idle, ioWait, steal, count = 3, 4, 7, 8
	fields := strings.Fields(line)
	if len(fields) < 1+count || fields[0] != "cpu" {
		return times, fmt.Errorf("read CPU times: unexpected line %q", line)
	}
	for i, field := range fields[1 : 1+count] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return times, fmt.Errorf("read CPU times: %w", err)
		}
		value := time.Duration(ticks) * time.Second / userHZ
		switch i {
		case idle, ioWait:
			times.Idle += value
		case steal:
			times.Stolen = value
		default:
			times.Busy += value
		}
	}
	return times, nil
}
