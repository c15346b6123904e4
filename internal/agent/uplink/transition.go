package uplink

import (
	"fmt"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
)

// State is how far a device is in our hands.
type State uint8

const (
	// Absent: there is no such device.
	Absent State = iota
	// Claimed: the device is there, and nothing of ours works on it, or not
	// all; a Problem says why if it stays so.
	Claimed
	// Installed: scheduler and classifier work on it.
	Installed
)

func (s State) String() string { return [...]string{"absent", "claimed", "installed"}[s] }

// owner says whose the queueing at a device's root is.
type owner uint8

const (
	// ownerKernel: nobody configured any.
	ownerKernel owner = iota
	ownerWeir
	ownerForeign
)

// situation is what the kernel has of a device.
type situation struct {
	// link is nil while there is no such device.
	link     *kernel.Link
	speedBPS uint64 // 0 if the device does not say
	root     owner
	foreign  string // what is there of somebody else's
	// classified: the classifier is attached.
	classified bool
}

// action is what to do next with a device.
type action uint8

const (
	// stay: nothing is to be done, or nothing can be.
	stay action = iota
	// release lets go of a device that is gone.
	release
	// claim takes a device that has come.
	claim
	// rename follows a device that has another name.
	rename
	// follow goes on with another rate or MTU.
	follow
	// adopt takes over what an earlier agent left.
	adopt
	// install puts scheduler and classifier on a device without any.
	install
	// displace puts somebody else's queueing aside.
	displace
	// yield takes what is left of ours off a device that has somebody else's
	// queueing.
	yield
	// classify attaches the classifier again.
	classify
)

// rate is what a device may send, given the speed that it reports, and what is
// wrong with that. Where the device does not say what its speed is, what was known
// of it stays.
func (c Config) rate(held holding, speedBPS uint64) (uint64, *Problem) {
	switch {
	case c.RateBPS == 0 && speedBPS != 0:
		return speedBPS, nil
	case c.RateBPS == 0 && held.rateBPS != 0:
		return held.rateBPS, nil
	case c.RateBPS == 0:
		return 0, &Problem{Kind: NoRate, Text: fmt.Sprintf(
			"%s does not report its speed: say how fast it is, e.g. --rate 100mbit", held.name)}
	case speedBPS != 0 && c.RateBPS > speedBPS && !c.IgnoreLinkSpeed:
		return speedBPS, &Problem{Kind: AboveSpeed, Text: fmt.Sprintf(
			"the rate %s is above the speed of %s, which is %s: give that or less, or leave the rate out (--ignore-link-speed if the device is wrong about itself)",
			policy.FormatRate(c.RateBPS), held.name, policy.FormatRate(speedBPS))}
	}
	return c.RateBPS, nil
}

// next is the transition function: what to do with a device that is in a state
// and a situation, and what is wrong with it. Of what is held only name, index,
// rate and MTU matter. It is asked again after each action, until it says stay.
func next(c Config, state State, held holding, saw situation) (action, *Problem) {
	if state != Absent && (saw.link == nil || saw.link.Index != held.ifindex) {
		return release, nil
	}
	if saw.link == nil {
		return stay, missing(held)
	}
	rateBPS, problem := c.rate(held, saw.speedBPS)
	switch {
	case state == Absent && rateBPS == 0:
		return stay, problem
	case state == Absent:
		return claim, problem
	case saw.link.Name != held.name:
		return rename, problem
	case rateBPS != held.rateBPS || saw.link.MTUBytes != held.mtuBytes:
		return follow, problem
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
	}
	return stay, problem
}

func missing(held holding) *Problem {
	if held.wasThere {
		return &Problem{Kind: Missing, Text: held.name + " is gone; it is shared out again when it comes back"}
	}
	return &Problem{Kind: Missing, Text: fmt.Sprintf("there is no network device %q here; `ip link` lists those that there are", held.name)}
}

func occupied(held holding, foreign string) *Problem {
	if !held.wasInstalled {
		return &Problem{Kind: ForeignQdisc, Text: fmt.Sprintf(
			"%s carries a %s that somebody configured: with --replace it is put aside, and `weir down` puts it back", held.name, foreign)}
	}
	return &Problem{Kind: ForeignQdisc, Text: fmt.Sprintf(
		"the root qdisc of %[1]s was replaced by somebody (%[2]s), and nothing is shared out there: `tc qdisc del dev %[1]s root` lets Weir put its own back; with --replace it puts theirs aside, and `weir down` puts it back",
		held.name, foreign)}
}
