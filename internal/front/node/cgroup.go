package node

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/stats"
)

// What containers use is counted by their cgroups: in one hierarchy for all
// (version 2), or in one for each controller (version 1), and hosts that have
// both count in the older ones.

func (m *Meter) path(elements ...string) string {
	return filepath.Join(append([]string{m.root}, elements...)...)
}

func (m *Meter) container(proc procfs.FS, c *v1.Container, place *stats.Place) v1.MeasuredContainer {
	seen := v1.MeasuredContainer{ID: c.ID, Name: c.Name, Runtime: c.Runtime, Image: place.Image, Ports: []v1.Port{}, StartedAt: c.StartedAt}
	for _, p := range place.Ports {
		seen.Ports = append(seen.Ports, v1.Port{Container: p.Container, Host: p.Host, Protocol: p.Protocol})
	}
	groups := m.cgroups(proc, place)
	for _, file := range append(groups.unified("memory.current"), groups.of("memory", "memory.usage_in_bytes")...) {
		if bytes, ok := readNumber(m.path(file)); ok {
			seen.MemoryBytes = &bytes
			break
		}
	}
	for _, file := range groups.unified("cpu.stat") {
		if microseconds, ok := readField(m.path(file), "usage_usec"); ok {
			seconds := float64(microseconds) / 1e6
			seen.CPUSeconds = &seconds
			return seen
		}
	}
	for _, file := range groups.of("cpuacct", "cpuacct.usage") {
		if nanoseconds, ok := readNumber(m.path(file)); ok {
			seconds := float64(nanoseconds) / 1e9
			seen.CPUSeconds = &seconds
			break
		}
	}
	return seen
}

// cgroups are the cgroups of a container, as far as they are known.
type cgroups struct {
	path string // of version 2, as the source told it
	list []procfs.Cgroup
}

func (m *Meter) cgroups(proc procfs.FS, place *stats.Place) cgroups {
	groups := cgroups{path: place.CgroupPath}
	text, inProc := strings.CutPrefix(place.NetNSPath, "/proc/")
	number, _, _ := strings.Cut(text, "/")
	pid, err := strconv.Atoi(number)
	if !inProc || err != nil {
		return groups
	}
	if process, err := proc.Proc(pid); err == nil {
		groups.list, _ = process.Cgroups() // one that just ended has none
	}
	return groups
}

const mountPoint = "/sys/fs/cgroup"

// unified are where a file of version 2 may be. The root of the hierarchy is
// everybody's and not the container's.
func (g *cgroups) unified(file string) []string {
	var list []string
	if g.path != "" {
		list = append(list, filepath.Join(g.path, file))
	}
	for _, c := range g.list {
		if c.HierarchyID == 0 && c.Path != "/" {
			list = append(list, filepath.Join(mountPoint, c.Path, file))
		}
	}
	return list
}

// of are where a file of a controller of version 1 may be.
func (g *cgroups) of(controller, file string) []string {
	var list []string
	for _, c := range g.list {
		if c.HierarchyID != 0 && c.Path != "/" && slices.Contains(c.Controllers, controller) {
			list = append(list,
				filepath.Join(mountPoint, strings.Join(c.Controllers, ","), c.Path, file),
				filepath.Join(mountPoint, controller, c.Path, file))
		}
	}
	return list
}

func readNumber(path string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return number, err == nil
}

// readField reads one line "name number" of a file.
func readField(path, name string) (uint64, bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			number, err := strconv.ParseUint(value, 10, 64)
			return number, err == nil
		}
	}
	return 0, false
}
