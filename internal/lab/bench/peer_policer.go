package bench

import (
	"context"
	"fmt"
	"time"
)

// policer drops what a container receives above its maximum: nftables' limit, where the packet is
// forwarded. It has no queue, so it knows neither shares nor minimums.
type policer struct{ static }

const (
	policerTable = "weir-bench-policer"
	// policerBurst is what the bucket holds, in time: some round trips, or TCP gets much less than the
	// maximum.
	policerBurst = 100 * time.Millisecond
)

func (policer) Apply(ctx context.Context, b *Bed, _ Case, containers []Placed) error {
	commands := [][]string{
		{"nft", "add", "table", "ip", policerTable},
		{"nft", "add", "chain", "ip", policerTable, "forward", "{ type filter hook forward priority 0 ; }"},
	}
	for _, one := range containers {
		if one.MaxBPS == 0 {
			continue
		}
		bytesPerSecond := one.MaxBPS / 8
		commands = append(commands, []string{"nft", "add", "rule", "ip", policerTable, "forward", "ip", "daddr", one.Address.String(),
			"limit", "rate", "over", fmt.Sprint(bytesPerSecond), "bytes/second", "burst", fmt.Sprint(uint64(float64(bytesPerSecond) * policerBurst.Seconds())), "bytes", "drop"})
	}
	if err := b.OnHostAll(ctx, commands); err != nil {
		return fmt.Errorf("set the policer up: %w", err)
	}
	return nil
}

func (policer) Remove(ctx context.Context, b *Bed, _ []Placed) error {
	// The table may be missing, as after a failed Apply.
	return b.OnHostAll(ctx, [][]string{
		{"nft", "add", "table", "ip", policerTable},
		{"nft", "delete", "table", "ip", policerTable},
	})
}
