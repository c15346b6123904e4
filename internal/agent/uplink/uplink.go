// Package uplink is the life cycle of one device that is shared out.
//
// A device is absent, claimed, or installed. It may change at any time, and
// others may change it: it goes, comes back, gets another name or speed, somebody
// replaces its queueing or takes the classifier away. So nothing is concluded from
// an event but that it is time to look: Advance looks at what the kernel has, asks
// one function what to do next (next, in transition.go), does it, and looks again,
// until nothing is to be done. What stays wrong is a Problem.
package uplink

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/state"
)

// Config is one uplink of the agent's configuration.
type Config struct {
	// Name is the device's.
	Name string
	// RateBPS is what it may send, in bits per second; 0 means the speed that
	// the device reports.
	RateBPS uint64
	// Replace allows a qdisc that somebody configured to be put aside.
	Replace bool
	// IgnoreLinkSpeed allows a rate above the speed that the device reports.
	IgnoreLinkSpeed bool
}

// holding is what is known of a device besides its state.
type holding struct {
	name    string
	ifindex int // 0 while it is absent
	rateBPS uint64
	// mtuBytes may change at any time.
	mtuBytes uint32
	// bridge is the name that was configured, if that is a bridge's and this is
	// its port.
	bridge string
	// isBridge: the device is a bridge. What its ports send to each other passes
	// it by.
	isBridge bool
	// wasThere, wasInstalled: it has been in these states.
	wasThere, wasInstalled bool
}

// Device is one uplink.
type Device struct {
	config  Config
	machine Machine
	store   *state.Store

	state State
	held  holding
	// problem is what the last look found, refused what the last change met.
	problem *Problem
	refused *Problem

	scheduler  Scheduler
	classifier Classifier
	delays     Delays // nil where the kernel cannot
}

// New prepares an uplink and touches nothing.
func New(config Config, machine Machine, store *state.Store) *Device {
	return &Device{config: config, machine: machine, store: store, held: holding{name: config.Name, rateBPS: config.RateBPS}}
}

// Config is what the device was configured with last.
func (d *Device) Config() Config { return d.config }

// Check says whether the device could be shared out with another configuration, if
// it is there.
func (d *Device) Check(config Config) error {
	// What runs may go on as it does, whatever the device's speed has become.
	same := config.RateBPS == d.config.RateBPS && config.IgnoreLinkSpeed == d.config.IgnoreLinkSpeed
	if d.state == Absent || same {
		return nil
	}
	speedBPS, err := d.machine.SpeedBPS(d.held.name)
	if err != nil {
		return err
	}
	if _, problem := config.rate(holding{name: d.held.name}, speedBPS); problem != nil {
		return problem
	}
	return nil
}

// Configure takes another configuration of the same device. The next Advance puts
// it into force.
func (d *Device) Configure(config Config) {
	if config.Name != d.config.Name { // the name that it has now
		d.held.bridge = ""
	}
	d.config = config
	if d.state == Absent && config.RateBPS != 0 {
		d.held.rateBPS = config.RateBPS
	}
}

// Name is what the device is called at present.
func (d *Device) Name() string { return d.held.name }

// Ifindex is the device's index; 0 while it is absent.
func (d *Device) Ifindex() int { return d.held.ifindex }

// RateBPS is what the device may send; 0 while that is not known.
func (d *Device) RateBPS() uint64 { return d.held.rateBPS }

// MTUBytes is the largest IP packet that the device sends in one frame.
func (d *Device) MTUBytes() uint32 { return d.held.mtuBytes }

// IsBridge says whether the device is a bridge: packets from one of its ports to
// another pass it by.
func (d *Device) IsBridge() bool { return d.held.isBridge }

// State is how far the device is in our hands.
func (d *Device) State() State { return d.state }

// Problems are what is wrong at present.
func (d *Device) Problems() Problems {
	var problems Problems
	for _, p := range []*Problem{d.problem, d.refused} {
		if p != nil {
			problems = append(problems, p)
		}
	}
	return problems
}

// Scheduler is nil while the device is absent.
func (d *Device) Scheduler() sched.Backend {
	if d.scheduler == nil {
		return nil
	}
	return d.scheduler
}

// Classifier is nil unless the device is installed.
func (d *Device) Classifier() Classifier { return d.classifier }

// Delays is nil where delays are not measured.
func (d *Device) Delays() Delays { return d.delays }

// Change is what an Advance did.
type Change struct {
	From, To State
	// Any: something was done.
	Any bool
	// Adopted: what an earlier agent left was taken over. Its classes may be
	// other ones than those of the plan.
	Adopted bool
	// Classified: the classifier was attached. It knows no cgroups but those of
	// its predecessor, and does not limit unknown origins.
	Classified bool
	// Made: all classes were made, and count from zero.
	Made bool
	// Displaced is what was there of somebody else's and was put aside.
	Displaced string
	// Unlimited says why the device is handed larger packets than it should be:
	// those are cut up, which takes processor time.
	Unlimited error
}

// maxActions: no life cycle needs more in a row. A device that somebody changes all
// the time is looked at again later.
const maxActions = 8

// Claim takes the device if it is there and can be shared out, and says why not.
// It changes nothing in the kernel.
func (d *Device) Claim() *Problem {
	d.advance(nil, func(a action) bool { return a == claim })
	return d.problem
}

// Advance brings the device as far as it can be brought. plan tells what the
// scheduler is to do; it is asked when the device's rate is known.
func (d *Device) Advance(plan func() sched.Tree) Change {
	return d.advance(plan, func(action) bool { return true })
}

