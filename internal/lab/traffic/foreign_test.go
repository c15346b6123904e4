package traffic

import (
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

// TestForeign: other users' processes and what they start are foreign, as are services that init starts; init, the
// kernel's threads, this process, its ancestors, its children, its service, engines, and containers that have left its tree
// are not.
func TestForeign(t *testing.T) {
	before := processes{
		1: {0, 1, 9}, 2: {0, 1, 9}, 3: {2, 1, 9}, 10: {1, 5, 100}, 20: {10, 20, 10}, 23: {1, 21, 9}, 30: {10, 7, 1000}, 31: {30, 8, 50}, 40: {1, 9, 0},
		60: {10, 7, 5}, 61: {60, 8, 10}, 62: {61, 9, 60000}, 70: {10, 7, 3}, 71: {70, 8, 0}, 72: {71, 9, 500},
	}
	w := newForeignWatch(20, before, func(pid int) string {
		return map[int]string{20: "bench.service", 80: "apt-daily.service", 82: "bench.service", 83: "containerd.service", 84: "x.service"}[pid]
	}) // 10 is its shell, in which 30 runs as well
	now := processes{
		1: {0, 1, 99}, 2: {0, 1, 99}, 3: {2, 1, 99}, 10: {1, 5, 199}, 20: {10, 20, 99}, 23: {1, 21, 999}, 21: {20, 50, 99}, 22: {1, 51, 99},
		30: {10, 7, 1060}, 32: {30, 52, 30}, 40: {1, 60, 500}, 50: {10, 61, 99},
		60: {10, 7, 60016}, 70: {10, 7, 3}, 72: {1, 55, 7},
		80: {1, 70, 100}, 81: {80, 71, 50}, 82: {1, 72, 999}, 83: {1, 73, 999}, 84: {20, 74, 999},
	}
	from, until := w.foreign(before), w.foreign(now)
	for pid, want := range map[int]bool{1: false, 2: false, 3: false, 10: false, 20: false, 21: false, 22: false, 23: false, 30: true, 32: true, 40: false, 50: false, 60: true, 70: true, 72: false, 80: true, 81: true, 82: false, 83: false, 84: false} {
		if _, got := until[pid]; got != want {
			t.Errorf("process %d is foreign: %v, want %v", pid, got, want)
		}
	}
	// 30 took 10 and waited for 31, which had taken 50 before; 32 is new. 40 has ended, and init has its times. 60 is a
	// shell whose make and compiler have ended with all of their past, and took 1. 70 lost 72 to init, whose number is
	// another's now: it has none of the times of 72. 80 is a service
	// that init started, 81 its child.
	passed := ForeignTimes{foreign: until, cpu: CPUTimes{Busy: time.Second, Idle: 3 * time.Second, Stolen: time.Second}}
	if got, want := passed.Since(ForeignTimes{foreign: from}), 1.91/5+1./5; math.Abs(got-want) > 1e-9 {
		t.Errorf("foreign processes took %v, want %v", got, want)
	}
}

func TestParseService(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/apt-daily.service\n":                                    "apt-daily.service",
		"2:cpu:/\n1:name=systemd:/system.slice/man-db.service\n0::/\n":            "man-db.service",
		"0::/system.slice/system-getty.slice/getty@tty1.service\n":                "getty@tty1.service",
		"0::/system.slice/docker.service/child\n":                                 "docker.service",
		"0::/system.slice/docker-0a.scope\n":                                      "",
		"0::/user.slice/user-0.slice/session-3.scope\n":                           "",
		"0::/user.slice/user-0.slice/user@0.service/app.slice/x.service\n0::/a\n": "",
		"": "",
	} {
		if got := parseService(text); got != want {
			t.Errorf("service of %q: %q, want %q", text, got, want)
		}
	}
}

func TestParseProcess(t *testing.T) {
	pid, p, err := parseProcess("12 (a) b (c) S 7 1 1 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 555 9 9")
	if err != nil || pid != 12 || p != (process{parent: 7, start: 555, ticks: 100}) {
		t.Errorf("%v: %d %+v", err, pid, p)
	}
	for _, line := range []string{"", "1 (x S", "1 (x) S 1", "x (x) S 7 1 1 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 555"} {
		if _, _, err := parseProcess(line); err == nil {
			t.Errorf("%q is no error", line)
		}
	}
}

// TestForeignOwnChildren: what this process starts is not foreign, however busy it is.
func TestForeignOwnChildren(t *testing.T) {
	w, err := NewForeignWatch()
	must.Succeed(t, err)
	busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	must.Succeed(t, busy.Start())
	defer func() { _, _ = busy.Process.Kill(), busy.Wait() }()
	until, err := w.Read()
	must.Succeed(t, err)
	if _, foreign := until.foreign[busy.Process.Pid]; foreign {
		t.Error("a child is foreign")
	}
}
