package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// htbFlows is HTB as an administrator writes it by hand for known ports: a class for
// each flow, those that come first before the others (prio), each with its part as the
// rate and the link as the ceiling. What is of no flow goes with the last.
type htbFlows struct {
	static
	flows []HTBFlow
}

// NewHTBFlows is HTB by hand for flows, those that are to go first first.
func NewHTBFlows(flows []HTBFlow) Peer { return htbFlows{flows: flows} }

// HTBFlow is a flow of UDP packets to a port.
type HTBFlow struct {
	Port    uint16
	RateBPS uint64
}

func (h htbFlows) Apply(ctx context.Context, b *Bed, c Case, _ []Placed) error {
	dev := b.Host.UplinkName
	commands := [][]string{
		{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "htb", "default", strconv.FormatInt(int64(htbFirstLeaf+len(h.flows)-1), 16)},
		htbClassCommand(dev, "1:", "1:1", htbClass{rateBPS: c.LinkBPS, ceilBPS: c.LinkBPS, quantumBytes: htbMaxQuantum}),
	}
	commands = append(commands,
		[]string{"iptables", "-w", "-t", "mangle", "-N", iptablesChain},
		[]string{"iptables", "-w", "-t", "mangle", "-A", "POSTROUTING", "-o", dev, "-j", iptablesChain})
	for i, flow := range h.flows {
		id := htbClassID(i)
		commands = append(commands,
			htbClassCommand(dev, "1:1", id, htbClass{rateBPS: flow.RateBPS, ceilBPS: c.LinkBPS, quantumBytes: measure.FrameBytes, prio: i}),
			[]string{"tc", "qdisc", "add", "dev", dev, "parent", id, "pfifo", "limit", strconv.Itoa(measure.FIFOPackets)},
			[]string{
				"iptables", "-w", "-t", "mangle", "-A", iptablesChain, "-p", "udp", "--dport", strconv.Itoa(int(flow.Port)),
				"-j", "CLASSIFY", "--set-class", id,
			})
	}
	if err := b.OnHostAll(ctx, commands); err != nil {
		return fmt.Errorf("set HTB up: %w", err)
	}
	return nil
}

func (htbFlows) Remove(ctx context.Context, b *Bed, containers []Placed) error {
	return htb{}.Remove(ctx, b, containers)
}
