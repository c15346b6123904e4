package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

const (
	// htbUnlimitedBPS is the rate of HTB on a link that only the CPU limits.
	htbUnlimitedBPS = 100e9
	htbMaxQuantum   = 200_000 // what sch_htb.c clamps a quantum to
	htbPrios        = 8       // TC_HTB_NUMPRIO
	htbFirstLeaf    = 0x10    // the class of the first container
	htbDefaultClass = "1:ffff"
	iptablesChain   = "WEIR-BENCH"
)

// htb is tc's HTB as a careful administrator writes it by hand: a class for
// each container with its share as the rate, the link or the maximum as the
// ceiling, the priority, and a quantum in proportion to the weight for what
// others leave idle.
type htb struct {
	static
	// plain is HTB as CNTC's evaluation has tc (section 4): the same rates, set
	// once, without the art of quanta. The container of a latency bound has its share
	// as the rate, as all have, and the first turn; CNTC bounds it with HFSC (hfsc).
	plain bool
	// cut limits the containers' packets to the size that Weir gives them at that precision; empty: they
	// are what the kernel makes them.
	cut v1.Precision
}

// htbClass is a class for one container.
type htbClass struct {
	rateBPS, ceilBPS uint64
	quantumBytes     uint64
	prio             int // 0 is served first
}

func (h htb) Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error {
	linkBPS := c.LinkBPS
	if linkBPS == 0 {
		linkBPS = htbUnlimitedBPS
	}
	dev := b.Host.UplinkName
	if c.Incoming {
		dev = b.Host.BridgeName()
	}
	commands := [][]string{
		{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "htb", "default", "ffff"},
		htbClassCommand(dev, "1:", "1:1", htbClass{rateBPS: linkBPS, ceilBPS: linkBPS, quantumBytes: htbMaxQuantum}),
		// What is of no container, or not to be told: a thousandth, and what
		// is left over.
		htbClassCommand(dev, "1:1", htbDefaultClass, htbClass{
			rateBPS: linkBPS / 1000, ceilBPS: linkBPS, quantumBytes: measure.FrameBytes,
		}),
	}
	for i, class := range h.classes(c, linkBPS) {
		if h.cut != "" {
			if err := limitPackets(containers[i], sched.MaxPacketBytes(class.ceilBPS, class.rateBPS, policy.PacketTime(h.cut))); err != nil {
				return err
			}
		}
		commands = append(commands, htbClassCommand(dev, "1:1", htbClassID(i), class))
	}
	if err := b.OnHostAll(ctx, append(commands, tellApart(b, c, containers)...)); err != nil {
		return fmt.Errorf("set HTB up: %w", err)
	}
	return nil
}

// tellApart are the commands that tell containers apart by their addresses, as
// far as that goes.
//
// Behind NAT a tc filter sees the host's address on every packet, so the class
// is chosen before: the CLASSIFY target of iptables, in POSTROUTING of the
// mangle table, still sees the container's address and writes the class into
// skb->priority, where HTB looks first. It is there on every kernel that has
// iptables and needs neither marks nor cls_fw. Other modes do not pass the
// host's iptables and get tc's IP filter. In an overlay that never matches, as
// the container's address is inside VXLAN (CNTC, section 2); in the host's own
// network there is no address to tell containers by.
//
// What comes in has the containers' addresses where it leaves for them: at their
// bridge, where there is one.
func tellApart(b *Bed, c Case, containers []Placed) [][]string {
	dev, side := b.Host.UplinkName, "src"
	if c.Incoming {
		dev, side = b.Host.BridgeName(), "dst"
	}
	var commands [][]string
	switch {
	case c.mode() == testbed.ModeHost:
	case c.mode() == testbed.ModeBridge && !c.Incoming:
		commands = [][]string{
			{"iptables", "-w", "-t", "mangle", "-N", iptablesChain},
			{"iptables", "-w", "-t", "mangle", "-A", "POSTROUTING", "-o", dev, "-j", iptablesChain},
		}
		for i, one := range containers {
			commands = append(commands, []string{
				"iptables", "-w", "-t", "mangle", "-A", iptablesChain,
				"-s", one.Address.String(), "-j", "CLASSIFY", "--set-class", htbClassID(i),
			})
		}
	default:
		for i, one := range containers {
			commands = append(commands, []string{
				"tc", "filter", "add", "dev", dev, "parent", "1:", "protocol", "ip", "prio", "1",
				"u32", "match", "ip", side, one.Address.String() + "/32", "classid", htbClassID(i),
			})
		}
	}
	return commands
}

