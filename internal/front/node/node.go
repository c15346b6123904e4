// Package node measures the host that a program runs on, for placing services on many
// hosts: what it is, how busy it is, what its containers use and what
// its uplinks have to give.
//
// The object is PiCasso's ("PiCasso: A Lightweight Edge Computing Platform",
// section III.A), whose values are strings, and beside it the same in numbers.
// Everything is measured at the request, outside of the control loop. Values that cannot be read
// are left out.
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
)

// Meter measures a host.
type Meter struct {
	root     string // "/", or a test's copy of a host's files
	hostname func() (string, error)
	disk     func() (sizeBytes, freeBytes uint64)
	address  func(device string) string

	mu sync.Mutex
	// last is the processor time at the last measurement, used the busy part of it.
	last   procfs.CPUStat
	lastAt time.Time
	used   float64
}

// NewMeter returns a meter of this host.
func NewMeter() *Meter {
	return &Meter{root: "/", hostname: os.Hostname, disk: rootDisk, address: address}
}

// Place is the part of a container's description that a snapshot lacks: image, published
// ports, and the paths of its files on this host (both empty if unknown).
type Place struct {
	Image                 string
	Ports                 []v1.Port
	NetNSPath, CgroupPath string
}

// Measure measures the host with the containers and uplinks of a snapshot. places has the
// same order as the snapshot's containers.
func (m *Meter) Measure(now time.Time, s *v1.Snapshot, places []Place) (v1.Node, error) {
	seen := v1.Measured{At: now, OS: "Linux", Containers: []v1.MeasuredContainer{}, Uplinks: []v1.MeasuredUplink{}, Responses: []v1.ServiceResponse{}}
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
	seen.Uplinks = Uplinks(s)
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
			measured := m.container(proc, c, &places[i])
			seen.Containers = append(seen.Containers, measured)
			node.Containers = append(node.Containers, inWords(now, &measured))
		}
	}
	node.Measured = seen
	return node, nil
}

// inWords returns a container in PiCasso's format.
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

// Uplinks returns what the uplinks of a snapshot have to give.
func Uplinks(s *v1.Snapshot) []v1.MeasuredUplink {
	list := make([]v1.MeasuredUplink, 0, len(s.Status.Uplinks))
	for _, u := range s.Status.Uplinks {
		seen := v1.MeasuredUplink{Name: u.Name, RateBPS: u.RateBPS, SentBPS: u.SentBPS}
		if u.In != nil {
			seen.In = &v1.MeasuredIncoming{RateBPS: u.In.RateBPS, ReceivedBPS: u.In.ReceivedBPS}
		}
		for i := range s.Containers {
			c := &s.Containers[i]
			seen.AdmittedBPS += admitted(c.Shares, u.Name)
			if seen.In != nil && c.In != nil {
				seen.In.AdmittedBPS += admitted(c.In.Shares, u.Name)
			}
		}
		// Without a scheduler nothing is shared, and no minimum holds.
		if u.Scheduler != "" {
			seen.FreeBPS = free(u.RateBPS, u.ReserveBPS, seen.AdmittedBPS)
		}
		if seen.In != nil && u.In.Scheduler != "" {
			seen.In.FreeBPS = free(u.In.RateBPS, u.In.ReserveBPS, seen.In.AdmittedBPS)
		}
		list = append(list, seen)
	}
	return list
}

// admitted returns the minimum in force among shares at an uplink.
func admitted(shares []v1.Share, uplink string) (bps uint64) {
	for i := range shares {
		if shares[i].Uplink == uplink {
			bps += shares[i].AdmittedBPS
		}
	}
	return bps
}

// free returns what further minimums can claim of a rate.
func free(rateBPS, reserveBPS, admittedBPS uint64) uint64 {
	budget := rateBPS - min(reserveBPS, rateBPS)
	return budget - min(admittedBPS, budget)
}

// minInterval is the shortest interval over which processor use is measured.
const minInterval = time.Second

// processors measures the processors and how busy they were since the last measurement.
func (m *Meter) processors(now time.Time, proc procfs.FS, seen *v1.Measured) {
	if load, err := proc.LoadAvg(); err == nil {
		seen.Load1 = load.Load1
	}
	if list, err := proc.CPUInfo(); err == nil && len(list) > 0 {
		seen.CPUs, seen.CPUModel = len(list), list[0].ModelName
	}
	if seen.CPUModel == "" { // some boards give their model elsewhere
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

// times returns the busy and total processor seconds. User and Nice already include guest
// time.
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

// address returns the first address of a device, IPv4 if possible.
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

// size formats a number of bytes, such as "16 GB".
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
