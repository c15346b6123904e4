package testbed

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestStaleNames(t *testing.T) {
	alive := func(pid int) bool { return pid == 77 }
	for name, want := range map[string]bool{
		"weir-78-0123abcd-host":                   true,
		"weir-test-78-0123abcd-c1":                true,
		"weir-77-0123abcd-host":                   false, // runs
		"weir-test-77-0123abcd-c1":                false,
		"weir-12345678-host":                      false, // whose is it?
		"weir-test-78-planted":                    false,
		"weir-agent":                              false,
		"my-weir-78-0123abcd-host":                false,
		"weir-78-0123abcd":                        false,
		"weir-99999999999999999999-0123abcd-host": false,
	} {
		if got := stale(name, alive); got != want {
			t.Errorf("%s: stale %v, want %v", name, got, want)
		}
	}
	if name := hostName("0123abcd") + "-host"; stale(name, running) || !stale(name, func(int) bool { return false }) {
		t.Errorf("%s is not told to be this process's", name)
	}
}

func TestStaleMounts(t *testing.T) {
	const table = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
60 27 0:51 / /tmp/one rw,relatime shared:3 - tmpfs weir-78-0123abcd-memory rw,size=512k
61 27 0:52 / /tmp/its\040place rw,relatime - tmpfs weir-78-0123abcd-memory rw
62 27 0:53 / /tmp/used rw,relatime - tmpfs weir-77-0123abcd-memory rw
63 27 0:54 / /tmp/weir-78-0123abcd-memory rw,relatime - tmpfs tmpfs rw
64 27 0:55
`
	got := staleMounts(table, func(pid int) bool { return pid == 77 })
	if want := []string{"/tmp/its place", "/tmp/one"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if name := MountName(); !stale(name, func(int) bool { return false }) || name == MountName() {
		t.Errorf("%s tells nobody whose it is", name)
	}
}

func TestHoldsMount(t *testing.T) {
	const table = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
60 27 0:51 / /tmp/one/in rw,relatime shared:3 - tmpfs some rw
61 27 0:52 / /tmp/its\040place rw,relatime - tmpfs some rw
62 27
`
	for folder, want := range map[string]bool{
		"/tmp/one": true, "/tmp/one/in": true, "/tmp/its place": true, "/tmp/on": false, "/tmp/one/in/it": false, "/tmp/two": false,
	} {
		if got := holdsMount(table, folder); got != want {
			t.Errorf("%s: %v, want %v", folder, got, want)
		}
	}
}

func TestRunning(t *testing.T) {
	if !running(os.Getpid()) {
		t.Error("this process does not run")
	}
	cmd := exec.Command("true")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 1)) // until it has ended, and nobody has noticed
	deadline := time.Now().Add(30 * time.Second)
	for running(cmd.Process.Pid) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if running(cmd.Process.Pid) {
		t.Error("a process that ended runs")
	}
	_ = cmd.Wait()
	if running(cmd.Process.Pid) {
		t.Error("a process that is gone runs")
	}
}
