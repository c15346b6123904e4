//go:build deb || docker || release

package deb

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
)

const buildTimeout = 5 * time.Minute

// programs are those that have a package each.
var programs = []string{"weir", "weir-edge", "weir-sdn", "weir-k8s", "weir-lab"}

// release runs a script of scripts/ for a version, of the repository if that is empty, and
// returns the folder of the released files.
func release(t *testing.T, script, version string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	out, err := testbed.MakeTempDir()
	if err != nil {
		t.Fatal(err)
	}
	folders = append(folders, out)
	command := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", script))
	command.Env = append(os.Environ(), "OUT="+out)
	if version != "" {
		command.Env = append(command.Env, "VERSION="+version)
	}
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said)
	}
	return out
}

// fileIn returns the one file in a folder that matches a pattern.
func fileIn(t *testing.T, folder, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, folder, files, err)
	}
	return files[0]
}

var (
	// folders are removed in the end.
	folders []string
	// built are folders of packages by version, shared by the tests.
	built = map[string]string{}
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, path := range folders {
		_ = os.RemoveAll(path)
	}
	os.Exit(code)
}

// build returns the package of a program in a version.
func build(t *testing.T, version, program string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed: this is no Debian")
	}
	if built[version] == "" {
		built[version] = release(t, "deb.sh", version)
	}
	return fileIn(t, built[version], program+"_*.deb")
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, said)
	}
	return string(said)
}
