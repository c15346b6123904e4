package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/share/sched"
)

// hfsc is tc's HFSC, with which CNTC bounds latency: a class for each container, with its share as the link-share
// curve, its maximum as the upper limit, and its minimum as the real-time curve, bent for a latency by CNTC's formulas.
type hfsc struct{ static }

// newHFSC returns an error if the kernel lacks HFSC.
func newHFSC(ctx context.Context) (hfsc, error) { return hfsc{}, probeQdisc(ctx, "hfsc") }

func (hfsc) Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error {
	dev := b.Host.UplinkName
	commands := [][]string{
		{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "hfsc", "default", "ffff"},
		hfscClassCommand(dev, "1:", "1:1", "ls", "m2", TCRate(c.LinkBPS), "ul", "m2", TCRate(c.LinkBPS)),
		hfscClassCommand(dev, "1:1", htbDefaultClass, "ls", "m2", TCRate(c.LinkBPS/1000)),
	}
	for i, class := range (htb{}).classes(c, c.LinkBPS) {
		commands = append(commands, hfscClassCommand(dev, "1:1", htbClassID(i), hfscCurves(c.Containers[i].Policy, class, c.LinkBPS)...))
	}
	if err := b.OnHostAll(ctx, append(commands, tellApart(b, c, containers)...)); err != nil {
		return fmt.Errorf("set HFSC up: %w", err)
	}
	return nil
}

// hfscCurves returns the curves of a container's class as tc takes them.
func hfscCurves(p Policy, class htbClass, linkBPS uint64) []string {
	var curves []string
	if p.MinBPS > 0 {
		curves = append(curves, "rt")
		if curve, ok := sched.CurveFor(p.MinBPS, p.LatencyMS, linkBPS, measure.FrameBytes); ok {
			curves = append(curves, "m1", TCRate(curve.M1BPS), "d", strconv.FormatInt(int64(curve.DMS*1000), 10)+"us")
		}
		curves = append(curves, "m2", TCRate(p.MinBPS))
	}
	curves = append(curves, "ls", "m2", TCRate(class.rateBPS))
	if p.MaxBPS > 0 {
		curves = append(curves, "ul", "m2", TCRate(class.ceilBPS))
	}
	return curves
}

func hfscClassCommand(dev, parent, id string, curves ...string) []string {
	return append([]string{"tc", "class", "replace", "dev", dev, "parent", parent, "classid", id, "hfsc"}, curves...)
}

func (hfsc) Remove(ctx context.Context, b *Bed, containers []Placed) error {
	return htb{}.Remove(ctx, b, containers)
}
