package report

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Unknown stands for what could not be found out: a report is worth having
// without it.
const Unknown = "unknown"

// Environment is the machine and the versions. Empty is what a command has no
// use for.
type Environment struct {
	Machine     string `json:"machine"`
	CPUs        int    `json:"cpus"`
	CPUModel    string `json:"cpu_model"`
	Arch        string `json:"arch"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	// TCP is the congestion control of senders: the machine's default.
	TCP  string `json:"tcp"`
	Weir string `json:"weir"`
	Go   string `json:"go"`
	// Containers is what stood for them: "docker VERSION" or "network namespaces".
	Containers string `json:"containers,omitempty"`
	TC         string `json:"tc,omitempty"`
}

// ReadEnvironment describes this machine and this build of weir.
func ReadEnvironment(weirVersion string) Environment {
	e := Environment{
		Machine:  machine(),
		CPUs:     runtime.NumCPU(),
		CPUModel: cpuModel(contents("/proc/cpuinfo")),
		Arch:     runtime.GOARCH,
		Kernel:   Unknown,
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
	return Unknown
}

// machine is what the firmware calls it: boards have a device tree, PCs and
// guests DMI.
func machine() string {
	if model := contents("/proc/device-tree/model"); model != Unknown {
		return model
	}
	vendor, product := contents("/sys/class/dmi/id/sys_vendor"), contents("/sys/class/dmi/id/product_name")
	if vendor == Unknown || strings.HasPrefix(product, vendor) {
		return product
	}
	return vendor + " " + product
}

// cpuModel is the first name that /proc/cpuinfo has for a processor: x86 calls
// it "model name", ARM says what the board is.
func cpuModel(cpuinfo string) string {
	for _, key := range []string{"model name", "Model", "Hardware"} {
		for line := range strings.Lines(cpuinfo) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				return strings.TrimSpace(value)
			}
		}
	}
	return Unknown
}

// fact is a line of a page's provenance.
type fact struct{ Name, Value string }

// facts are all that is known, in the order of a page.
func (p Provenance) facts() []fact {
	e := p.Environment
	memory := ""
	if e.MemoryBytes > 0 {
		memory = fmt.Sprintf("%.1f GB", float64(e.MemoryBytes)/1e9)
	}
	facts := []fact{
		{"Command", p.Command},
		{"Weir", strings.TrimSpace(e.Weir + ", " + e.Go)},
		{"Machine", e.Machine},
		{"Processor", fmt.Sprintf("%d x %s (%s)", e.CPUs, e.CPUModel, e.Arch)},
		{"Memory", memory},
		{"Kernel", e.Kernel},
		{"Congestion control", e.TCP},
		{"tc", e.TC},
		{"Containers", e.Containers},
		{"Seed", fmt.Sprint(p.Seed)},
		{"Runs", p.runs()},
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

// runs says how many there were, and how many of them again; nothing for what
// is not run.
func (p Provenance) runs() string {
	if p.Runs == 0 {
		return ""
	}
	return fmt.Sprintf("%d in %d interleaved rounds, medians of these. %s", p.Runs, p.Repeat, p.Pauses())
}

// Pauses says what the machine's pauses mean for the numbers.
func (p Provenance) Pauses() string {
	if p.PausesUnknown {
		return "Whether processors stood still meanwhile is not known: what watches them ended early."
	}
	text := "No run was done again because a processor stood still"
	if p.RepeatedRuns > 0 {
		text = fmt.Sprintf("%d runs were done again because a processor stood still, which no scheduler can make up for", p.RepeatedRuns)
	}
	if p.PausedRuns > 0 {
		text += fmt.Sprintf("; in %d that count one did so as well", p.PausedRuns)
	}
	return text + "."
}
