package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-project/weir/internal/alloc"
)

const (
	// htbUnlimitedBPS is the rate of HTB on a link that only the CPU limits.
	htbUnlimitedBPS = 100e9
	htbMaxQuantum   = 200_000 // what sch_htb.c clamps a quantum to
	iptablesChain   = "WEIR-BENCH"
)

// htb is tc's HTB as a careful administrator writes it by hand: a class for
// each container with its share as the rate, the link or the maximum as the
// ceiling, and a quantum in proportion to the weight for what others leave
// idle.
//
// Behind NAT a tc filter sees the host's address on every packet, so the
// class is chosen before: the CLASSIFY target of iptables, in POSTROUTING of
// the mangle table, still sees the container's address and writes the class
// into skb->priority, where HTB looks first. It is there on every kernel that
// has iptables and needs neither marks nor cls_fw.
type htb struct{ static }

// htbClass is a class for one container.
type htbClass struct {
	rateBPS, ceilBPS uint64
	quantumBytes     uint64
}

func (htb) apply(ctx context.Context, b *bed, c Case, containers []placed) error {
	linkBPS := c.LinkBPS
	if linkBPS == 0 {
		linkBPS = htbUnlimitedBPS
	}
	dev := b.host.UplinkName
	commands := [][]string{
		{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "htb", "default", "ffff"},
		htbClassCommand(dev, "1:", "1:1", htbClass{linkBPS, linkBPS, htbMaxQuantum}),
		// What is of no container: a thousandth, and what is left over.
		htbClassCommand(dev, "1:1", "1:ffff", htbClass{linkBPS / 1000, linkBPS, frameBytes}),
		{"iptables", "-w", "-t", "mangle", "-N", iptablesChain},
		{"iptables", "-w", "-t", "mangle", "-A", "POSTROUTING", "-o", dev, "-j", iptablesChain},
	}
	for i, class := range htbClasses(c.Containers, linkBPS) {
		id := htbClassID(i)
		commands = append(commands,
			htbClassCommand(dev, "1:1", id, class),
			[]string{
				"iptables", "-w", "-t", "mangle", "-A", iptablesChain,
				"-s", containers[i].Address.String(), "-j", "CLASSIFY", "--set-class", id,
			})
	}
	for _, command := range commands {
		if err := b.onHost(ctx, command[0], command[1:]...); err != nil {
			return fmt.Errorf("set HTB up: %w", err)
		}
	}
	return nil
}

// htbClassID is the class of container i.
func htbClassID(i int) string { return fmt.Sprintf("1:%x", 0x10+i) }

func htbClassCommand(dev, parent, id string, class htbClass) []string {
	return []string{
		"tc", "class", "replace", "dev", dev, "parent", parent, "classid", id, "htb",
		"rate", tcRate(class.rateBPS), "ceil", tcRate(class.ceilBPS),
		"burst", strconv.FormatUint(burstBytes(class.rateBPS), 10),
		"cburst", strconv.FormatUint(burstBytes(class.ceilBPS), 10),
		"quantum", strconv.FormatUint(class.quantumBytes, 10),
	}
}

// htbClasses are the rates an administrator works out for containers that all
// send: minimums, maximums and weights considered, so that in such a case
// borrowing hardly matters.
func htbClasses(containers []Container, linkBPS uint64) []htbClass {
	competitors := make([]alloc.Container, len(containers))
	least := containers[0].Weight
	for i, one := range containers {
		competitors[i] = one.competitor()
		least = min(least, one.Weight)
	}
	classes := make([]htbClass, len(containers))
	for i, share := range alloc.Entitle(linkBPS-linkBPS/1000, competitors) {
		classes[i] = htbClass{
			rateBPS:      share,
			ceilBPS:      min(competitors[i].CeilingBPS, linkBPS),
			quantumBytes: min(frameBytes*uint64(containers[i].Weight/least), htbMaxQuantum),
		}
	}
	return classes
}

func (htb) remove(ctx context.Context, b *bed, _ []placed) error {
	problems := []error{b.clearUplink(ctx)}
	if b.onHost(ctx, "iptables", "-w", "-t", "mangle", "-n", "-L", iptablesChain) == nil {
		problems = append(problems,
			b.onHost(ctx, "iptables", "-w", "-t", "mangle", "-D", "POSTROUTING", "-o", b.host.UplinkName, "-j", iptablesChain),
			b.onHost(ctx, "iptables", "-w", "-t", "mangle", "-F", iptablesChain),
			b.onHost(ctx, "iptables", "-w", "-t", "mangle", "-X", iptablesChain))
	}
	return errors.Join(problems...)
}
