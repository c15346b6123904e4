package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/policy"
)

// llqCase is one container that may send as much as the link carries, with a class for
// each of its flows.
func llqCase() Case {
	return Case{
		Group: SuiteLLQ, Name: "three flows", LinkBPS: llqLinkBPS,
		Containers: []Container{{
			Name: "app", Policy: Policy{Weight: 100},
			Labels: map[string]string{
				"weir.class": "auto", "weir.ef-max": percentLabel(policy.DefaultEFMaxPercent), "weir.af-min": percentLabel(policy.DefaultAFMinPercent),
			},
		}},
	}
}

func percentLabel(percent float64) string { return strconv.FormatFloat(percent, 'f', -1, 64) + "%" }

// llqParts are the parts of the link for each class, the same for all peers.
func llqParts() alloc.ClassRates {
	return alloc.ClassParts{
		EFMax: alloc.Part{Percent: policy.DefaultEFMaxPercent}, AFMin: alloc.Part{Percent: policy.DefaultAFMinPercent},
	}.Of(llqLinkBPS)
}

// newLLQPeer makes a peer by name.
func newLLQPeer(name string, options LLQOptions) (peer, error) {
	switch name {
	case PeerFIFO:
		return fifo{}, nil
	case PeerHTB:
		return htbFlows{}, nil
	case PeerWeir:
		return newWeir(Options{WeirBinary: options.WeirBinary})
	}
	return nil, fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(LLQPeers(), ", "))
}

// ordersFlows fails for an agent that has the container under control and its flows not.
func ordersFlows(ctx context.Context, p peer) error {
	agent, ok := p.(*weir)
	if !ok {
		return nil
	}
	rows, err := agent.client.Containers(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if strings.Contains(row.Reason, policy.LabelClass) {
			return fmt.Errorf("it does not order flows here: %s", row.Reason)
		}
	}
	return nil
}

// htbFlows is HTB as an administrator writes it by hand for known ports: a class for
// each flow, EF before AF before BE (prio), each with its part as the rate and the link
// as the ceiling.
type htbFlows struct{ static }

func (htbFlows) apply(ctx context.Context, b *bed, c Case, _ []placed) error {
	dev := b.host.UplinkName
	commands := [][]string{
		{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "htb", "default", strconv.FormatInt(htbFirstLeaf+2, 16)},
		htbClassCommand(dev, "1:", "1:1", htbClass{rateBPS: c.LinkBPS, ceilBPS: c.LinkBPS, quantumBytes: htbMaxQuantum}),
	}
	commands = append(commands,
		[]string{"iptables", "-w", "-t", "mangle", "-N", iptablesChain},
		[]string{"iptables", "-w", "-t", "mangle", "-A", "POSTROUTING", "-o", dev, "-j", iptablesChain})
	parts := llqParts()
	for i, rate := range []uint64{parts.EFBPS, parts.AFBPS, parts.BEBPS} {
		id := htbClassID(i)
		commands = append(commands,
			htbClassCommand(dev, "1:1", id, htbClass{rateBPS: rate, ceilBPS: c.LinkBPS, quantumBytes: frameBytes, prio: i}),
			[]string{"tc", "qdisc", "add", "dev", dev, "parent", id, "pfifo", "limit", strconv.Itoa(fifoPackets)},
			[]string{
				"iptables", "-w", "-t", "mangle", "-A", iptablesChain, "-p", "udp", "--dport", strconv.Itoa(int(llqFlows[i].port)),
				"-j", "CLASSIFY", "--set-class", id,
			})
	}
	for _, command := range commands {
		if err := b.onHost(ctx, command[0], command[1:]...); err != nil {
			return fmt.Errorf("set HTB up: %w", err)
		}
	}
	return nil
}

func (htbFlows) remove(ctx context.Context, b *bed, containers []placed) error {
	return htb{}.remove(ctx, b, containers)
}
