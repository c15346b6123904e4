package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestIsRoot: a kernel of 32 bits has a generation, which begins with 1, above the inode number.
func TestIsRoot(t *testing.T) {
	const generation = 1 << 32
	for id, want := range map[uint64]bool{1: true, generation | 1: true, 2: false, generation: false, generation | 2: false, 2*generation | 11: false} {
		if got := isRoot(id); got != want {
			t.Errorf("%#x: got %v", id, got)
		}
	}
}

func TestCgroupElsewhere(t *testing.T) {
	const here, there = "net:[1]", "net:[2]"
	p := procTree{t, t.TempDir()}
	p.process(10, "", []string{here}, nil, "mnt:[1]", "")
	p.process(20, "", []string{there}, nil, "mnt:[1]", "")
	p.process(30, "", []string{"net:[3]"}, nil, "mnt:[1]", "")
	must.Succeed(t, os.Symlink("10", filepath.Join(p.dir, "self")))
	for _, test := range []struct {
		name         string
		above, below string // processes
		want         bool
	}{
		{"nobody", "", "", false},
		{"all elsewhere", "20\n30\n", "", true},
		{"all elsewhere, below", "", "20\n", true},
		{"one here", "20\n10\n30\n", "", false},
		{"one here, below", "20\n", "10\n", false},
		{"one here, above", "10\n", "20\n", false},
		{"one that ended", "40\n", "", false},
		{"one that ended, and one elsewhere", "40\n20\n", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			nested := filepath.Join(dir, "nested")
			must.Succeed(t, os.Mkdir(nested, 0o755))
			for path, processes := range map[string]string{dir: test.above, nested: test.below} {
				must.Succeed(t, os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(processes), 0o644))
			}
			if got := CgroupElsewhere(p.dir, dir); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if CgroupElsewhere(p.dir, filepath.Join(p.dir, "none")) {
		t.Error("a cgroup that is not there has processes elsewhere")
	}
}