// htbClassID returns the class of container i.
func htbClassID(i int) string { return fmt.Sprintf("1:%x", htbFirstLeaf+i) }

func htbClassCommand(dev, parent, id string, class htbClass) []string {
	return []string{
		"tc", "class", "replace", "dev", dev, "parent", parent, "classid", id, "htb",
		"rate", TCRate(class.rateBPS), "ceil", TCRate(class.ceilBPS),
		"burst", strconv.FormatUint(burstBytes(class.rateBPS), 10),
		"cburst", strconv.FormatUint(burstBytes(class.ceilBPS), 10),
		"quantum", strconv.FormatUint(class.quantumBytes, 10),
		"prio", strconv.Itoa(class.prio),
	}
}

// classes are what an administrator works out for containers that all send:
// minimums, maximums and weights considered, so that in such a case borrowing
// hardly matters.
func (h htb) classes(c Case, linkBPS uint64) []htbClass {
	containers := c.Containers
	competitors := make([]alloc.Container, len(containers))
	least := uint32(math.MaxUint32) // of those that have one
	for i, one := range containers {
		competitors[i] = one.competitor()
		if one.Weight > 0 {
			least = min(least, one.Weight)
		}
	}
	prios := htbPriosOf(containers)
	classes := make([]htbClass, len(containers))
	for i, share := range alloc.Entitle(linkBPS-linkBPS/1000, competitors) {
		classes[i] = htbClass{
			rateBPS:      share,
			ceilBPS:      min(competitors[i].CeilingBPS, linkBPS),
			quantumBytes: min(measure.FrameBytes*uint64(max(containers[i].Weight/least, 1)), htbMaxQuantum),
			prio:         prios[i],
		}
		if h.plain {
			classes[i].quantumBytes = measure.FrameBytes
		}
		if h.plain && c.Rigid {
			classes[i].ceilBPS = classes[i].rateBPS
		}
	}
	return classes
}

// htbPriosOf orders containers with a latency bound before all others, and
// those by priority. HTB has 8 levels: what comes eighth shares its level with
// what comes later.
func htbPriosOf(containers []Container) []int {
	rank := func(c Container) uint64 {
		if c.LatencyMS > 0 {
			return 1 << 32
		}
		return uint64(c.Priority)
	}
	var ranks []uint64
	for _, one := range containers {
		ranks = append(ranks, rank(one))
	}
	slices.Sort(ranks)
	slices.Reverse(ranks)
	ranks = slices.Compact(ranks)
	prios := make([]int, len(containers))
	for i, one := range containers {
		prios[i] = min(slices.Index(ranks, rank(one)), htbPrios-1)
	}
	return prios
}

// limitPackets limits the packets that a container hands over at once.
func limitPackets(one Placed, bytes uint32) error {
	ns, err := kernel.OpenNetNS(one.NetNSPath)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.SetGSOMaxBytes(testbed.ContainerInterface, bytes)
}

func (h htb) Remove(ctx context.Context, b *Bed, containers []Placed) error {
	problems := []error{b.ClearUplink(ctx), b.clearRoot(ctx, b.Host.BridgeName())}
	for _, one := range containers {
		if h.cut != "" {
			problems = append(problems, limitPackets(one, maxGSOBytes))
		}
	}
	if b.OnHost(ctx, "iptables", "-w", "-t", "mangle", "-n", "-L", iptablesChain) == nil {
		problems = append(problems,
			b.OnHost(ctx, "iptables", "-w", "-t", "mangle", "-D", "POSTROUTING", "-o", b.Host.UplinkName, "-j", iptablesChain),
			b.OnHost(ctx, "iptables", "-w", "-t", "mangle", "-F", iptablesChain),
			b.OnHost(ctx, "iptables", "-w", "-t", "mangle", "-X", iptablesChain))
	}
	return errors.Join(problems...)
}
