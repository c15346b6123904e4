//go:build netns

package netns

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/harness"
)

// leafQueue is the line of a container's queue. Which kind it has depends on
// the kernel (fq_codel where there is one).
var leafQueue = regexp.MustCompile(`(?m)^qdisc (?:bfifo|fq_codel) (10|11|12|1): parent (\S+) .*$`)

// references are one more than the device has queues: one for each processor.
var references = regexp.MustCompile(`refcnt \d+`)

// TestKernelStateGolden compares the whole of what a small set-up puts into
// the kernel with what a human has read and found right.
func TestKernelStateGolden(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("plain", nil)
	b.Add("guaranteed", labels("min", "20mbit", "weight", "200"))
	b.Add("limited", labels("max", "8mbit", "priority", "10"))
	b.StartAgent(harness.AgentOptions{})
	var lines []string
	for line := range strings.Lines(tcConfig(b)) {
		if strings.HasPrefix(line, "qdisc clsact ") {
			continue // where the programs hang on kernels without tcx
		}
		line = leafQueue.ReplaceAllString(strings.TrimSpace(line), "qdisc LEAF $1: parent $2")
		lines = append(lines, references.ReplaceAllString(line, "refcnt N"))
	}
	slices.Sort(lines) // the kernel lists classes by hash
	programs := bpfPrograms(t, b)
	slices.Sort(programs)
	got := strings.Join(append(lines, programs...), "\n") + "\n"

	golden.Compare(t, filepath.Join("testdata", "kernel-state.golden"), got)
}
