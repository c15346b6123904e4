package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// byIFB is what guides for home routers advise for what comes in: the uplink's packets are redirected to an IFB,
// where a queueing discipline limits and orders them, ahead of the link. It knows no containers' weights,
// minimums or maximums.
type byIFB struct {
	static
	// cake is CAKE with its option ingress, and equal shares for containers, which it tells apart by the addresses
	// that conntrack knows. Otherwise it is HTB with fq_codel: equal shares for flows.
	cake bool
}

// benchIFB is the IFB's name; an agent's begin otherwise.
const benchIFB = "weir-bench-ifb"

// newByIFB returns an error if the kernel lacks what the peer is made of.
func newByIFB(ctx context.Context, cake bool) (byIFB, error) {
	p := byIFB{cake: cake}
	kind := "fq_codel"
	if cake {
		kind = "cake"
	}
	if err := kernel.ProbeRedirect(); err != nil {
		return p, &lacksError{err}
	}
	return p, probeQdisc(ctx, kind)
}

func (p byIFB) Apply(ctx context.Context, b *Bed, c Case, _ []Placed) error {
	uplink := b.Host.UplinkName
	commands := [][]string{
		{"ip", "link", "add", benchIFB, "up", "type", "ifb"},
		{"tc", "qdisc", "add", "dev", uplink, "handle", "ffff:", "ingress"},
		{
			"tc", "filter", "add", "dev", uplink, "parent", "ffff:", "protocol", "all",
			"u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", benchIFB,
		},
	}
	if p.cake {
		commands = append(commands, []string{"tc", "qdisc", "add", "dev", benchIFB, "root", "cake", "bandwidth", TCRate(c.LinkBPS), "ingress", "nat", "dual-dsthost"})
	} else {
		commands = append(commands,
			[]string{"tc", "qdisc", "add", "dev", benchIFB, "root", "handle", "1:", "htb", "default", "1"},
			htbClassCommand(benchIFB, "1:", "1:1", htbClass{rateBPS: c.LinkBPS, ceilBPS: c.LinkBPS, quantumBytes: htbMaxQuantum}),
			[]string{"tc", "qdisc", "add", "dev", benchIFB, "parent", "1:1", "fq_codel"})
	}
	if err := b.OnHostAll(ctx, commands); err != nil {
		return fmt.Errorf("set the IFB up: %w", err)
	}
	return nil
}

func (byIFB) Remove(ctx context.Context, b *Bed, _ []Placed) error {
	problems := []error{b.clearIngress(ctx, b.Host.UplinkName)}
	out, err := Output(b.Host.Command(ctx, "ip", "-br", "link", "show", "type", "ifb"))
	problems = append(problems, err)
	if strings.Contains(string(out), benchIFB) {
		problems = append(problems, b.OnHost(ctx, "ip", "link", "del", benchIFB))
	}
	return errors.Join(problems...)
}
