package cli

import (
	"fmt"
	"testing"

	"github.com/weir-project/weir/packaging"
)

// The unit gives the agent what it may not take itself there.
func TestPriorityOfTheUnit(t *testing.T) {
	for key, want := range map[string]int{"Nice": niceness, "TimerSlackNSec": timerSlackNanoseconds} {
		if value, err := packaging.Setting(key); err != nil || value != fmt.Sprint(want) {
			t.Errorf("%s is %q, want %d (%v)", key, value, want, err)
		}
	}
}
