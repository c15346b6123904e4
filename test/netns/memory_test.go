//go:build netns

package netns

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/test/must"
)

// TestMemoryOfMaps: a BPF map that a process has open is counted, once for all processes that have it.
func TestMemoryOfMaps(t *testing.T) {
	const entries, bytes = 64, 4096
	self := os.Getpid()
	before, err := measure.MemoryOf([]int{self})
	must.Succeed(t, err)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: bytes, MaxEntries: entries})
	must.Succeed(t, err)
	defer m.Close()
	with, err := measure.MemoryOf([]int{self, self})
	must.Succeed(t, err)
	if grown := with.BPF - before.BPF; grown < entries*bytes || grown > entries*bytes*5/4 {
		t.Errorf("a map of %d bytes takes %d", entries*bytes, grown)
	}
}
