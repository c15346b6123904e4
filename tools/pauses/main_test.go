package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestHelpersAreStoppedAndContinued: of forty helpers some are stopped, and none is when the
// command has ended.
func TestHelpersAreStoppedAndContinued(t *testing.T) {
	dir := t.TempDir()
	log, pids := filepath.Join(dir, "log"), filepath.Join(dir, "pids")
	code, err := run([]string{"-log", log, "sh", "-c", `
		echo "=== RUN   TestA"
		for i in $(seq 40); do sleep 60 & echo $! >>$0; done
		sleep 1
		echo "--- FAIL: TestA (1.00s)"
		exit 3`, pids})
	if code != 3 || err != nil {
		t.Errorf("exit code %d, want 3: %v", code, err)
	}
	said, err := os.ReadFile(log)
	if err != nil || !strings.HasPrefix(string(said), "FAIL TestA ") || !strings.Contains(string(said), " sleep ") {
		t.Errorf("the log says %q: %v", said, err)
	}
	list, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(list)) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") T ") {
			t.Errorf("a helper is stopped or gone: %s%v", stat, err)
		}
		_ = handle(pid).Signal(syscall.SIGKILL)
	}
}

// TestJudgedAreNotStopped: agents and meters are told by their command lines.
func TestJudgedAreNotStopped(t *testing.T) {
	for line, want := range map[string]bool{
		"weir agent --uplink eth0 ":             true,
		"weir sdn run --listen x ":              true, // as weir starts weir-sdn
		"weir-edge run ":                        true,
		"weir-lab traffic pauses --least 10ms ": true,
		"weir ps ":                              false,
		"weir-lab traffic sink ":                false,
		"dockerd --config-file=weir agent ":     false,
	} {
		if got := judged.MatchString(line); got != want {
			t.Errorf("%q is judged: %v, want %v", line, got, want)
		}
	}
}

// TestDaemonsBegin: a daemon leads a process group; a helper is in the group of its parent.
func TestDaemonsBegin(t *testing.T) {
	for _, own := range []bool{false, true} {
		command := exec.Command("sleep", "60")
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: own}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if got := becomesDaemon(strconv.Itoa(command.Process.Pid)); got != own {
			t.Errorf("in a group of its own: %v, becomes a daemon: %v", own, got)
		}
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}
