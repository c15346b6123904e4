package bench

import (
	"context"
	"fmt"
	"strconv"
)

// drr is tc's deficit round robin, which qCon's authors tried first (figure 3): a class for each container, with a
// quantum in proportion to its weight. It knows no rates, so the token bucket that stands for the link without control
// is above it, and no minimums, maximums or latencies.
type drr struct{ static }

// newDRR returns an error if the kernel lacks DRR.
func newDRR(ctx context.Context) (drr, error) { return drr{}, probeQdisc(ctx, "drr") }

func (drr) Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error {
	if err := (fifo{}).Apply(ctx, b, c, containers); err != nil {
		return err
	}
	dev := b.Host.UplinkName
	commands := [][]string{
		{"tc", "qdisc", "add", "dev", dev, "parent", linkHandle + "1", "handle", "1:", "drr"},
		drrClassCommand(dev, htbDefaultClass, htbMaxQuantum),
		// DRR drops what no class is chosen for.
		{
			"tc", "filter", "add", "dev", dev, "parent", "1:", "protocol", "all", "prio", "99",
			"u32", "match", "u32", "0", "0", "classid", htbDefaultClass,
		},
	}
	for i, class := range (htb{}).classes(c, c.LinkBPS) {
		commands = append(commands, drrClassCommand(dev, htbClassID(i), class.quantumBytes))
	}
	if err := b.OnHostAll(ctx, append(commands, tellApart(b, c, containers)...)); err != nil {
		return fmt.Errorf("set DRR up: %w", err)
	}
	return nil
}

func drrClassCommand(dev, id string, quantumBytes uint64) []string {
	return []string{"tc", "class", "replace", "dev", dev, "parent", "1:", "classid", id, "drr", "quantum", strconv.FormatUint(quantumBytes, 10)}
}

func (drr) Remove(ctx context.Context, b *Bed, containers []Placed) error {
	return htb{}.Remove(ctx, b, containers)
}
