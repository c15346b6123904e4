//go:build netns

package meter

import (
	"testing"

	"github.com/cilium/ebpf"
)

// TestProgramsLoad: the kernel accepts the program.
func TestProgramsLoad(t *testing.T) {
	spec, err := loadMeter()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	loaded.Close()
}
