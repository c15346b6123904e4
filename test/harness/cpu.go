package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// starvedPercent is how much of the time some task may wait for a processor
// before a measurement counts as starved.
const starvedPercent = 60

// cpuWatch tells how short of processor time the machine is from its making
// on.
type cpuWatch struct {
	began          time.Time
	pressureMicros uint64
	times          traffic.CPUTimes
}

func watchCPU() cpuWatch {
	times, _ := traffic.ReadCPUTimes() // what it prints is all that depends on it
	return cpuWatch{began: time.Now(), pressureMicros: pressureMicros(), times: times}
}

// shortage returns for which part of the time since the watch began some task waited, and which part
// of the processors' time was stolen, in percent, and whether that counts as starved.
func (w cpuWatch) shortage() (waited, stolen float64, starved bool) {
	waited = 100 * float64(pressureMicros()-w.pressureMicros) / float64(time.Since(w.began).Microseconds())
	times, _ := traffic.ReadCPUTimes()
	stolen = 100 * times.Sub(w.times).StolenFraction()
	return waited, stolen, waited > starvedPercent || stolen > 5
}

// String says what happened since the watch began.
func (w cpuWatch) String() string {
	waited, stolenPercent, starved := w.shortage()
	verdict := "enough"
	if starved {
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

func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
