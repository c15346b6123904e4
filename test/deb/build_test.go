//go:build deb || docker

// Package deb installs what is released, uses it and takes it away again: the Debian
// package and the image.
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

// release runs a script of scripts/ that prints the file that it has made, of a version; of
// the repository's if that is empty.
func release(t *testing.T, script, version string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	out := t.TempDir()
	command := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", script), args...)
	command.Env = append(os.Environ(), "OUT="+out)
	if version != "" {
		command.Env = append(command.Env, "VERSION="+version)
	}
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said)
	}
	for _, pattern := range []string{"*.deb", "*.tar"} {
		if files, err := filepath.Glob(filepath.Join(out, pattern)); err == nil && len(files) == 1 {
			return files[0]
		}
	}
	t.Fatalf("%s made nothing in %s", script, out)
	return ""
}

// built are packages by their versions: tests that only use one share it.
var built = map[string]string{}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, path := range built {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// build makes the package of a version.
func build(t *testing.T, version string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed: this is no Debian")
	}
	if built[version] == "" {
		dir, err := testbed.MakeTempDir()
		if err != nil {
			t.Fatal(err)
		}
		made := release(t, "deb.sh", version)
		built[version] = filepath.Join(dir, filepath.Base(made))
		if err := os.Rename(made, built[version]); err != nil {
			t.Fatal(err)
		}
	}
	return built[version]
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, said)
	}
	return string(said)
}
