package node

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/golden"
)

var at = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

const (
	idle = "cpu  1000 0 1000 7000 500 100 400 0 0 0\ncpu0 500 0 500 3500 250 50 200 0 0 0\ncpu1 500 0 500 3500 250 50 200 0 0 0\n"
	busy = "cpu  1300 0 1000 7100 500 100 400 0 0 0\ncpu0 650 0 500 3550 250 50 200 0 0 0\ncpu1 650 0 500 3550 250 50 200 0 0 0\n"
)

// files are those of a host with both versions of cgroups.
func files() map[string]string {
	return map[string]string{
		"proc/stat":              idle,
		"proc/loadavg":           "0.04 0.10 0.20 1/100 4000\n",
		"proc/meminfo":           "MemTotal:         976564 kB\nMemFree:          100000 kB\nMemAvailable:     839845 kB\n",
		"proc/cpuinfo":           "",
		"proc/device-tree/model": "Raspberry Pi 3 Model B\x00",

		// Version 1, one hierarchy for a controller, or for two.
		"proc/700/cgroup": "4:memory:/docker/old\n3:cpu,cpuacct:/docker/old\n0::/\n",
		"sys/fs/cgroup/memory/docker/old/memory.usage_in_bytes":      "2015232\n",
		"sys/fs/cgroup/cpu,cpuacct/docker/old/cpuacct.usage":         "58986155\n",
		"sys/fs/cgroup/memory.current":                               "999\n", // everybody's
		"proc/800/cgroup":                                            "0::/system.slice/docker-new.scope\n",
		"sys/fs/cgroup/system.slice/docker-new.scope/memory.current": "4096\n",
		"sys/fs/cgroup/system.slice/docker-new.scope/cpu.stat":       "user_usec 1\nusage_usec 2500000\nsystem_usec 1\n",
		"sys/fs/cgroup/service/memory.current":                       "8192\n",
		"sys/fs/cgroup/service/cpu.stat":                             "usage_usec 7\n",
	}
}

// host writes such files and returns a meter of that host.
func host(t *testing.T, files map[string]string) *Meter {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Meter{
		root:     root,
		hostname: func() (string, error) { return "SEG_1", nil },
		disk:     func() (uint64, uint64) { return 16e9, 9e9 },
		address:  func(device string) string { return map[string]string{"eth0": "198.18.0.2"}[device] },
	}
}

func snapshot() *v1.Snapshot {
	share := func(admitted uint64) []v1.Share { return []v1.Share{{Uplink: "eth0", AdmittedBPS: admitted}} }
	return &v1.Snapshot{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 42e6, Scheduler: "htb",
		In: &v1.UplinkIn{RateBPS: 50e6, ReserveBPS: 2e6, ReceivedBPS: 12e6, Scheduler: "htb"}}, {Name: "wwan0", RateBPS: 10e6, Scheduler: "htb"}, {Name: "wwan1", RateBPS: 10e6, In: &v1.UplinkIn{RateBPS: 10e6}}}},
		Containers: []v1.Container{
			{ID: "old", Name: "adisorn", Runtime: "docker", StartedAt: at.Add(-3 * time.Hour), Direction: v1.Direction{Shares: share(20e6)}, In: &v1.Direction{Shares: share(8e6)}},
			{ID: "new", Name: "<b>new</b>", Runtime: "docker", StartedAt: at.Add(-90 * time.Second), Direction: v1.Direction{Shares: share(10e6)}},
			{ID: "svc", Name: "service", Runtime: "static"},
			{ID: "gone", Name: "gone", Runtime: "docker"},
			{ID: "host", Name: "host", Runtime: "host", Direction: v1.Direction{Shares: share(1e6)}},
		},
	}
}

func places() []Place {
	return []Place{
		{Image: "hypriot/rpi-busybox-httpd:latest", NetNSPath: "/proc/700/ns/net", Ports: []v1.Port{{Container: 80, Host: 8002, Protocol: "tcp"}, {Container: 53, Host: 53, Protocol: "udp"}}},
		{NetNSPath: "/proc/800/ns/net"},
		{NetNSPath: "/run/netns/x", CgroupPath: "/sys/fs/cgroup/service"},
		{NetNSPath: "/proc/900/ns/net"},
		{},
	}
}

