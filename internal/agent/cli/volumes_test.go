package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func TestNetworkMounts(t *testing.T) {
	const local = "23 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\n24 28 short - ext4\n25 28 0:3 / /a rw -\n"
	for text, want := range map[string]string{
		"": "", local: "",
		local + "90 28 0:50 / /var/lib/docker/volumes/nas/_data rw shared:1 master:2 - nfs4 nas:/x rw\n91 28 0:51 / /mnt rw - cifs //nas/y rw\n": "/var/lib/docker/volumes/nas/_data (nfs4), /mnt (cifs)",
	} {
		path, got := filepath.Join(t.TempDir(), "mountinfo"), ""
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
		if err := networkMounts(path); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