func (d *Device) advance(plan func() sched.Tree, may func(action) bool) Change {
	change := Change{From: d.state}
	for range maxActions {
		saw, err := d.look()
		if err != nil {
			d.problem = refused(err)
			break
		}
		var todo action
		if todo, d.problem = next(d.config, d.state, d.held, saw); todo == stay || !may(todo) {
			break
		}
		change.Any = true
		if err := d.do(todo, saw, plan, &change); err != nil {
			d.problem = refused(err)
			break
		}
	}
	change.To = d.state
	return change
}

// look finds out what the kernel has of the device.
func (d *Device) look() (situation, error) {
	var saw situation
	var link kernel.Link
	var err error
	if d.held.ifindex != 0 {
		link, err = d.machine.LinkByIndex(d.held.ifindex)
	} else {
		link, err = d.find()
	}
	if err == nil {
		saw.link = &link
		saw.speedBPS, err = d.machine.SpeedBPS(link.Name)
	}
	if err == nil {
		saw.root, saw.foreign, err = root(d.machine, d.schedulerOf(link.Index), link.Index)
	}
	if err == nil {
		saw.classified, err = d.machine.Classified(link.Index)
	}
	if errors.Is(err, kernel.ErrNoLink) {
		return situation{}, nil
	}
	return saw, err
}

// find looks for the device by the name that it had last, or else by the one that
// was configured, unless that is another uplink's now. Where that is a bridge with one way out,
// it is the port there: all that leaves passes it, also what containers that are
// ports of the bridge send.
func (d *Device) find() (kernel.Link, error) {
	link, err := d.machine.LinkByName(d.held.name)
	if errors.Is(err, kernel.ErrNoLink) && d.config.Name != d.held.name {
		link, err = d.machine.LinkByName(d.config.Name)
		switch known := d.store.NameOf(link.Index); {
		case err != nil:
		case known == "": // another device
			d.store.Forget(d.held.name)
			d.held.name = d.config.Name
		case known == d.held.name:
			d.held.name = d.config.Name
		default:
			err = kernel.ErrNoLink
		}
	}
	if err != nil || link.Kind != bridgeKind {
		return link, err
	}
	links, err := d.machine.Links()
	if err != nil {
		return link, err
	}
	links = slices.DeleteFunc(links, func(port kernel.Link) bool {
		return port.MasterIndex != link.Index || !slices.Contains(outwardKinds, port.Kind)
	})
	if len(links) == 1 {
		return links[0], nil
	}
	return link, nil
}

// bridgeKind is what the kernel calls a bridge; outwardKinds are those of its
// ports that lead to a network outside, which those of containers and virtual
// machines are not.
const bridgeKind = "bridge"

var outwardKinds = []string{"device", "vlan", "bond", "team"}

// schedulerOf is the scheduler of the device with that index.
func (d *Device) schedulerOf(ifindex int) Scheduler {
	if d.scheduler == nil || ifindex != d.held.ifindex {
		return d.machine.Scheduler(ifindex)
	}
	return d.scheduler
}

// root tells whose the queueing of a device is.
func root(machine Machine, scheduler Scheduler, ifindex int) (owner, string, error) {
	qdiscs, err := machine.Qdiscs(ifindex)
	switch root := configuredRoot(scheduler, qdiscs); {
	case err != nil:
		return ownerKernel, "", err
	case root != nil:
		return ownerForeign, fmt.Sprintf("%s qdisc (%s)", root.Options.Kind(), root.Handle), nil
	case scheduler.Owns(qdiscs):
		return ownerWeir, "", nil
	}
	return ownerKernel, "", nil
}

// configuredRoot is the root qdisc of a device if it is neither the kernel's
// default nor the scheduler's.
func configuredRoot(scheduler Scheduler, qdiscs []kernel.Qdisc) *kernel.Qdisc {
	if scheduler.Owns(qdiscs) {
		return nil
	}
	for _, q := range qdiscs {
		// The kernel gives its defaults no handle.
		if q.Parent == kernel.HandleRoot && q.Handle != 0 {
			return &q
		}
	}
	return nil
}

// do takes one action.
func (d *Device) do(todo action, saw situation, plan func() sched.Tree, change *Change) error {
	switch todo {
	case release:
		d.closeClassifier()
		d.scheduler, d.refused = nil, nil
		d.held.ifindex, d.state = 0, Absent
		if d.held.bridge != "" {
			d.held.name, d.held.bridge = d.held.bridge, ""
		}
	case claim:
		d.held.ifindex, d.held.mtuBytes, d.held.wasThere = saw.link.Index, saw.link.MTUBytes, true
		d.held.isBridge = saw.link.Kind == bridgeKind
		if saw.link.Name != d.held.name {
			d.held.name, d.held.bridge = saw.link.Name, d.held.name
		}
		d.held.rateBPS, _ = d.config.rate(d.held, saw.speedBPS)
		d.record()
		d.scheduler = d.machine.Scheduler(d.held.ifindex)
		d.state = Claimed
	case rename:
		d.held.name = saw.link.Name
		d.record()
		return d.store.Save()
	case follow:
		d.held.mtuBytes = saw.link.MTUBytes
		d.held.rateBPS, _ = d.config.rate(d.held, saw.speedBPS)
		if d.state == Installed {
			change.Unlimited = d.limitPackets(*saw.link)
			return d.Apply(plan())
		}
	case adopt:
		change.Unlimited = d.limitPackets(*saw.link)
		if err := d.classify(plan(), change); err != nil {
			return err
		}
		change.Adopted = true
		d.state, d.held.wasInstalled = Installed, true
	case install:
		return d.install(saw, plan(), change)
	case displace:
		change.Displaced = saw.foreign
		return d.displace(saw.foreign)
	case yield:
		d.state = Claimed
		d.closeClassifier()
		d.refused = nil
		return d.machine.Declassify(d.held.ifindex)
	case classify:
		return d.classify(plan(), change)
	}
	return nil
}
