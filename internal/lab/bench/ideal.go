package bench

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/share/alloc"
)

// pingBPS is what a pinger sends: 100 datagrams of 64 bytes a second.
const pingBPS = 100 * (ethernetIPv4UDPBytes + 64) * 8

// ethernetIPv4UDPBytes are the headers of a datagram.
const ethernetIPv4UDPBytes = ethernetHeaderBytes + 20 + 8

// ideal returns each container's ideal rate at a time of a run, in bits per second on the wire: the
// allocation of the link's configured rate to the active senders. nil for an unlimited link.
func (c Case) ideal(at time.Duration) []uint64 {
	if c.LinkBPS == 0 {
		return nil
	}
	containers := c.competitors(at)
	return alloc.Allocate(c.LinkBPS, containers, alloc.Entitle(c.LinkBPS, containers))
}

// entitled returns the rate that each container can always have, however much others send.
func (c Case) entitled(at time.Duration) []uint64 {
	return alloc.Entitle(c.LinkBPS, c.competitors(at))
}

// competitors returns the containers with their policies and demands at a time.
func (c Case) competitors(at time.Duration) []alloc.Container {
	competitors := make([]alloc.Container, 0, len(c.Containers))
	for i, one := range c.policiesAt(at) {
		competitor := one.competitor()
		switch {
		case !one.Load.activeAt(at):
			if i == 0 && c.Measures.has(MeasureLatency) {
				competitor.DemandBPS = pingBPS
			}
		case one.Load.RateBPS > 0:
			competitor.DemandBPS = one.Load.RateBPS
		default:
			competitor.DemandBPS = alloc.Unlimited
		}
		competitors = append(competitors, competitor)
	}
	return competitors
}

// competitor returns a container with the policy and without demand. The latency bound is omitted:
// it orders packets and changes no share.
func (p Policy) competitor() alloc.Container {
	competitor := alloc.Container{
		Weight: p.Weight, FloorBPS: p.MinBPS, CeilingBPS: alloc.Unlimited, Priority: p.Priority,
	}
	if p.MaxBPS > 0 {
		competitor.CeilingBPS = p.MaxBPS
	}
	return competitor
}

// changeTimes returns the times at which the ideal allocation changes, including the start. The end
// of the last sender is no change.
func (c Case) changeTimes() []time.Duration {
	var times []time.Duration
	for _, one := range c.Containers {
		if one.Load.Protocol != "" && one.Load.Active == nil {
			times = append(times, 0)
		}
		for _, interval := range one.Load.Active {
			times = append(times, interval.From, interval.Until)
		}
	}
	for _, change := range c.Changes {
		times = append(times, change.At)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	return slices.DeleteFunc(times, func(at time.Duration) bool {
		return c.Length > 0 && at >= c.Length || !slices.ContainsFunc(c.Containers, func(one Container) bool { return one.Load.activeAt(at) })
	})
}
