package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestLeaseIdentity: two weir-edge on hosts of one name, with the same folder, have two identities, and each keeps its own.
func TestLeaseIdentity(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "edge")
	identify := func() string {
		must.Succeed(t, os.MkdirAll(folder, 0o700))
		made, err := leaseIdentity(folder)
		must.Succeed(t, err)
		return made
	}
	first := identify()
	if again := identify(); again != first {
		t.Errorf("it was %q, and is %q after a restart", first, again)
	}
	must.Succeed(t, os.Rename(folder, filepath.Join(dir, "other host")))
	if second := identify(); second == first {
		t.Errorf("both are %q", first)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(folder, numberFile), nil, 0o600))
	if after, again := identify(), identify(); len(after) != len(first) || again != after {
		t.Errorf("after an empty file it is %q, then %q", after, again)
	}
	if _, err := leaseIdentity(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that is missing has a number")
	}
}
