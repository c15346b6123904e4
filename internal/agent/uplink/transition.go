package uplink

import (
	"fmt"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// State is the stage of a device in its life cycle.
type State uint8

const (
	// Absent: the device does not exist.
	Absent State = iota
	// Claimed: the device exists, and not all of Weir works on it. If it stays so, a Problem gives
	// the reason.
	Claimed
	// Installed: scheduler and classifier work on it.
	Installed
)

func (s State) String() string { return [...]string{"absent", "claimed", "installed"}[s] }

// owner is the owner of the queueing at a device's root.
type owner uint8

const (
	// ownerKernel: the kernel's default.
	ownerKernel owner = iota
	ownerWeir
	ownerForeign
)

// situation is the kernel's state of a device.
type situation struct {
	// link is nil while the device does not exist.
	link     *kernel.Link
	speedBPS uint64 // 0 if the device reports no speed
	// tunnel: the device is a tunnel, and the rate is that of the link below.
	tunnel  bool
	root    owner
	foreign string // queueing of another program; "" for none
	// moved: another device stands for the configured name.
	moved bool
	// obstacle says why nothing may be shared at the device; "" for no reason.
	obstacle string
	// classified: the classifier is attached.
	classified bool
	// missed says which packets do not get to the classifier; nil for none.
	missed *Problem
}

// action is the next step of a device's life cycle.
type action uint8

const (
	// stay: do nothing, because nothing is needed or nothing is possible.
	stay action = iota
	// release closes the handles of a device that is gone.
	release
	// move restores a device that no longer stands for its configured name, or whose rate is unknown: that of a new uplink of
	// an IFB, or after an earlier agent. It closes the device's handles.
	move
	// claim takes a device that has appeared, also to move it if an earlier agent left its scheduler.
	claim
	// rename records the new name of a device.
	rename
	// follow adapts to another rate or MTU.
	follow
	// adopt takes over the scheduler of an earlier agent.
	adopt
	// install puts scheduler and classifier on a device that has neither.
	install
	// displace removes the queueing of another program and saves it.
	displace
	// yield removes the rest of Weir from a device because of another program's qdisc or filter.
	yield
	// classify attaches the classifier again.
	classify
)

// largeFramesPercent of a device's speed are left for frames of 1500 bytes and a VLAN tag, beside
// what Ethernet sends with each of them.
const largeFramesPercent = 98

// capacity returns what is shared of a device, and a problem with the configured rate. If the device
// reports no speed, the last known capacity stays, unless it is that of another uplink of the IFB.
//
// The device must not be slower than the scheduler: packets would wait in its queue, and HTB, which
// has tokens for all classes then, would serve them by priority instead of by minimum. A rate below
// 60/84 of the speed leaves room for what Ethernet sends beside frames of any size. Above that,
// each packet counts with it. The kernel counts it once for a GSO packet of many frames, so the
// default rate also leaves room for that of large frames.
func (c Config) capacity(held holding, saw situation) (capacity, *Problem) {
	speedBPS := saw.speedBPS
	if saw.link != nil {
		held.name = saw.link.Name // that of Auto, before it is claimed
		if saw.link.UplinkIndex != held.uplinkIndex {
			held.capacity = capacity{}
		}
	}
	rateBPS, problem := c.rate(held, speedBPS)
	if saw.tunnel {
		return capacity{rateBPS: rateBPS, overheadBytes: kernel.TunnelOverheadBytes, precision: c.Precision}, problem
	}
	if speedBPS == 0 && rateBPS == held.rateBPS {
		held.precision = c.Precision
		return held.capacity, problem
	}
	shared := capacity{rateBPS: rateBPS, precision: c.Precision}
	const wireBytes = kernel.ShortestFrameBytes + kernel.FrameOverheadBytes
	if rateBPS > speedBPS/wireBytes*kernel.ShortestFrameBytes && speedBPS != 0 && !c.IgnoreLinkSpeed {
		shared.overheadBytes = kernel.FrameOverheadBytes
	}
	return shared, problem
}

// rate returns the rate of a device whose reported speed is speedBPS, and a problem with the
// configured rate.
func (c Config) rate(held holding, speedBPS uint64) (uint64, *Problem) {
	c.RateBPS = c.rateOf(held.name)
	name, speed, flag := held.name, "the speed of "+held.name, "--rate"
	if c.UplinkName != "" {
		name, speed, flag = c.UplinkName, fmt.Sprintf("%d %% of the speed of %s", incomingPercent, c.UplinkName), "--in-rate"
	}
	switch {
	case c.RateBPS == 0 && speedBPS != 0:
		return speedBPS / 100 * largeFramesPercent, nil
	case c.RateBPS == 0 && held.rateBPS != 0:
		return held.rateBPS, nil
	case c.RateBPS == 0:
		return 0, &Problem{Kind: NoRate, Text: fmt.Sprintf(
			"%s does not report its speed: say how fast it is, e.g. %s 100mbit", name, flag)}
	case speedBPS != 0 && c.RateBPS > speedBPS && !c.IgnoreLinkSpeed:
		return speedBPS, &Problem{Kind: AboveSpeed, Text: fmt.Sprintf(
			"the rate %s is above %s, which is %s: give that or less, or leave the rate out (ignore_link_speed: true, or --ignore-link-speed, if the device is wrong about itself)",
			policy.FormatRate(c.RateBPS), speed, policy.FormatRate(speedBPS))}
	}
	return c.RateBPS, nil
}

// next is the transition function: it returns the next action for a device, from its state and
// the kernel's situation, and the device's problem. It reads only name, indexes, capacity and MTU of
// held. Advance calls it again after each action, until it returns stay.
func next(c Config, state State, held holding, saw situation) (action, *Problem) {
	if state != Absent && (saw.link == nil || saw.link.Index != held.ifindex) {
		return release, nil
	}
	if saw.link == nil {
		return stay, missing(c, held)
	}
	if saw.moved {
		return move, nil
	}
	shared, problem := c.capacity(held, saw)
	switch {
	case state == Absent && shared.rateBPS == 0 && saw.root != ownerWeir:
		return stay, problem
	case state == Absent:
		return claim, problem
	case shared.rateBPS == 0:
		return move, problem
	case saw.link.Name != held.name:
		return rename, problem
	case shared != held.capacity || saw.link.MTUBytes != held.mtuBytes || saw.link.UplinkIndex != held.uplinkIndex:
		return follow, problem
	case saw.obstacle != "" && (state == Installed || saw.classified):
		return yield, problem
	case saw.obstacle != "":
		return stay, &Problem{Kind: Obstructed, Text: saw.obstacle}
	case saw.root == ownerForeign && c.Replace:
		return displace, problem
	case saw.root == ownerForeign && (state == Installed || saw.classified):
		return yield, problem
	case saw.root == ownerForeign:
		return stay, occupied(held, saw.foreign)
	case state == Claimed && saw.root == ownerWeir:
		return adopt, problem
	case state == Claimed || saw.root == ownerKernel:
		return install, problem
	case !saw.classified:
		return classify, problem
	case problem == nil && saw.missed != nil:
		return stay, saw.missed
	case problem == nil && saw.link.Down:
		return stay, &Problem{Kind: Down, Text: fmt.Sprintf(
			"%[1]s sends nothing: it is switched off (`ip link set %[1]s up`) or has no carrier (cable, other end)", held.name)}
	}
	return stay, problem
}

func missing(c Config, held holding) *Problem {
	if c.UplinkName != "" {
		return &Problem{Kind: Missing, Text: "it is shared out once " + c.UplinkName + " is"}
	}
	if held.name == Auto {
		return &Problem{Kind: Missing, Text: "there is no default route, whose device would be shared out; it is once there is one"}
	}
	if held.wasThere {
		return &Problem{Kind: Missing, Text: held.name + " is gone; it is shared out again when it comes back"}
	}
	return &Problem{Kind: Missing, Text: fmt.Sprintf("there is no network device %q here; `ip link` lists the devices", held.name)}
}

func occupied(held holding, foreign string) *Problem {
	if !held.wasInstalled {
		return &Problem{Kind: ForeignQdisc, Text: fmt.Sprintf(
			"%s carries a %s that another program configured: --replace replaces it, and `weir down` restores it", held.name, foreign)}
	}
	return &Problem{Kind: ForeignQdisc, Text: fmt.Sprintf(
		"the root qdisc of %[1]s was replaced by another program (%[2]s), and nothing is shared out there: `tc qdisc del dev %[1]s root` lets Weir put its own back; with --replace it puts the other aside, and `weir down` puts it back",
		held.name, foreign)}
}
