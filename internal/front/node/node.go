// Package node measures the host that the agent runs on, for those who place
// services on many: what it is, how busy it is, what its containers use and what
// its uplinks have to give.
//
// The object is PiCasso's ("PiCasso: A Lightweight Edge Computing Platform",
// section III.A), whose values are strings, and beside it the same in numbers.
// Everything is measured when somebody asks, outside of the control loop; what
// cannot be read is left out, as a host without one file is still a host.
package node

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/stats"
)

// Meter measures a host.
type Meter struct {
	root     string // "/", or where a test has a host's files
	hostname func() (string, error)
	disk     func() (sizeBytes, freeBytes uint64)
	address  func(device string) string

	mu sync.Mutex
	// last is the processors' time at the last measurement, and used what part of
	// it was busy then.
	last   procfs.CPUStat
	lastAt time.Time
	used   float64
}

// NewMeter returns a meter of this host.
func NewMeter() *Meter {
	return &Meter{root: "/", hostname: os.Hostname, disk: rootDisk, address: address}
}

// Measure measures the host, whose containers and uplinks are those of a snapshot.
func (m *Meter) Measure(now time.Time, s *stats.Snapshot) (v1.Node, error) {
	seen := v1.Measured{At: now, OS: "Linux", Containers: []v1.MeasuredContainer{}, Uplinks: []v1.MeasuredUplink{}}
	var err error
	if seen.Hostname, err = m.hostname(); err != nil {
		return v1.Node{}, fmt.Errorf("measure the host: %w", err)
	}
	proc, err := procfs.NewFS(m.path("proc"))
	if err != nil {
		return v1.Node{}, fmt.Errorf("measure the host: %w", err)
	}
	m.processors(now, proc, &seen)
	memory(proc, &seen)
	seen.DiskBytes, seen.DiskFreeBytes = m.disk()
	seen.Uplinks = uplinks(s)
	node := v1.Node{
		SoftResources: v1.SoftResources{OS: seen.OS},
		HardResources: v1.HardResources{Mem: size(seen.MemoryBytes), Disk: size(seen.DiskBytes), CPU: fmt.Sprintf("%d x %s", seen.CPUs, seen.CPUModel)},
		ResourceUsage: v1.ResourceUsage{CPULoad: decimal(seen.Load1), MemUsage: percent(seen.MemoryUsedBytes, seen.MemoryBytes), CPUUsage: decimal(seen.CPUUsedPercent)},
		PiID:          seen.Hostname,
		Containers:    []v1.NodeContainer{},
	}
	if len(s.Status.Uplinks) > 0 {
		node.PiIP = m.address(s.Status.Uplinks[0].Name)
	}
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Runtime != "host" {
			measured := m.container(proc, c, &s.Places[i])
			seen.Containers = append(seen.Containers, measured)
			node.Containers = append(node.Containers, inWords(now, &measured))
		}
	}
	node.Measured = seen
	return node, nil
}

// inWords is a container as PiCasso has it.
func inWords(now time.Time, c *v1.MeasuredContainer) v1.NodeContainer {
	words := v1.NodeContainer{Status: "Up", Name: "/" + c.Name, Image: c.Image, ID: c.ID}
	if !c.StartedAt.IsZero() {
		words.Status += " " + units.HumanDuration(max(now.Sub(c.StartedAt), 0))
	}
	if len(c.Ports) > 0 {
		words.PortHost = strconv.Itoa(int(c.Ports[0].Host))
		words.PortContainer = strconv.Itoa(int(c.Ports[0].Container))
	}
	if c.MemoryBytes != nil {
		words.MemUsage = strconv.FormatUint(*c.MemoryBytes, 10)
	}
	if c.CPUSeconds != nil {
		words.CPUUsage = strconv.FormatFloat(*c.CPUSeconds*1e9, 'f', 0, 64)
	}
	return words
}

func uplinks(s *stats.Snapshot) []v1.MeasuredUplink {
	list := make([]v1.MeasuredUplink, 0, len(s.Status.Uplinks))
	for _, u := range s.Status.Uplinks {
		seen := v1.MeasuredUplink{Name: u.Name, RateBPS: u.RateBPS, SentBPS: u.SentBPS}
		for i := range s.Containers {
			for _, share := range s.Containers[i].Shares {
				if share.Uplink == u.Name {
					seen.AdmittedBPS += share.AdmittedBPS
				}
			}
		}
		budget := u.RateBPS - min(u.ReserveBPS, u.RateBPS)
		seen.FreeBPS = budget - min(seen.AdmittedBPS, budget)
		list = append(list, seen)
	}
	return list
}

// minInterval is the shortest time that the use of processors is measured over.
const minInterval = time.Second

// processors measures what processors there are and how busy they are since the
// last measurement, whoever asked for it.
func (m *Meter) processors(now time.Time, proc procfs.FS, seen *v1.Measured) {
	if load, err := proc.LoadAvg(); err == nil {
		seen.Load1 = load.Load1
	}
	if list, err := proc.CPUInfo(); err == nil && len(list) > 0 {
		seen.CPUs, seen.CPUModel = len(list), list[0].ModelName
	}
	if seen.CPUModel == "" { // boards name themselves instead
		model, _ := os.ReadFile(m.path("proc/device-tree/model"))
		seen.CPUModel = cmp.Or(strings.Trim(string(model), "\x00\n"), "processor")
	}
	stat, err := proc.Stat()
	if err != nil {
		return
	}
	seen.CPUs = max(seen.CPUs, len(stat.CPU))
	m.mu.Lock()
	defer m.mu.Unlock()
	if elapsed := now.Sub(m.lastAt); elapsed < 0 || elapsed >= minInterval {
		busy, all := times(stat.CPUTotal)
		lastBusy, lastAll := times(m.last)
		if all > lastAll {
			m.used = min(max((busy-lastBusy)/(all-lastAll)*100, 0), 100)
		}
		m.last, m.lastAt = stat.CPUTotal, now
	}
	seen.CPUUsedPercent = m.used
}

// times are the seconds that processors were busy, and all there were. Guests'
// time is in User and Nice already.
func times(c procfs.CPUStat) (busy, all float64) {
	busy = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return busy, busy + c.Idle + c.Iowait
}

func memory(proc procfs.FS, seen *v1.Measured) {
	info, err := proc.Meminfo()
	if err != nil || info.MemTotalBytes == nil {
		return
	}
	seen.MemoryBytes = *info.MemTotalBytes
	if info.MemAvailableBytes != nil {
		seen.MemoryUsedBytes = seen.MemoryBytes - min(*info.MemAvailableBytes, seen.MemoryBytes)
	}
}

func rootDisk() (sizeBytes, freeBytes uint64) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		return 0, 0
	}
	return fs.Blocks * uint64(fs.Bsize), fs.Bavail * uint64(fs.Bsize)
}

// address is the first address of a device, preferably an IPv4 one.
func address(device string) string {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return ""
	}
	addresses, err := link.Addrs()
	if err != nil {
		return ""
	}
	first := ""
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.IsLinkLocalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			return network.IP.String()
		}
		if first == "" {
			first = network.IP.String()
		}
	}
	return first
}

// size is a number of bytes as on a box: "16 GB".
func size(bytes uint64) string {
	return units.CustomSize("%.0f %s", float64(bytes), 1000, []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"})
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func percent(part, whole uint64) string {
	if whole == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(part)/float64(whole)*100, 'f', 0, 64)
}
