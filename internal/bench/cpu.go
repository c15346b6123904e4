package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of /proc/stat, fixed for user space (proc(5)).
const userHZ = 100

// cpuBusy is the time all CPUs have been busy since boot.
func cpuBusy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read CPU times: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return parseCPUBusy(line)
}

// parseCPUBusy reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, and times that are of other machines or counted twice.
func parseCPUBusy(line string) (time.Duration, error) {
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read CPU times: unexpected line %q", line)
	}
	var ticks int64
	for i, field := range fields[1:8] {
		value, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU times: %w", err)
		}
		if idle := i == 3 || i == 4; !idle {
			ticks += value
		}
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}
