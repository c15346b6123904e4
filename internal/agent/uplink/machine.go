package uplink

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/datapath/htb"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Machine is the kernel interface of a device's life cycle; *Host implements it. Errors:
// kernel.ErrNoLink for a missing device.
type Machine interface {
	LinkByName(name string) (kernel.Link, error)
	LinkByIndex(ifindex int) (kernel.Link, error)
	// DefaultLink returns the device of the default route.
	DefaultLink() (kernel.Link, error)
	// Links lists all devices.
	Links() ([]kernel.Link, error)
	// SpeedBPS returns the speed that a device reports, in bits per second; 0 if it reports none.
	SpeedBPS(name string) (uint64, error)
	SetGSOMaxBytes(ifindex int, bytes uint32) error

	Qdiscs(ifindex int) ([]kernel.Qdisc, error)
	// Save returns the queueing of a device, in the form that Restore takes.
	Save(ifindex int) ([]kernel.SavedObject, error)
	Restore(ifindex int, objects []kernel.SavedObject) error
	// DeleteRoot deletes the root qdisc, and all below it.
	DeleteRoot(ifindex int) error

	Scheduler(ifindex int) Scheduler
	// OpenClassifier attaches the classifier, or adopts an attached one. Delays may be nil:
	// everything else works without.
	OpenClassifier(ifindex int, majors sched.Majors) (identity.Classifier, Delays, error)
	// Classified reports whether the classifier works, HasClassifier whether it is attached at all. A *Problem as the
	// error of Classified says which packets do not get to a classifier that works.
	Classified(ifindex int) (bool, error)
	HasClassifier(ifindex int) (bool, error)
	// Obstacle says why nothing may be shared at a device; "" for no reason.
	Obstacle(ifindex int) (string, error)
	Declassify(ifindex int) error
	// Discard deletes a device that Weir made, by its name; others stay.
	Discard(name string) error
	// Incoming returns the machine of the IFB for what an uplink receives, given the uplink's
	// present name and index (0 while it is absent).
	Incoming(from func() (name string, ifindex int)) Machine
}

// Scheduler is a scheduler that recognizes its own root among the qdiscs of a device.
type Scheduler interface {
	sched.Backend
	Owns(qdiscs []kernel.Qdisc) bool
}

// Delays measures queueing delays by number; *identity.Delays implements it.
type Delays interface {
	Read(number uint16, dst *identity.Histogram) error
	// ReadClass fills dst with the delays of the packets that were served as one traffic class.
	ReadClass(number uint16, class sched.TrafficClass, dst *identity.Histogram) error
	// Keep drops the delays of numbers for which keep returns false.
	Keep(keep func(number uint16) bool)
	// Pause stops measuring, and so its cost, until Resume.
	Pause() error
	Resume() error
	Close() error
}

// Host is the kernel of the network namespace in which it was opened. It is not safe for concurrent
// use.
type Host struct {
	tc *kernel.TC
	// watcher tracks the origins of packets for all uplinks; nil without classification.
	watcher *identity.Origins
}

// OpenHost opens the kernel of the caller's network namespace.
func OpenHost(watcher *identity.Origins) (*Host, error) {
	tc, err := kernel.OpenTC()
	if err != nil {
		return nil, err
	}
	return &Host{tc: tc, watcher: watcher}, nil
}

// Close closes the handles.
func (h *Host) Close() error { return h.tc.Close() }

// LinkByName implements Machine.
func (*Host) LinkByName(name string) (kernel.Link, error) { return kernel.LinkByName(name) }

// LinkByIndex implements Machine.
func (*Host) LinkByIndex(ifindex int) (kernel.Link, error) { return kernel.LinkByIndex(ifindex) }

// DefaultLink implements Machine.
func (*Host) DefaultLink() (kernel.Link, error) { return kernel.DefaultLink() }

// Links implements Machine.
func (*Host) Links() ([]kernel.Link, error) { return kernel.Links() }

// SpeedBPS implements Machine.
func (*Host) SpeedBPS(name string) (uint64, error) { return kernel.LinkSpeedBPS(name) }

// SetGSOMaxBytes implements Machine.
func (*Host) SetGSOMaxBytes(ifindex int, bytes uint32) error {
	return kernel.SetGSOMaxBytes(ifindex, bytes)
}

// Qdiscs implements Machine.
func (h *Host) Qdiscs(ifindex int) ([]kernel.Qdisc, error) { return h.tc.Qdiscs(ifindex) }

// Save implements Machine.
func (h *Host) Save(ifindex int) ([]kernel.SavedObject, error) { return h.tc.Save(ifindex) }

// Restore implements Machine.
func (h *Host) Restore(ifindex int, objects []kernel.SavedObject) error {
	return h.tc.Restore(ifindex, objects)
}

