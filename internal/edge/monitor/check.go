package monitor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// The largest plausible values of a node. A larger one is an error or forged.
const (
	maxCPUs       = 8192
	maxBytes      = 1 << 60
	maxLoad       = 1e5
	maxSeconds    = 1e5 // that users wait
	maxContainers = 10_000
	// maxConnections of a container is more than a host has file descriptors for.
	maxConnections = 10_000_000
	maxUplinks     = 64
	// maxText is the most bytes of a name, a reason or another text of a node.
	maxText = 512
)

// check removes implausible values from an agent's answer and returns a message for each. Removed
// values count as 0, because a node that claims too much would be given too many instances.
func check(said answer) (answer, []string) {
	c := &checker{}
	node, snapshot := said.node, said.snapshot
	m := &node.Measured
	c.old(&node)
	m.CPUs = int(c.number("cpus", float64(m.CPUs), 0, maxCPUs))
	m.CPUUsedPercent = c.within("cpu_used_percent", m.CPUUsedPercent, 100)
	m.Load1 = c.number("load_1", m.Load1, 0, maxLoad)
	m.MemoryBytes = uint64(c.number("memory_bytes", float64(m.MemoryBytes), 0, maxBytes))
	m.MemoryUsedBytes = c.part("memory_used_bytes", m.MemoryUsedBytes, m.MemoryBytes)
	m.DiskBytes = uint64(c.number("disk_bytes", float64(m.DiskBytes), 0, maxBytes))
	m.DiskFreeBytes = c.part("disk_free_bytes", m.DiskFreeBytes, m.DiskBytes)
	if len(m.Containers) > maxContainers {
		c.say("it has %d containers; the first %d are looked at", len(m.Containers), maxContainers)
		m.Containers = m.Containers[:maxContainers]
	}
	for i := range m.Containers {
		if seconds := m.Containers[i].CPUSeconds; seconds != nil && !(*seconds >= 0 && *seconds < 1e12) {
			c.say("a container has used %v s of processor time", *seconds)
			m.Containers[i].CPUSeconds = nil
		}
		if count := m.Containers[i].Connections; count != nil && (*count < 0 || *count > maxConnections) {
			c.say("a container has %d connections", *count)
			m.Containers[i].Connections = nil
		}
	}
	m.Responses = slices.DeleteFunc(m.Responses[:min(len(m.Responses), maxContainers)], func(r v1.ServiceResponse) bool {
		plausible := r.MeanSeconds >= 0 && r.MeanSeconds < maxSeconds && r.P95Seconds >= 0 && r.P95Seconds < maxSeconds &&
			r.DeliverySeconds >= 0 && r.DeliverySeconds <= r.MeanSeconds
		if !plausible {
			c.say("users of %s wait %v s, %v s of it for delivery, and 95 %% of them %v s, which cannot be", Cut(r.Service), r.MeanSeconds, r.DeliverySeconds, r.P95Seconds)
		}
		return !plausible
	})
	c.crowd(&snapshot)
	snapshot.Status.Uplinks = slices.DeleteFunc(snapshot.Status.Uplinks, func(u v1.Uplink) bool { return !c.uplink(&u) })
	for i := range snapshot.Status.Uplinks {
		u := &snapshot.Status.Uplinks[i]
		// A measured rate may be a little above the configured one.
		u.SentBPS = min(u.SentBPS, 2*u.RateBPS)
		if u.In != nil && !c.uplink(&v1.Uplink{Name: u.Name + " in", RateBPS: u.In.RateBPS, ReserveBPS: u.In.ReserveBPS}) {
			u.In = nil
		}
	}
	c.texts(&node, &snapshot)
	if node.PiID != "" && m.Hostname != "" && node.PiID != m.Hostname {
		c.say("it calls itself %q and %q", node.PiID, m.Hostname)
	}
	access := v1.Access{Name: Cut(said.access.Name), Role: Cut(said.access.Role)}
	return answer{node, snapshot, access}, c.problems
}

// crowd bounds the size of an answer. Minimums of the containers left out are unknown, so the node
// promises no further one.
func (c *checker) crowd(snapshot *v1.Snapshot) {
	if len(snapshot.Containers) > maxContainers || len(snapshot.Status.Uplinks) > maxUplinks {
		c.say("its agent tells of %d containers and %d uplinks, which cannot be", len(snapshot.Containers), len(snapshot.Status.Uplinks))
		*snapshot = v1.Snapshot{Containers: snapshot.Containers[:min(len(snapshot.Containers), maxContainers)]}
	}
}

