//go:build netns

package identity

import (
	"bytes"
	"embed"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

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
			options := optionsFor(spec)
			loaded, err := ebpf.NewCollectionWithOptions(spec, options)
			if errors.Is(err, ebpf.ErrNotSupported) && options.Programs.KernelTypes == nil {
				t.Skip("the kernel tells no types, which this program reads:", err)
			}
			if err != nil {
				t.Fatalf("%+v", err)
			}
			loaded.Close()
		})
	}
}

// TestProgramsLoadWithoutTypes: programs that are changed for a kernel without types of its own load, too. This
// kernel has them, and still takes what the mark says: without it a pointer to anything is no argument.
func TestProgramsLoadWithoutTypes(t *testing.T) {
	const linux6_8 = 6<<16 | 8<<8
	if version, err := features.LinuxVersionCode(); err != nil || version < linux6_8 {
		t.Skip("before Linux 6.8 the kernel knows no such mark", err)
	}
	for name, read := range map[string]func() (*ebpf.CollectionSpec, error){"uplink": loadUplink, "flow": loadFlow, "answer": loadAnswer, "incoming": loadIncoming} {
		t.Run(name, func(t *testing.T) {
			spec, err := read()
			must.Succeed(t, err)
			delete(spec.Programs, uplinkProgWeirUplink) // reads the kernel's structures
			tagPackets(spec)
			loaded, err := ebpf.NewCollectionWithOptions(spec, loadOptions())
			if err != nil {
				t.Fatalf("%+v", err)
			}
			loaded.Close()
		})
	}
}
