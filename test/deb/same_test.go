//go:build release

package deb

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestSameBytes: another folder, and another user's way to it, make the same packages
// and the same image.
func TestSameBytes(t *testing.T) {
	copied := copyTree(t)
	// Both are for 64-bit ARM, which nothing else is built for in full.
	for _, made := range []struct{ script, arch string }{{"deb.sh", "arm64"}, {"image.sh", "arm64"}} {
		t.Run(made.script+" "+made.arch, func(t *testing.T) {
			if _, err := exec.LookPath("dpkg-deb"); err != nil && made.script == "deb.sh" {
				t.Skip("dpkg-deb is not installed: this is no Debian")
			}
			here := releaseIn(t, filepath.Join("..", ".."), made.script, made.arch)
			there := releaseIn(t, copied, made.script, made.arch)
			if len(here) != len(there) {
				t.Fatalf("they are called %s and %s", here, there)
			}
			for i := range here {
				one, err := os.ReadFile(here[i])
				must.Succeed(t, err)
				other, err := os.ReadFile(there[i])
				if filepath.Base(here[i]) != filepath.Base(there[i]) || err != nil || !bytes.Equal(one, other) {
					t.Errorf("%s has %d bytes, and other ones than %s with %d; %v", here[i], len(one), there[i], len(other), err)
				}
			}
		})
	}
}

// copyTree copies what git knows of this tree, without its history.
func copyTree(t *testing.T) string {
	t.Helper()
	root, to := filepath.Join("..", ".."), t.TempDir()
	listed, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git does not know this tree: %v", err)
	}
	copying := exec.CommandContext(t.Context(), "tar", "-C", root, "--create", "--null", "--files-from=-", "--ignore-failed-read", "--mode=go-w")
	copying.Stdin = bytes.NewReader(listed)
	archive, err := copying.Output()
	must.Succeed(t, err)
	unpacking := exec.CommandContext(t.Context(), "tar", "-C", to, "--extract")
	unpacking.Stdin = bytes.NewReader(archive)
	if out, err := unpacking.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// What packs it is pinned, and takes long to build.
	if packer, err := os.ReadFile(filepath.Join(root, "bin", "nfpm")); err == nil {
		must.Succeed(t, os.Mkdir(filepath.Join(to, "bin"), 0o755))
		must.Succeed(t, os.WriteFile(filepath.Join(to, "bin", "nfpm"), packer, 0o755))
	}
	return to
}

// releaseIn returns the released files.
func releaseIn(t *testing.T, root, script, arch string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(root, "scripts", script), arch)
	// Without history there is neither a version nor a time.
	command.Env = append(os.Environ(), "OUT="+t.TempDir(), "VERSION=1.2.3", "SOURCE_DATE_EPOCH=1700000000")
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said.String())
	}
	return strings.Fields(string(out))
}
