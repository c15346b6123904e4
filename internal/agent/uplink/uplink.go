// Package uplink manages the life cycle of one shared device.
//
// A device is absent, claimed, or installed. It may change at any time, also by other programs: it
// goes, comes back, gets another name or speed, loses its queueing or the classifier. So an event
// only triggers a look. Advance reads the kernel's state, asks one function for the next action
// (next, in transition.go), performs it, and repeats until there is nothing to do. What remains
// wrong is a Problem.
package uplink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Auto is the name of the uplink that is the device of the default route, whichever that is.
const Auto = "auto"

// Config is one uplink of the agent's configuration.
type Config struct {
	// Name is the name of the device, or Auto.
	Name string
	// UplinkName is the present name of the uplink whose received packets are shared at the device; "" for sent packets.
	UplinkName string
	// RateBPS is the rate to share, in bits per second; 0 means what large frames have of the
	// speed that the device reports.
	RateBPS uint64
	// Replace allows Weir to replace a qdisc of another program.
	Replace bool
	// IgnoreLinkSpeed allows a rate above the speed that the device reports.
	IgnoreLinkSpeed bool
	// Precision bounds how long a packet holds the link.
	Precision v1.Precision
	// In says how what the device receives is shared.
	In InConfig
	// Rates are those of devices by their present names, and go before RateBPS and In.RateBPS: Auto stands for one
	// device now and for another one later.
	Rates map[string]Rates
}

// Rates are those of one device, in bits per second. RateBPS is 0 for none of its own, and In says whether InRateBPS is one:
// then 0 means 95 % of the speed that the device reports.
type Rates struct {
	RateBPS, InRateBPS uint64
	In                 bool
}

// InConfig configures the sharing of what a device receives.
type InConfig struct {
	// Shared: received packets are shared, through an IFB.
	Shared bool
	// RateBPS is the rate to share, in bits per second; 0 means 95 % of the speed that the device
	// reports.
	RateBPS uint64
	// Force: redirect received packets also past programs and filters of others, which then see none
	// of them.
	Force bool
}

// rateOf returns the configured rate of the device of that present name.
func (c Config) rateOf(device string) uint64 { return cmp.Or(c.Rates[device].RateBPS, c.RateBPS) }

// isAuto reports whether the rate is that of whatever link the default route leads to.
func (c Config) isAuto() bool { return c.Name == Auto || c.Name == IncomingName(Auto) }

// Incoming returns the configuration of the IFB for what the device of that present name receives.
func (c Config) Incoming(device string) Config {
	rateBPS := c.In.RateBPS
	if own := c.Rates[device]; own.In {
		rateBPS = own.InRateBPS
	}
	return Config{Name: IncomingName(c.Name), UplinkName: device, RateBPS: rateBPS, Replace: true, IgnoreLinkSpeed: c.IgnoreLinkSpeed, Precision: c.Precision, In: InConfig{Force: c.In.Force}}
}

// capacity is what is shared of a device.
type capacity struct {
	rateBPS uint64
	// overheadBytes is what each packet takes of the rate besides its size.
	overheadBytes uint16
	// precision bounds how long a packet holds the link.
	precision v1.Precision
}

// holding is what the agent knows of a device besides its state.
type holding struct {
	name    string
	ifindex int // 0 while the device is absent
	capacity
	// uplinkIndex is that of the uplink whose capacity an IFB has; 0 for other devices.
	uplinkIndex int
	// mtuBytes may change at any time.
	mtuBytes uint32
	// standsFor is the configured name if this device stands for it: a bridge's only outward port, or
	// the device of the default route.
	standsFor string
	// isBridge: the device is a bridge.
	isBridge bool
	// wasThere and wasInstalled: the device has been in these states before.
	wasThere, wasInstalled bool
}

// Device is one uplink.
type Device struct {
	config  Config
	machine Machine
	store   *state.Store
	// heldDown: Auto stays at its device.
	heldDown bool

	state State
	held  holding
	// problem is the result of the last look; refused is the last failed change.
	problem *Problem
	refused *Problem

	scheduler  Scheduler
	classifier identity.Classifier
	delays     Delays // nil if the kernel cannot measure delays
}

