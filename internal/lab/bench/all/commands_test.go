package all

import (
	"testing"

	"github.com/weir-project/weir/internal/lab/bench/netmodes"
)

// TestNetmodesCommands: a claim on network modes gets the modes and the link of its figure.
func TestNetmodesCommands(t *testing.T) {
	for _, test := range [][3]string{
		{netmodes.Suite, "figure 3, no limit", "bench --modes native,bridge --protocols tcp,udp --bytes 64,1024 --containers 1 --links none --agent without"},
		{netmodes.Suite, "", "bench"},
		{"other", "figure 3, no limit", "bench"},
	} {
		s := section{name: test[0], kind: kind{again: "bench"}}
		if got := s.command(Options{}, test[1]); got != test[2] {
			t.Errorf("%s, %s: %q, want %q", test[0], test[1], got, test[2])
		}
	}
}