// texts shortens the texts of a node, which are stored, shown and quoted in events.
func (c *checker) texts(node *v1.Node, snapshot *v1.Snapshot) {
	node.PiID, node.Measured.Hostname, node.Measured.OS = Cut(node.PiID), Cut(node.Measured.Hostname), Cut(node.Measured.OS)
	for i := range snapshot.Status.Uplinks {
		u := &snapshot.Status.Uplinks[i]
		u.Name = Cut(u.Name)
	}
	for i := range snapshot.Containers {
		s := &snapshot.Containers[i]
		s.ID, s.Name, s.Reason = Cut(s.ID), Cut(s.Name), Cut(s.Reason)
		s.Groups = s.Groups[:min(len(s.Groups), 16)]
		for j := range s.Groups {
			s.Groups[j] = Cut(s.Groups[j])
		}
		directions := []*v1.Direction{&s.Direction}
		if s.In != nil {
			directions = append(directions, s.In)
		}
		for _, d := range directions {
			d.Shares = d.Shares[:min(len(d.Shares), maxUplinks)]
			for j := range d.Shares {
				d.Shares[j].Uplink = Cut(d.Shares[j].Uplink)
			}
		}
	}
}

// Cut shortens a text to the maximum length of an agent's texts.
func Cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

type checker struct{ problems []string }

const maxProblems = 20

func (c *checker) say(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// number returns x if it lies in its range, else 0 and a message.
func (c *checker) number(what string, x, lowest, most float64) float64 {
	if math.IsNaN(x) || x < lowest || x > most {
		c.say("%s is %v, which cannot be", what, x)
		return 0
	}
	return x
}

// within caps a utilization at most: a node with an implausibly high value counts as full and gets
// no instances.
func (c *checker) within(what string, x, most float64) float64 {
	if math.IsNaN(x) || x < 0 || x > most {
		c.say("%s is %v, which cannot be", what, x)
		return most
	}
	return x
}

func (c *checker) part(what string, part, whole uint64) uint64 {
	if part > whole {
		c.say("%s is %d of %d, which cannot be", what, part, whole)
		return whole
	}
	return part
}

// uplink reports whether an uplink is plausible, and so may promise anything.
func (c *checker) uplink(u *v1.Uplink) bool {
	switch {
	case u.RateBPS == 0 || u.RateBPS > policy.MaxRateBPS:
		c.say("the uplink %q has a rate of %d bit/s, which cannot be", u.Name, u.RateBPS)
	case u.ReserveBPS > u.RateBPS:
		c.say("the uplink %q has a reserve of %d bit/s of %d", u.Name, u.ReserveBPS, u.RateBPS)
	default:
		return true
	}
	return false
}

// old fills the numbers that an old agent does not send from the paper's text fields. For the CPU
// these only give the utilization.
func (c *checker) old(node *v1.Node) {
	m := &node.Measured
	if m.CPUs != 0 || m.MemoryBytes != 0 || node.ResourceUsage == (v1.ResourceUsage{}) {
		return
	}
	c.say("its agent gives no numbers, only words: update Weir there")
	m.Hostname, m.OS = node.PiID, node.SoftResources.OS
	m.CPUUsedPercent, _ = strconv.ParseFloat(node.ResourceUsage.CPUUsage, 64)
	m.Load1, _ = strconv.ParseFloat(node.ResourceUsage.CPULoad, 64)
	m.MemoryBytes, m.DiskBytes = boxSize(node.HardResources.Mem), boxSize(node.HardResources.Disk)
	used, _ := strconv.ParseFloat(node.ResourceUsage.MemUsage, 64)
	if used >= 0 && used <= 100 {
		m.MemoryUsedBytes = uint64(used / 100 * float64(m.MemoryBytes))
	}
}

// boxSize returns a size as on a box, "1 GB", in bytes; 0 if it is none.
func boxSize(text string) uint64 {
	digits, unit, _ := strings.Cut(text, " ")
	power := slices.Index([]string{"B", "kB", "MB", "GB", "TB"}, unit)
	size, err := strconv.ParseFloat(digits, 64)
	if err != nil || power < 0 || !(size >= 0 && size < 1e6) {
		return 0
	}
	return uint64(size * math.Pow(1000, float64(power)))
}
