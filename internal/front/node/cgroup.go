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
)

// Containers' usage is read from their cgroups: one hierarchy (version 2), or one per
// controller (version 1). Hosts with both count in version 1.

func (m *Meter) path(elements ...string) string {
	return filepath.Join(append([]string{m.root}, elements...)...)
}

func (m *Meter) container(proc procfs.FS, c *v1.Container, place *Place) v1.MeasuredContainer {
	seen := v1.MeasuredContainer{ID: c.ID, Name: c.Name, Runtime: c.Runtime, Image: place.Image, Ports: append([]v1.Port{}, place.Ports...), StartedAt: c.StartedAt}
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

// cgroups are the known cgroups of a container.
type cgroups struct {
	path string // version 2 path, as the source reported it
	list []procfs.Cgroup
}

func (m *Meter) cgroups(proc procfs.FS, place *Place) cgroups {
	groups := cgroups{path: place.CgroupPath}
	text, inProc := strings.CutPrefix(place.NetNSPath, "/proc/")
	number, _, _ := strings.Cut(text, "/")
	pid, err := strconv.Atoi(number)
	if !inProc || err != nil {
		return groups
	}
	if process, err := proc.Proc(pid); err == nil {
		groups.list, _ = process.Cgroups() // an ended process has none
	}
	return groups
}

const mountPoint = "/sys/fs/cgroup"

// unified returns the possible paths of a version 2 file. The root cgroup is excluded,
// because it covers the whole host.
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

// of returns the possible paths of a file of a version 1 controller.
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

// readField returns the number in the line "name number" of a file.
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
