package meter

import (
	"testing"

	"github.com/cilium/ebpf"
)

func TestCounterMatchesTheProgram(t *testing.T) {
	spec, err := loadMeter()
	if err != nil {
		t.Fatal(err)
	}
	if size := spec.Maps["totals"].ValueSize; size != counterBytes {
		t.Errorf("struct counter has %d bytes, Go reads %d", size, counterBytes)
	}
	if program := spec.Programs[programName]; program == nil || program.Type != ebpf.SchedCLS {
		t.Errorf("there is no tc program named %s", programName)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for _, options := range []Options{
		{Interface: "lo", BasePort: 5200, Slots: 0},
		{Interface: "lo", BasePort: 65535, Slots: 2},
		{Interface: "lo", BasePort: 5200, Slots: 1, Bins: 10},
	} {
		if m, err := New(options); err == nil {
			t.Errorf("New(%+v) succeeded", options)
			m.Close()
		}
	}
}
