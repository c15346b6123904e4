//go:build netns

package repo

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// TestFullDisk: an image for which there is no room is refused, leaves nothing behind, and what
// was there before can still be had.
func TestFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount(testbed.MountName(), small, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r, err := Open(filepath.Join(small, "repository"))
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	before := push(t, r, "shop", noise[:100_000])
	kept := blobs(t, r)
	for _, name := range []string{"shop", "wiki"} { // in its place, and beside it
		if _, err := r.Push(spec.Spec{Name: name, Image: "nginx:1", MaxUsers: 50, Algorithm: spec.AlgorithmHybrid}, archive(t, noise), unused); err == nil ||
			!strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s is pushed onto a full disk: %v", name, err)
		}
	}
	whole, err := os.Open(archive(t, noise))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if path, err := r.Receive(whole); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("an archive is taken to %q: %v", path, err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, ".new-*")); len(left) > 0 || blobs(t, r) != kept {
		t.Errorf("%v and %d files are left, %d were there", left, blobs(t, r), kept)
	}
	for name, digest := range map[string]string{"shop": before.Digest, "wiki": ""} {
		if found, err := r.Find(name); found.Digest != digest || (err == nil) != (digest != "") {
			t.Errorf("%s is %+v, %v", name, found, err)
		}
	}
	if again := push(t, r, "wiki", noise[:50_000]); again.Service != "wiki" {
		t.Errorf("with room again: %+v", again)
	}
}
