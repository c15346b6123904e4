package machine

import (
	"testing"

	"github.com/weir-project/weir/internal/lab/report"
)

func TestCPUModel(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: Intel X @ 2 GHz\nmodel name\t: other\n":      "Intel X @ 2 GHz",
		"processor\t: 0\nCPU part\t: 0xd08\n\nHardware\t: BCM2835\nModel\t: Pi 4\n": "Pi 4",
		"processor\t: 0\n": report.Unknown,
	} {
		if got := cpuModel(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEnvironmentOfThisMachine(t *testing.T) {
	e := Read("v1")
	if e.Weir != "v1" || e.CPUs < 1 || e.MemoryBytes < 1e6 || e.Kernel == report.Unknown || e.Machine == "" || e.TCP == "" {
		t.Errorf("%+v", e)
	}
}