func TestMeasure(t *testing.T) {
	node, err := host(t, files()).Measure(at, snapshot(), places())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(node, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/node.golden", string(data)+"\n")
}

// All keys of the paper's object, spelt as there, with strings as values.
func TestPaperKeys(t *testing.T) {
	node, err := host(t, files()).Measure(at, snapshot(), places())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	var paper struct {
		SoftResources, HardResources, ResourceUsage map[string]string
		PiID, PiIP                                  string
		Containers                                  []map[string]string
	}
	if err := json.Unmarshal(data, &paper); err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		got  map[string]string
		keys string
	}{
		{paper.SoftResources, "OS"},
		{paper.HardResources, "mem disk cpu"},
		{paper.ResourceUsage, "cpuLoad memUsage cpuUsage"},
		{paper.Containers[0], "status port_host port_container memUsage name cpuUsage image id"},
	} {
		for _, key := range strings.Fields(part.keys) {
			if part.got[key] == "" {
				t.Errorf("%s is not in %v", key, part.got)
			}
		}
		if len(part.got) != len(strings.Fields(part.keys)) {
			t.Errorf("%v has other keys than %s", part.got, part.keys)
		}
	}
	for _, key := range []string{`"softResources":`, `"hardResources":`, `"resourceUsage":`, `"PiID":"SEG_1"`, `"PiIP":"198.18.0.2"`, `"containers":`} {
		if !strings.Contains(string(data), key) {
			t.Errorf("there is no %s in %s", key, data)
		}
	}
	if got := paper.Containers[0]; got["status"] != "Up 3 hours" || got["memUsage"] != "2015232" || got["cpuUsage"] != "58986155" {
		t.Errorf("the paper's container: %v", got)
	}
}

// How busy the processors are is measured from one request to the next, over a
// second at least; a clock that goes back begins anew.
func TestProcessors(t *testing.T) {
	m := host(t, files())
	for _, step := range []struct {
		after time.Duration
		stat  string
		want  string
	}{
		{0, idle, "25.00"}, // since the start: 2500 of 10000
		{time.Second / 2, busy, "25.00"},
		{time.Second, busy, "75.00"}, // 300 of 400
		{2 * time.Second, busy, "75.00"},
		{-time.Hour, idle, "75.00"}, // what there is now is less than it was
	} {
		if err := os.WriteFile(m.path("proc/stat"), []byte(step.stat), 0o644); err != nil {
			t.Fatal(err)
		}
		node, err := m.Measure(at.Add(step.after), snapshot(), places())
		if err != nil || node.ResourceUsage.CPUUsage != step.want {
			t.Errorf("after %s: %s (%v), want %s", step.after, node.ResourceUsage.CPUUsage, err, step.want)
		}
	}
}

// A host without one of the files is still a host.
func TestMissingFiles(t *testing.T) {
	all := files()
	for missing := range all {
		some := files()
		delete(some, missing)
		node, err := host(t, some).Measure(at, snapshot(), places())
		if err != nil || len(node.Containers) != 4 || node.PiID != "SEG_1" {
			t.Errorf("without %s: %+v, %v", missing, node, err)
		}
	}
	m := host(t, nil)
	if _, err := m.Measure(at, snapshot(), places()); err == nil {
		t.Error("a host without /proc is measured")
	}
	m.hostname = func() (string, error) { return "", errors.New("no name") }
	if _, err := m.Measure(at, snapshot(), places()); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("a host without a name: %v", err)
	}
}

// This host: whatever it is, there is something to measure.
func TestThisHost(t *testing.T) {
	node, err := NewMeter().Measure(time.Now(), &v1.Snapshot{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "lo"}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := node.Measured
	if seen.CPUs == 0 || seen.CPUModel == "" || seen.MemoryBytes == 0 || seen.MemoryUsedBytes == 0 || seen.DiskBytes == 0 || seen.DiskFreeBytes >= seen.DiskBytes {
		t.Errorf("%+v", seen)
	}
	if node.PiIP != "127.0.0.1" {
		t.Errorf("the loopback device has the address %q", node.PiIP)
	}
}