// New returns an uplink and touches nothing in the kernel.
func New(config Config, machine Machine, store *state.Store) *Device {
	return &Device{config: config, machine: machine, store: store, held: holding{name: config.Name, capacity: capacity{rateBPS: config.RateBPS, precision: config.Precision}}}
}

// Config returns the present configuration of the device.
func (d *Device) Config() Config { return d.config }

// Check returns an error if the device, when present, could not be shared with another
// configuration.
func (d *Device) Check(config Config) error {
	// An unchanged configuration stays valid even if the device's speed has changed.
	same := config.rateOf(d.held.name) == d.config.rateOf(d.held.name) && config.IgnoreLinkSpeed == d.config.IgnoreLinkSpeed
	if d.state == Absent || same {
		return nil
	}
	link, err := d.machine.LinkByIndex(d.held.ifindex)
	if err != nil {
		return err
	}
	speedBPS, _, err := config.speed(d.machine, link)
	if err != nil {
		return err
	}
	if _, problem := config.rate(holding{name: d.held.name}, speedBPS); problem != nil {
		return problem
	}
	return nil
}

// Configure sets another configuration of the same device. The next Advance puts it into force.
func (d *Device) Configure(config Config) {
	if config.Name != d.config.Name { // the present name of the device, or Auto
		d.held.standsFor = ""
		if d.state != Absent && config.Name == Auto {
			d.held.standsFor = Auto
		}
	}
	if d.config.rateOf(d.held.name) != 0 && config.rateOf(d.held.name) == 0 {
		d.held.capacity = capacity{} // what was configured is not what the device last reported
	}
	d.config = config
	if rateBPS := config.rateOf(d.held.name); d.state == Absent && rateBPS != 0 {
		d.held.rateBPS = rateBPS
	}
}

// Name returns the present name of the device.
func (d *Device) Name() string { return d.held.name }

// Ifindex returns the device's index; 0 while it is absent.
func (d *Device) Ifindex() int { return d.held.ifindex }

// RateBPS returns the rate that is shared; 0 while unknown.
func (d *Device) RateBPS() uint64 { return d.held.rateBPS }

// OverheadBytes returns what each packet takes of the rate besides its size.
func (d *Device) OverheadBytes() uint16 { return d.held.overheadBytes }

// Precision returns what bounds how long a packet holds the link.
func (d *Device) Precision() v1.Precision { return d.held.precision }

// MTUBytes returns the largest IP packet that the device sends in one frame.
func (d *Device) MTUBytes() uint32 { return d.held.mtuBytes }

// State returns the stage of the device in its life cycle.
func (d *Device) State() State { return d.state }

// Problem returns the reason why the device is not shared as it should be, or nil. Errors:
// Problems.
func (d *Device) Problem() error {
	var problems Problems
	for _, p := range []*Problem{d.problem, d.refused} {
		if p != nil {
			problems = append(problems, p)
		}
	}
	if problems == nil {
		return nil
	}
	return problems
}

// Scheduler returns nil unless the device is installed.
func (d *Device) Scheduler() sched.Backend {
	if d.state != Installed {
		return nil
	}
	return d.scheduler
}

// Classifier returns nil unless the device is installed.
func (d *Device) Classifier() identity.Classifier {
	if d.state != Installed {
		return nil
	}
	return d.classifier
}

// Classified reports whether the classifier is still attached to an installed device.
func (d *Device) Classified() (bool, error) {
	working, _, err := classified(d.machine, d.held.ifindex)
	return working, err
}

// classified reports whether the classifier works, and which packets do not get to it.
func classified(machine Machine, ifindex int) (working bool, missed *Problem, err error) {
	working, err = machine.Classified(ifindex)
	if errors.As(err, &missed) {
		err = nil
	}
	return working, missed, err
}

// Delays returns nil unless the device is installed and delays are measured.
func (d *Device) Delays() Delays {
	if d.state != Installed {
		return nil
	}
	return d.delays
}

