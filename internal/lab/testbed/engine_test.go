package testbed

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWriteRootFS(t *testing.T) {
	if _, err := os.Stat(busyboxPath); err != nil {
		t.Skip("needs busybox-static")
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	// /bin/sh is dynamically linked, and takes the place of busybox's link.
	if err := writeRootFS(&archive, map[string]string{"opt/a/script": script, "/bin/sh": "/bin/sh"}); err != nil {
		t.Fatal(err)
	}
	types := make(map[string]byte)
	for r := tar.NewReader(&archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(header.Name, "/")
		if types[name] != 0 {
			t.Errorf("%s is there twice", name)
		}
		if dir := path.Dir(name); dir != "." && types[dir] != tar.TypeDir {
			t.Errorf("%s comes before its directory", name)
		}
		types[name] = header.Typeflag
	}
	for name, want := range map[string]byte{
		"opt/a/script": tar.TypeReg, "bin/busybox": tar.TypeReg, "bin/sh": tar.TypeReg,
		"bin/sleep": tar.TypeSymlink, "tmp": tar.TypeDir,
	} {
		if types[name] != want {
			t.Errorf("%s has type %q, want %q", name, types[name], want)
		}
	}
	if libraries, dynamic, err := sharedLibraries("/bin/sh"); err != nil {
		t.Error(err)
	} else if dynamic {
		for _, library := range libraries {
			if types[library[1:]] != tar.TypeReg {
				t.Errorf("%s is missing", library)
			}
		}
	}
	// A shared object is no program, and is linked with libraries as well.
	if libraries, _, err := sharedLibraries("/bin/sh"); err == nil && len(libraries) > 0 {
		i := slices.IndexFunc(libraries, func(l string) bool { return strings.HasPrefix(path.Base(l), "libc.") })
		if i < 0 {
			t.Fatalf("/bin/sh has no C library: %q", libraries)
		}
		object := path.Join(path.Dir(libraries[i]), "libm.so.6")
		if _, err := os.Stat(object); err == nil {
			if needed, dynamic, err := sharedLibraries(object); err != nil || !dynamic || !slices.Contains(needed, libraries[i]) {
				t.Errorf("%s needs %q: %v", object, needed, err)
			}
		}
	}
	if err := writeRootFS(io.Discard, map[string]string{"/x": "/none/such"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a binary that does not exist: %v", err)
	}
}

func TestParseLDD(t *testing.T) {
	const out = `	linux-vdso.so.1 (0x00007ffd4a5f2000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
	libgone.so => not found
	/lib64/ld-linux-x86-64.so.2 (0x00007f0000400000)
`
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if got := parseLDD(out); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseLDD(f *testing.F) {
	f.Add("\ta => /b/../c (0x1)\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, library := range parseLDD(out) {
			if !path.IsAbs(library) || path.Clean(library) != library {
				t.Errorf("parseLDD(%q) has %q", out, library)
			}
		}
	})
}

func TestMakeDirRefusesWhatTheEngineCovers(t *testing.T) {
	for dir, want := range map[string]string{"/run": "below /run", "/etc": "below /etc", "/var/lib": "below /var/lib"} {
		if made, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), want) {
			os.RemoveAll(made)
			t.Errorf("makeDir(%s): %v", dir, err)
		}
	}
	parent := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(parent); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a long path: %v", err)
	}
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
