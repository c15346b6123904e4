package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// Every daemon has a bound of its memory, so that a leak is not the host's trouble.
func TestMemoryIsBounded(t *testing.T) {
	bounded := regexp.MustCompile(`(?m)^MemoryMax=[1-9]\d{0,2}M$`)
	units, err := filepath.Glob("*.service")
	must.Succeed(t, err)
	if !slices.Contains(units, "weir.service") {
		t.Errorf("the units are %q", units)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		must.Succeed(t, err)
		if found := regexp.MustCompile(`(?m)^MemoryMax=.*`).FindAllString(string(text), -1); len(found) != 1 || !bounded.MatchString(found[0]) {
			t.Errorf("%s bounds its memory by %q, not by less than a gigabyte", unit, found)
		}
	}
}

// systemctl reload waits for the agent, and fails for a configuration with a mistake, as a signal could not.
func TestReload(t *testing.T) {
	if command, err := Setting("ExecReload"); err != nil || command != "@BINDIR@/weir reload" {
		t.Errorf("ExecReload=%s, %v", command, err)
	}
}

func TestConfined(t *testing.T) {
	command, err := Confined()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(command, "--no-new-privs") || !slices.Contains(command, "-15") {
		t.Errorf("got %q", command)
	}
	if at := slices.IndexFunc(command, func(s string) bool { return len(s) > 30 }); at < 0 ||
		command[at] != "--bounding-set=-all,+net_admin,+cap_39,+cap_38,+sys_admin,+sys_ptrace,+dac_read_search,+sys_resource,+chown" {
		t.Errorf("got %q", command)
	}
	for _, key := range []string{"NoSuchKey", "ProtectSystem ", "Nice\n"} {
		if value, err := Setting(key); err == nil {
			t.Errorf("%q is %q", key, value)
		}
	}
	if value, err := Setting("NoNewPrivileges"); err != nil || value != "yes" {
		t.Errorf("got %q, %v", value, err)
	}
}