// DeleteRoot implements Machine.
func (h *Host) DeleteRoot(ifindex int) error {
	qdiscs, err := h.tc.Qdiscs(ifindex)
	if err != nil {
		return err
	}
	root := configuredRoot(h.Scheduler(ifindex), qdiscs)
	if root == nil {
		return nil
	}
	return h.tc.Apply(ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: root}})
}

// Scheduler implements Machine.
func (h *Host) Scheduler(ifindex int) Scheduler { return htb.New(h.tc, ifindex) }

// OpenClassifier implements Machine.
func (h *Host) OpenClassifier(ifindex int, majors sched.Majors) (identity.Classifier, Delays, error) {
	classifier, err := identity.OpenUplink(ifindex, majors, h.watcher)
	if err != nil {
		return nil, nil, err
	}
	return classifier, delaysOf(classifier), nil
}

// delaysOf returns nil if delays cannot be measured; `weir doctor` reports why.
func delaysOf(classifier *identity.Uplink) Delays {
	delays, err := identity.OpenDelays(classifier)
	if err != nil {
		return nil
	}
	return delays
}

// Classified implements Machine.
func (*Host) Classified(ifindex int) (bool, error) { return identity.UplinkAttached(ifindex) }

// HasClassifier implements Machine.
func (*Host) HasClassifier(ifindex int) (bool, error) { return identity.HasUplink(ifindex) }

// Declassify implements Machine.
func (*Host) Declassify(ifindex int) error { return identity.DetachUplink(ifindex) }

// Obstacle implements Machine.
func (*Host) Obstacle(int) (string, error) { return "", nil }

// Discard implements Machine.
func (*Host) Discard(string) error { return nil }

// GiveBack restores a device without an agent, and reports whether any part of Weir was on it. A
// device that the state file knows may have another name by now.
func GiveBack(name string, machine Machine, store *state.Store) (bool, error) {
	d := New(Config{Name: name}, machine, store)
	defer d.Close()
	link, err := kernel.Link{}, kernel.ErrNoLink
	if ifindex := store.IndexOf(name); ifindex != 0 {
		link, err = machine.LinkByIndex(ifindex)
	}
	if errors.Is(err, kernel.ErrNoLink) {
		link, err = machine.LinkByName(name)
	}
	if errors.Is(err, kernel.ErrNoLink) { // an IFB may be gone, and the redirect to it not
		return false, errors.Join(identity.DetachIncoming(store.IndexOf(name)), d.GiveBack())
	}
	if err != nil {
		return false, fmt.Errorf("give %s back: %w", name, err)
	}
	if link.Kind == kernel.KindIFB && strings.HasPrefix(name, incomingPrefix) {
		d.machine = machine.Incoming(func() (string, int) { return "", 0 })
	}
	d.held.ifindex, d.state, d.scheduler = link.Index, Claimed, machine.Scheduler(link.Index)
	found, _, err := root(machine, d.scheduler, link.Index)
	if err != nil {
		return false, err
	}
	return found == ownerWeir, d.GiveBack()
}

// Find returns the devices with Weir's scheduler or classifier, the IFBs that Weir made among them, by
// name. It needs no state file. A device that cannot be asked is left out and part of the error.
func Find(machine Machine) (map[string]kernel.Link, error) {
	links, err := machine.Links()
	if err != nil {
		return nil, err
	}
	found := map[string]kernel.Link{}
	var errs []error
	for _, link := range links {
		owner, _, err := root(machine, machine.Scheduler(link.Index), link.Index)
		there := owner == ownerWeir
		if err == nil && !there {
			there, err = machine.HasClassifier(link.Index)
		}
		switch {
		case errors.Is(err, kernel.ErrNoLink):
		case err != nil:
			errs = append(errs, fmt.Errorf("look for Weir at %s: %w", link.Name, err))
		case there:
			found[link.Name] = link
		}
	}
	return found, errors.Join(errs...)
}

func savedQueueing(objects []kernel.SavedObject) []state.Queueing {
	var saved []state.Queueing
	for _, o := range objects {
		saved = append(saved, state.Queueing{
			IsClass: o.IsClass, Handle: uint32(o.Handle), Parent: uint32(o.Parent),
			Kind: o.Kind, Options: o.Options, Nested: o.Nested,
		})
	}
	return saved
}

func recalledQueueing(saved []state.Queueing) []kernel.SavedObject {
	var objects []kernel.SavedObject
	for _, q := range saved {
		objects = append(objects, kernel.SavedObject{
			IsClass: q.IsClass, Handle: kernel.Handle(q.Handle), Parent: kernel.Handle(q.Parent),
			Kind: q.Kind, Options: q.Options, Nested: q.Nested,
		})
	}
	return objects
}