// Change describes the effects of an Advance.
type Change struct {
	From, To State
	// Any: at least one action was performed.
	Any bool
	// Adopted: the scheduler of an earlier agent was taken over. Its classes may differ from the
	// plan's.
	Adopted bool
	// Classified: the classifier was attached. It knows only the cgroups of its predecessor, and
	// does not limit unknown origins.
	Classified bool
	// Lost: the device went.
	Lost bool
	// Moved: an IFB got another uplink, so nothing redirected to it.
	Moved bool
	// Off: the device was found switched off. An IFB is switched on again, and packets have bypassed it.
	Off bool
	// Made: all classes were made anew and count from zero.
	Made bool
	// Displaced is the queueing of another program that was replaced.
	Displaced string
	// Unlimited is the error of limiting the packet size. Larger packets are cut up, which takes
	// processor time.
	Unlimited error
}

// maxActions bounds the actions of one Advance; no life cycle needs more. A device that keeps
// changing is looked at again later.
const maxActions = 8

// Claim claims the device if it exists and can be shared, or returns the problem. It changes
// nothing in the kernel.
func (d *Device) Claim() *Problem {
	d.advance(nil, func(a action) bool { return a == claim })
	return d.problem
}

// Advance performs actions until the device needs none. It calls plan for the wanted tree once the
// device's rate is known.
func (d *Device) Advance(plan func() sched.Tree) Change {
	return d.advance(plan, func(action) bool { return true })
}

