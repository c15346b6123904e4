package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestNetworkMounts: what can be written to and is sent by the kernel is found.
func TestNetworkMounts(t *testing.T) {
	const local = "23 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\n24 28 short - ext4\n25 28 0:3 / /a rw -\n"
	for text, want := range map[string][]string{
		"": nil, local: nil,
		local + "90 28 0:50 / /var/lib/docker/volumes/nas/_data rw shared:1 master:2 - nfs4 nas:/x rw\n" +
			"91 28 0:51 / /mnt rw - cifs //nas/y rw\n92 28 0:52 / /films ro,nosuid - nfs4 nas:/z rw\n": {"/var/lib/docker/volumes/nas/_data (nfs4)", "/mnt (cifs)"},
	} {
		path := filepath.Join(t.TempDir(), "mountinfo")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
		if got, err := NetworkMounts(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := NetworkMounts("/nowhere"); err == nil || len(got) > 0 {
		t.Errorf("no file: %q, %v", got, err)
	}
}
