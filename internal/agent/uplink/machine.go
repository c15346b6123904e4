package uplink

import (
	"errors"
	"fmt"

	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/sched/htb"
	"github.com/weir-project/weir/internal/state"
)

// Machine is what the life cycle of a device needs of the kernel; *Host is it.
// Where a device is not there the error is kernel.ErrNoLink.
type Machine interface {
	LinkByName(name string) (kernel.Link, error)
	LinkByIndex(ifindex int) (kernel.Link, error)
	// Links lists all devices.
	Links() ([]kernel.Link, error)
	// SpeedBPS is the speed that a device reports; 0 if it does not.
	SpeedBPS(name string) (uint64, error)
	SetGSOMaxBytes(ifindex int, bytes uint32) error

	Qdiscs(ifindex int) ([]kernel.Qdisc, error)
	// Save describes the queueing of a device so that Restore can put it back.
	Save(ifindex int) ([]kernel.SavedObject, error)
	Restore(ifindex int, objects []kernel.SavedObject) error
	// DeleteRoot deletes the root qdisc, and all below it.
	DeleteRoot(ifindex int) error

	Scheduler(ifindex int) Scheduler
	// OpenClassifier attaches the classifier, or finds the one that is there.
	// Without the delays all else works.
	OpenClassifier(ifindex int, majors sched.Majors) (Classifier, Delays, error)
	Classified(ifindex int) (bool, error)
	Declassify(ifindex int) error
}

// Scheduler is a scheduler that knows its own among the qdiscs of a device.
type Scheduler interface {
	sched.Backend
	Owns(qdiscs []kernel.Qdisc) bool
}

// Classifier tells the packets of containers apart; *identity.Uplink is it.
type Classifier interface {
	sched.Traffic
	// AssignCgroup makes the packets of a cgroup's sockets count for number.
	AssignCgroup(path string, number uint16) error
	// UnassignCgroup forgets the cgroup of a number.
	UnassignCgroup(number uint16) error
	// SetTrafficClass says of which traffic class all packets of a number are, or
	// that each flow has its own.
	SetTrafficClass(number uint16, class sched.TrafficClass) error
	// SetMarkDSCP has the DSCP of a number's packets say as which class they were served.
	SetMarkDSCP(number uint16, mark bool) error
	// ClassOffered is what a number has sent of each traffic class since its classes
	// were last forgotten.
	ClassOffered(number uint16) (identity.ClassOffered, error)
	// ForgetClasses makes a number one of no traffic class, which sent nothing yet.
	ForgetClasses(number uint16) error
	// SetPublished says for whom processes of the host's answer at published ports,
	// and of whose it could not say so of all.
	SetPublished(numbers map[identity.Published]uint16) (refused map[uint16]error, err error)
	// SetFragmentDevices says by which devices packets come in of which the tag in an
	// IPv4 fragment is true, by index, and no other.
	SetFragmentDevices(devices map[int]bool) error
	// LimitUnknownOrigins has packets judged by the network namespace they come
	// from, and limits those of unknown ones; 0 ends that.
	LimitUnknownOrigins(bps uint64) error
	Close() error
}

// Delays are how long packets waited, by number; *identity.Delays is it.
type Delays interface {
	Read(number uint16, dst *identity.Histogram) error
	// ReadClass is Read of what was served as one traffic class.
	ReadClass(number uint16, class sched.TrafficClass, dst *identity.Histogram) error
	// Pause stops measuring, and so what it costs, until Resume.
	Pause() error
	Resume() error
	Close() error
}

// Host is the kernel of the network namespace in which it was opened. It is not
// safe for concurrent use.
type Host struct {
	tc *kernel.TC
	// watcher knows where packets come from, for all uplinks; nil if nothing is
	// to be classified.
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

// Close lets go of it.
func (h *Host) Close() error { return h.tc.Close() }

// LinkByName implements Machine.
func (*Host) LinkByName(name string) (kernel.Link, error) { return kernel.LinkByName(name) }

// LinkByIndex implements Machine.
func (*Host) LinkByIndex(ifindex int) (kernel.Link, error) { return kernel.LinkByIndex(ifindex) }

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
func (h *Host) OpenClassifier(ifindex int, majors sched.Majors) (Classifier, Delays, error) {
	classifier, err := identity.OpenUplink(ifindex, majors, h.watcher)
	if err != nil {
		return nil, nil, err
	}
	// `weir doctor` says why there are no delays.
	if delays, err := identity.OpenDelays(classifier); err == nil {
		return classifier, delays, nil
	}
	return classifier, nil, nil
}

// Classified implements Machine.
func (*Host) Classified(ifindex int) (bool, error) { return identity.UplinkAttached(ifindex) }

// Declassify implements Machine.
func (*Host) Declassify(ifindex int) error { return identity.DetachUplink(ifindex) }

// GiveBack gives a device back without an agent, and reports whether anything of
// ours was on it.
func GiveBack(name string, machine Machine, store *state.Store) (bool, error) {
	d := New(Config{Name: name}, machine, store)
	defer d.Close()
	link, err := machine.LinkByName(name)
	if errors.Is(err, kernel.ErrNoLink) {
		return false, d.GiveBack()
	}
	if err != nil {
		return false, fmt.Errorf("give %s back: %w", name, err)
	}
	d.held.ifindex, d.state, d.scheduler = link.Index, Claimed, machine.Scheduler(link.Index)
	found, _, err := root(machine, d.scheduler, link.Index)
	if err != nil {
		return false, err
	}
	return found == ownerWeir, d.GiveBack()
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
