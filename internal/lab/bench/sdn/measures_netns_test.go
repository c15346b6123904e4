//go:build netns

package sdn

import (
	"io"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// TestMeasures: the switches that are played get answers from the real controller, and all
// that the report has of it is plausible. What is fast enough is not for a test to say.
func TestMeasures(t *testing.T) {
	t.Parallel()
	const switches = 4
	options := Options{Switches: switches, RunOptions: measure.RunOptions{Duration: 300 * time.Millisecond, WeirBinary: harness.Program(t), Progress: io.Discard}}
	found, err := Run(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Controllers) == 0 || found.Suite != Suite || found.Switches != switches || len(found.Verdicts) != 3 || len(found.Tables) == 0 {
		t.Fatalf("%+v", found)
	}
	weir := found.Controllers[0]
	t.Logf("%+v", weir)
	// Every packet-in is of a new flow, which gets an entry and is passed on.
	if weir.PacketInsPerSecond < 100 || weir.FlowModsPerSecond < 0.5*weir.PacketInsPerSecond {
		t.Errorf("%.0f packet-ins a second, with %.0f entries", weir.PacketInsPerSecond, weir.FlowModsPerSecond)
	}
	if weir.CPUSeconds < 0 || weir.LoadCPUSeconds <= 0 {
		t.Errorf("%.2f s of a processor a second, the load %.2f", weir.CPUSeconds, weir.LoadCPUSeconds)
	}
	if weir.HalfP50MS <= 0 || weir.HalfP99MS < weir.HalfP50MS {
		t.Errorf("delays of %.3f ms (median) and %.3f ms (p99)", weir.HalfP50MS, weir.HalfP99MS)
	}
	if weir.ResidentBytes < 5e6 || weir.ResidentBytes > 300e6 {
		t.Errorf("%d bytes resident", weir.ResidentBytes)
	}

	for _, number := range []int{0, 1001} {
		options.Switches = number
		if _, err := Run(t.Context(), options); err == nil {
			t.Errorf("%d switches were played", number)
		}
	}
}
