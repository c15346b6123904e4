// Package machine describes the machine that a report's numbers are of.
package machine

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/report"
)

// Read describes this machine and this build of weir. What cannot be found out is
// report.Unknown.
func Read(weirVersion string) report.Environment {
	e := report.Environment{
		Machine:  name(),
		CPUs:     runtime.NumCPU(),
		CPUModel: cpuModel(contents("/proc/cpuinfo")),
		Arch:     runtime.GOARCH,
		Kernel:   report.Unknown,
		TCP:      contents("/proc/sys/net/ipv4/tcp_congestion_control"),
		Weir:     weirVersion,
		Go:       runtime.Version(),
	}
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		e.Kernel = unix.ByteSliceToString(uname.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.MemoryBytes = uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // 32 bits on arm
	}
	return e
}

// contents of a small file of one value.
func contents(path string) string {
	text, err := os.ReadFile(path)
	if trimmed := strings.Trim(string(text), " \n\x00"); err == nil && trimmed != "" {
		return trimmed
	}
	return report.Unknown
}

// name returns the firmware's name of the machine: boards have a device tree, PCs and guests
// DMI.
func name() string {
	if model := contents("/proc/device-tree/model"); model != report.Unknown {
		return model
	}
	vendor, product := contents("/sys/class/dmi/id/sys_vendor"), contents("/sys/class/dmi/id/product_name")
	if vendor == report.Unknown || strings.HasPrefix(product, vendor) {
		return product
	}
	return vendor + " " + product
}

// cpuModel returns the first name of a processor in /proc/cpuinfo: x86 calls it "model name",
// ARM names the board.
func cpuModel(cpuinfo string) string {
	for _, key := range []string{"model name", "Model", "Hardware"} {
		for line := range strings.Lines(cpuinfo) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
	}
	return report.Unknown
}
