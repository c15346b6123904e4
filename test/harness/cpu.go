package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// starvedPercent is how much of the time some task may wait for a processor
// before a measurement counts as starved.
const starvedPercent = 60

// cpuWatch tells how short of processor time the machine is from its making
// on.
type cpuWatch struct {
	began           time.Time
	pressureMicros  uint64
	stolen, elapsed uint64 // in ticks
}

func watchCPU() cpuWatch {
	w := cpuWatch{began: time.Now(), pressureMicros: pressureMicros()}
	w.stolen, w.elapsed = stolenTicks()
	return w
}

// String says what happened since the watch began.
func (w cpuWatch) String() string {
	waited := 100 * float64(pressureMicros()-w.pressureMicros) / float64(time.Since(w.began).Microseconds())
	stolen, elapsed := stolenTicks()
	stolenPercent := 100 * float64(stolen-w.stolen) / float64(max(elapsed-w.elapsed, 1))
	verdict := "enough"
	if waited > starvedPercent || stolenPercent > 5 {
		verdict = "STARVED, the machine did too much else"
	}
	load, _, _ := strings.Cut(readFile("/proc/loadavg"), " ")
	return fmt.Sprintf("%s (tasks waited %.0f %% of the time, %.0f %% stolen, load %s)", verdict, waited, stolenPercent, load)
}

// pressureMicros is for how long, since boot, some task has waited.
func pressureMicros() uint64 {
	_, total, _ := strings.Cut(readFile("/proc/pressure/cpu"), "total=")
	text, _, _ := strings.Cut(total, "\n")
	value, _ := strconv.ParseUint(text, 10, 64) // 0 without CONFIG_PSI
	return value
}

// stolenTicks reads how much processor time a hypervisor took, and how much
// there was.
func stolenTicks() (stolen, elapsed uint64) {
	line, _, _ := strings.Cut(readFile("/proc/stat"), "\n")
	for i, field := range strings.Fields(line) {
		value, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			continue
		}
		const stealField = 8 // proc(5), "cpu" being field 0
		if i == stealField {
			stolen = value
		}
		if i <= stealField {
			elapsed += value
		}
	}
	return stolen, elapsed
}

func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
