package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	a = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	b = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestParseMountInfo(t *testing.T) {
	for name, test := range map[string]struct {
		mounts string
		want   Mount
	}{
		"unified": {
			"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			Mount{"/sys/fs/cgroup", "/"},
		},
		"hybrid": {
			"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
			Mount{"/sys/fs/cgroup/unified", "/"},
		},
		"v1 only":      {"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", Mount{}},
		"in container": {"9 8 0:26 /../../.. /host\\040cgroup rw master:4 shared:1 - cgroup2 cgroup rw\n", Mount{"/host cgroup", "/../../.."}},
		"several": {
			"9 8 0:26 /docker/x /run/part rw - cgroup2 cgroup rw\n9 8 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n9 8 0:26 / /run/again rw - cgroup2 cgroup rw\n",
			Mount{"/sys/fs/cgroup", "/"},
		},
		"nothing": {"", Mount{}},
		"cut off": {"9 8 - cgroup2\n9 8 0:26 / /x rw -", Mount{}},
	} {
		if got := parseMountInfo(test.mounts); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestWholeHierarchy(t *testing.T) {
	const (
		proc    = "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"
		unified = "35 30 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for name, test := range map[string]struct{ mountinfo, want string }{
		"nothing":                   {"", ""},
		"version 1 only":            {proc + "36 35 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", ""},
		"unified":                   {proc + unified, "/sys/fs/cgroup"},
		"hybrid":                    {"36 35 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n42 35 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified"},
		"a part only":               {"35 30 0:30 /system.slice /mnt rw - cgroup2 cgroup2 rw\n", ""},
		"a part first":              {"35 30 0:30 /system.slice /mnt rw - cgroup2 cgroup2 rw\n" + unified, "/sys/fs/cgroup"},
		"above the cgroup's own":    {"35 30 0:30 /../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup"},
		"a name with a space":       {`35 30 0:30 / /mnt/c\040g rw - cgroup2 cgroup2 rw` + "\n", "/mnt/c g"},
		"no optional fields, short": {"35 30 0:30 / - cgroup2 cgroup2 rw\n", ""},
	} {
		if got, err := parseMountInfo(test.mountinfo).whole(); got != test.want || (err == nil) != (got != "") || err != nil && !errors.Is(err, ErrNoMount) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}

func TestOfContainer(t *testing.T) {
	host := Mount{"/sys/fs/cgroup", "/"}
	for name, test := range map[string]struct {
		mount   Mount
		cgroups string
		want    string
	}{
		"cgroupfs":                    {host, "0::/docker/" + a + "\n", "/sys/fs/cgroup/docker/" + a},
		"systemd":                     {host, "0::/system.slice/docker-" + a + ".scope\n", "/sys/fs/cgroup/system.slice/docker-" + a + ".scope"},
		"hybrid":                      {Mount{"/u", "/"}, "5:memory:/docker/" + b + "\n1:name=systemd:/docker/" + a + "\n0::/docker/" + a + "\n", "/u/docker/" + a},
		"Podman":                      {host, "0::/machine.slice/libpod-" + a + ".scope/container\n", "/sys/fs/cgroup/machine.slice/libpod-" + a + ".scope"},
		"systemd in a container":      {host, "0::/docker/" + a + "/system.slice/nginx.service\n", "/sys/fs/cgroup/docker/" + a},
		"engine in a container":       {host, "0::/docker/" + b + "/docker/" + a + "\n", "/sys/fs/cgroup/docker/" + b + "/docker/" + a},
		"the ID twice":                {host, "0::/docker/" + a + "/" + a + "\n", "/sys/fs/cgroup/docker/" + a},
		"another's":                   {host, "0::/docker/" + b + "\n", ""},
		"shared with the engine":      {host, "0::/system.slice/docker.service\n", ""},
		"root":                        {host, "0::/\n", ""},
		"v1 only":                     {host, "4:memory:/docker/" + a + "\n", ""},
		"v2 not used":                 {host, "4:memory:/docker/" + a + "\n0::/\n", ""},
		"not mounted":                 {Mount{}, "0::/docker/" + a + "\n", ""},
		"part is mounted":             {Mount{"/c", "/docker"}, "0::/docker/" + a + "\n", "/c/" + a},
		"another part is mounted":     {Mount{"/c", "/dock"}, "0::/docker/" + a + "\n", ""},
		"agent in a cgroup namespace": {Mount{"/c", "/../.."}, "0::/../../system.slice/docker-" + a + ".scope\n", "/c/system.slice/docker-" + a + ".scope"},
		"above what is mounted":       {Mount{"/c", "/.."}, "0::/../../docker/" + a + "\n", ""},
		"nothing":                     {host, "", ""},
	} {
		if got := test.mount.OfContainer(test.cgroups, a); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if got := host.OfContainer("0::/docker\n", ""); got != "" {
		t.Errorf("without an ID: %q", got)
	}
}

func TestOfProcess(t *testing.T) {
	whole, part := Mount{"/sys/fs/cgroup", "/"}, Mount{"/mnt", "/system.slice"}
	for _, test := range []struct {
		name    string
		mount   Mount
		cgroups string
		want    string
	}{
		{"unified", whole, "0::/a/b\n", "/sys/fs/cgroup/a/b"},
		{"hybrid", whole, "4:memory:/x\n1:name=systemd:/y\n0::/a\n", "/sys/fs/cgroup/a"},
		{"below the part that is mounted", part, "0::/system.slice/a\n", "/mnt/a"},
		{"beside it", part, "0::/user.slice/a\n", ""},
		{"outside of a namespace", whole, "0::/../a\n", ""},
		{"the root", whole, "0::/\n", ""},
		{"version 1 only", whole, "4:memory:/x\n", ""},
		{"no mount", Mount{}, "0::/a\n", ""},
	} {
		if got := test.mount.OfProcess(test.cgroups); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestResolveRefusesWhatIsNoCgroup(t *testing.T) {
	mount, err := FindMount("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Mount{}).Resolve("some.slice"); !errors.Is(err, ErrNoMount) {
		t.Errorf("relative to nothing: %v", err)
	}
	if _, _, err := (Mount{}).Resolve(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoMount) {
		t.Errorf("nothing, without a hierarchy: %v", err)
	}
	if _, _, err := mount.Resolve(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a cgroup of the v2 hierarchy") {
		t.Errorf("a directory elsewhere: %v", err)
	}
	if mount.Point == "" {
		return // the rest needs a hierarchy
	}
	if _, _, err := mount.Resolve(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	if _, _, err := mount.Resolve("."); err == nil || !strings.Contains(err.Error(), "everything belongs") {
		t.Errorf("the top: %v", err)
	}
	if _, _, err := mount.Resolve("weir-test-none-such"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none there: %v", err)
	}
}

func FuzzOfContainer(f *testing.F) {
	f.Add("30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/"+a+"/init.scope\n", a)
	f.Add("30 22 0:26 /../.. /c rw - cgroup2 cgroup2 rw\n", "0::/../../"+a+"/..\n", a)
	f.Fuzz(func(t *testing.T, mounts, cgroups, id string) {
		m := parseMountInfo(mounts)
		got := m.OfContainer(cgroups, id)
		if got != "" && (!strings.HasPrefix(got, strings.TrimSuffix(filepath.Clean(m.Point), "/")+"/") || strings.Contains(id, "..")) {
			t.Errorf("got %q below %q", got, m.Point)
		}
	})
}
