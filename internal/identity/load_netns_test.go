//go:build netns

package identity

import (
	"bytes"
	"embed"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

//go:embed *_bpfel.o
var objectFiles embed.FS

// TestProgramsLoad: the kernel accepts every program of this package.
func TestProgramsLoad(t *testing.T) {
	arch := map[string]string{"amd64": "x86", "arm64": "arm64"}[runtime.GOARCH]
	entries, err := objectFiles.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name, ours := strings.CutSuffix(entry.Name(), "_"+arch+"_bpfel.o")
		if !ours {
			continue
		}
		t.Run(name, func(t *testing.T) {
			object, err := objectFiles.ReadFile(entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
			if err != nil {
				t.Fatal(err)
			}
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
