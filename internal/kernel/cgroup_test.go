package kernel

import "testing"

func TestCgroup2Mount(t *testing.T) {
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
		if got := cgroup2Mount([]byte(test.mountinfo)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