func (d *Device) advance(plan func() sched.Tree, may func(action) bool) Change {
	change := Change{From: d.state}
	for range maxActions {
		saw, err := d.observe()
		if err != nil {
			d.problem = refused(err)
			break
		}
		change.Off = change.Off || saw.link != nil && !saw.link.Up
		if d.state == Absent && saw.link != nil && d.config.UplinkName != "" {
			d.store.Uplink(saw.link.Name, saw.link.Index) // Weir made it, and removes it by this entry
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

// observe reads the kernel's state of the device.
func (d *Device) observe() (situation, error) {
	var saw situation
	var link kernel.Link
	var err error
	if d.held.ifindex != 0 {
		link, err = d.machine.LinkByIndex(d.held.ifindex)
	} else {
		link, err = d.find()
	}
	if err == nil && d.held.ifindex != 0 {
		saw.moved, err = d.moved(link)
	}
	if err == nil {
		saw.link = &link
		saw.speedBPS, saw.tunnel, err = d.config.speed(d.machine, link)
	}
	if err == nil {
		saw.root, saw.foreign, err = root(d.machine, d.schedulerOf(link.Index), link.Index)
	}
	if err == nil && !d.config.In.Force {
		saw.obstacle, err = d.machine.Obstacle(link.Index)
	}
	if err == nil {
		saw.classified, saw.missed, err = classified(d.machine, link.Index)
	}
	if errors.Is(err, kernel.ErrNoLink) {
		return situation{}, nil
	}
	return saw, err
}

// speed returns the speed that a link reports, in bits per second; 0 for none, and for a tunnel whose rate
// is that of the link below: a tunnel reports a speed without meaning.
func (c Config) speed(machine Machine, link kernel.Link) (bps uint64, tunnel bool, err error) {
	if c.isAuto() && link.IsTunnel() {
		return 0, true, nil
	}
	bps, err = machine.SpeedBPS(link.Name)
	return bps, false, err
}

// find returns the device by its last name, or else by the configured name unless another uplink
// has that name now. For a bridge it returns the device that stands for it. Without a default route
// Auto is the device that an earlier agent left.
func (d *Device) find() (kernel.Link, error) {
	link, err := d.named(d.held.name)
	if errors.Is(err, kernel.ErrNoLink) && d.config.Name != d.held.name {
		link, err = d.named(d.config.Name)
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
	if errors.Is(err, kernel.ErrNoLink) && d.held.name == Auto {
		return d.saved()
	}
	if err != nil {
		return link, err
	}
	return d.standFor(link)
}

// named returns the device of that name; for Auto that of the default route.
func (d *Device) named(name string) (kernel.Link, error) {
	if name == Auto {
		return d.machine.DefaultLink()
	}
	return d.machine.LinkByName(name)
}

// saved returns the device that an earlier agent shared out.
func (d *Device) saved() (kernel.Link, error) {
	for _, saved := range d.store.Uplinks {
		link, err := d.machine.LinkByIndex(saved.Ifindex)
		if errors.Is(err, kernel.ErrNoLink) || err == nil && link.Kind == kernel.KindIFB {
			continue
		}
		return link, err
	}
	return kernel.Link{}, kernel.ErrNoLink
}

// HoldDown sets whether Auto stays at its device while that is there, wherever the default route leads.
func (d *Device) HoldDown(held bool) { d.heldDown = held }

// moved reports whether another device stands for the configured name by now.
func (d *Device) moved(link kernel.Link) (bool, error) {
	configured := link
	if d.held.standsFor == Auto && d.heldDown {
		return false, nil
	}
	if d.held.standsFor != "" {
		var err error
		configured, err = d.named(d.held.standsFor)
		if errors.Is(err, kernel.ErrNoLink) {
			return false, nil // the device goes on alone
		}
		if err != nil {
			return false, err
		}
	} else if !d.held.isBridge {
		return false, nil
	}
	stands, err := d.standFor(configured)
	other := d.store.NameOf(stands.Index) != "" // another uplink has that device
	return stands.Index != link.Index && !other, err
}

// standFor returns the device to share out in place of a link: the only port that leads outside if
// the link is a bridge, because all traffic that leaves passes it, also that of containers on the
// bridge; the link itself otherwise.
func (d *Device) standFor(link kernel.Link) (kernel.Link, error) {
	if link.Kind != bridgeKind {
		return link, nil
	}
	links, err := d.machine.Links()
	if err != nil {
		return link, err
	}
	links = slices.DeleteFunc(links, func(port kernel.Link) bool {
		return port.MasterIndex != link.Index || !port.Outward()
	})
	if len(links) == 1 {
		return links[0], nil
	}
	return link, nil
}

// bridgeKind is the kernel's name for a bridge.
const bridgeKind = "bridge"

// schedulerOf returns the scheduler of the device with that index.
func (d *Device) schedulerOf(ifindex int) Scheduler {
	if d.scheduler == nil || ifindex != d.held.ifindex {
		return d.machine.Scheduler(ifindex)
	}
	return d.scheduler
}

// root returns the owner of a device's queueing.
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

// configuredRoot returns the root qdisc of a device if it is neither the kernel's default nor the
// scheduler's; nil otherwise.
func configuredRoot(scheduler Scheduler, qdiscs []kernel.Qdisc) *kernel.Qdisc {
	if scheduler.Owns(qdiscs) {
		return nil
	}
	for _, q := range qdiscs {
		// The kernel's default qdiscs have no handle.
		if q.Parent == kernel.HandleRoot && q.Handle != 0 {
			return &q
		}
	}
	return nil
}

// do performs one action.
func (d *Device) do(todo action, saw situation, plan func() sched.Tree, change *Change) error {
	switch todo {
	case move:
		if err := d.takeOff(); err != nil {
			return err
		}
		d.store.Forget(d.held.name)
		fallthrough
	case release:
		d.closeClassifier()
		d.scheduler, d.refused = nil, nil
		d.held.ifindex, d.state = 0, Absent
		change.Lost = true
		if todo == move || d.held.standsFor != "" {
			d.held.capacity = capacity{rateBPS: d.config.RateBPS, precision: d.config.Precision} // of another device
		}
		if d.held.standsFor != "" {
			d.store.Forget(d.held.name) // a saved device counts as another uplink's
			d.held.name, d.held.standsFor = d.held.standsFor, ""
		}
	case claim:
		d.held.ifindex, d.held.mtuBytes, d.held.wasThere = saw.link.Index, saw.link.MTUBytes, true
		d.held.isBridge = saw.link.Kind == bridgeKind
		if saw.link.Name != d.held.name {
			d.held.name, d.held.standsFor = saw.link.Name, d.held.name
		}
		d.held.capacity, _ = d.config.capacity(d.held, saw)
		d.held.uplinkIndex = saw.link.UplinkIndex
		d.record()
		d.scheduler = d.machine.Scheduler(d.held.ifindex)
		d.state = Claimed
	case rename:
		d.held.name = saw.link.Name
		d.record()
		return d.store.Save()
	case follow:
		d.held.mtuBytes = saw.link.MTUBytes
		d.held.capacity, _ = d.config.capacity(d.held, saw)
		change.Moved = change.Moved || saw.link.UplinkIndex != d.held.uplinkIndex
		d.held.uplinkIndex = saw.link.UplinkIndex
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
