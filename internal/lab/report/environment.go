package report

import (
	"fmt"
	"slices"
	"strings"
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

// fact is a line of a page's provenance.
type fact struct{ Name, Value string }

// facts returns the known facts, in the order of a page.
func (p Provenance) facts() []fact {
	e := p.Environment
	memory := ""
	if e.MemoryBytes > 0 {
		memory = fmt.Sprintf("%.1f GB", float64(e.MemoryBytes)/1e9)
	}
	seed := ""
	if p.Seed > 0 {
		seed = fmt.Sprint(p.Seed)
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
		{"Seed", seed},
		{"Runs", p.runs()},
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

// runs returns the number of runs and of repeated ones; empty for a computation.
func (p Provenance) runs() string {
	if p.Runs == 0 {
		return ""
	}
	return fmt.Sprintf("%d in %d interleaved rounds, medians of these. %s", p.Runs, p.Repeat, p.Pauses())
}

// Pauses says how often the machine disturbed runs.
func (p Provenance) Pauses() string {
	if p.PausesUnknown {
		return "Whether processors stood still meanwhile is not known: what watches them ended early."
	}
	text := "No run was done again because a processor stood still or others used it"
	if p.RepeatedRuns > 0 {
		text = fmt.Sprintf("%d runs were done again because a processor stood still or others used it, which no scheduler can make up for", p.RepeatedRuns)
	}
	if p.PausedRuns > 0 {
		text += fmt.Sprintf("; in %d that count one stood still as well", p.PausedRuns)
	}
	return text + "."
}
