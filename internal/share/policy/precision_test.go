package policy_test

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// A less exact precision lets packets hold the uplink for longer, and each is read as it is written.
func TestPrecision(t *testing.T) {
	last := time.Duration(-1)
	for _, p := range []v1.Precision{v1.PrecisionExact, v1.PrecisionBalanced, v1.PrecisionLow} {
		held := policy.PacketTime(p)
		if held <= last {
			t.Errorf("with %s a packet holds the uplink for %v, with the one before for %v", p, held, last)
		}
		last = held
		if read, err := policy.ParsePrecision(string(p)); read != p || err != nil {
			t.Errorf("%s is read as %s, %v", p, read, err)
		}
	}
	for _, text := range []string{"", "fine", "Low"} {
		if _, err := policy.ParsePrecision(text); err == nil || !strings.Contains(err.Error(), "exact, balanced or low") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
