package all

import "github.com/weir-project/weir/internal/lab/bench/netmodes"

// netmodesOnly returns the flags for the runs of a claim on network modes; empty for other sections, and for all runs.
func (s section) netmodesOnly(where string) string {
	if only := netmodes.OnlyOf(where); s.name == netmodes.Suite && only != "" {
		return " " + only
	}
	return ""
}
