//go:build netns

package identity

import (
	"bytes"
	"embed"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/test/must"
)

//go:embed *_bpfel.o
var objectFiles embed.FS

// TestProgramsLoad: the kernel accepts every program of this package.
func TestProgramsLoad(t *testing.T) {
	entries, err := objectFiles.ReadDir(".")
	must.Succeed(t, err)
	if len(entries) == 0 {
		t.Error("there are no objects")
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), "_bpfel.o")
		t.Run(name, func(t *testing.T) {
			object, err := objectFiles.ReadFile(entry.Name())
			must.Succeed(t, err)
			spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
			must.Succeed(t, err)
			if len(spec.Programs) == 0 {
				t.Error("there is no program in it")
			}
			if name == "uplink" {
				if err := ProbeDirect(); errors.Is(err, ebpf.ErrNotSupported) {
					t.Logf("without the one that sees whether somebody waits: %v", err)
					delete(spec.Programs, uplinkProgWeirUplink)
				}
			}
			loaded, err := ebpf.NewCollectionWithOptions(spec, loadOptions())
			if err != nil {
				t.Fatalf("%+v", err)
			}
			loaded.Close()
		})
	}
}
