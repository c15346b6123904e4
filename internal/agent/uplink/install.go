package uplink

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/state"
)

// What is done to a device: scheduler and classifier are put on it, kept to the plan,
// and taken off again.

// record is what is remembered of the device that is there now.
func (d *Device) record() *state.Uplink { return d.store.Uplink(d.held.name, d.held.ifindex) }

// limitPackets limits what sockets of the host, and of containers in its
// network, hand to the device at once to what its rate can take.
func (d *Device) limitPackets(link kernel.Link) error {
	saved := d.record()
	if saved.GSOMaxBytes == 0 {
		saved.GSOMaxBytes = link.GSOMaxBytes
	}
	want := min(sched.LinkPacketBytes(d.held.rateBPS), saved.GSOMaxBytes)
	if link.GSOMaxBytes == want {
		return nil
	}
	// Before the kernel forgets what it was.
	if err := d.store.Save(); err != nil {
		return err
	}
	return d.machine.SetGSOMaxBytes(d.held.ifindex, want)
}

// install puts the scheduler and the classifier on the device, the scheduler
// first: a class must be there before packets name it.
func (d *Device) install(saw situation, tree sched.Tree, change *Change) error {
	change.Unlimited = d.limitPackets(*saw.link)
	d.scheduler.Forget()
	err := d.scheduler.Apply(tree)
	change.Made = true
	if err == nil && (d.classifier == nil || !saw.classified) {
		err = d.classify(tree, change)
	}
	if err != nil {
		// Half a scheduler is worse than the queueing that was there.
		d.state = Claimed
		return errors.Join(err, d.takeOff())
	}
	d.state, d.held.wasInstalled, d.refused = Installed, true, nil
	return nil
}

// classify attaches the classifier, or finds the one that is there, and gives it to
// the scheduler.
func (d *Device) classify(tree sched.Tree, change *Change) error {
	classifier, delays, err := d.machine.OpenClassifier(d.held.ifindex, d.scheduler.Majors())
	if err != nil {
		return err
	}
	d.closeClassifier()
	d.classifier, d.delays = classifier, delays
	change.Classified = true
	return d.scheduler.Connect(tree, classifier)
}

// Apply brings the scheduler of an installed device to a tree. A failure is a
// Problem until one succeeds.
func (d *Device) Apply(tree sched.Tree) error {
	if d.state != Installed {
		return nil
	}
	return d.applied(d.scheduler.Apply(tree))
}

// Turn is one turn of the scheduler of an installed device. Where that changes rates
// a failure is a Problem until it succeeds.
func (d *Device) Turn(now time.Time, count bool) (sched.Turn, error) {
	turn, err := d.scheduler.Turn(now, count)
	if turn.Applied {
		_ = d.applied(err)
	}
	return turn, err
}

// applied takes note of what became of a change.
func (d *Device) applied(err error) error {
	d.refused = nil
	if err != nil {
		d.refused = refused(err)
	}
	return err
}

// Forget has the next Apply compare with what the kernel has.
func (d *Device) Forget() {
	if d.scheduler != nil {
		d.scheduler.Forget()
	}
}

// displace puts somebody else's queueing aside, to be put back by GiveBack.
func (d *Device) displace(what string) error {
	saved, err := d.machine.Save(d.held.ifindex)
	if err != nil {
		return fmt.Errorf("put the %s of %s aside: %w", what, d.held.name, err)
	}
	d.record().Replaced = savedQueueing(saved)
	if err := d.store.Save(); err != nil {
		return err
	}
	if err := d.machine.DeleteRoot(d.held.ifindex); err != nil {
		return fmt.Errorf("put the %s of %s aside: %w", what, d.held.name, err)
	}
	return nil
}

// takeOff takes scheduler and classifier off the device and puts back the
// queueing and the packet limit that were there. What somebody else put there
// meanwhile stays.
func (d *Device) takeOff() error {
	d.closeClassifier()
	saved := d.record()
	err := errors.Join(d.machine.Declassify(d.held.ifindex), d.scheduler.Remove())
	if err == nil && len(saved.Replaced) > 0 {
		var left owner
		if left, _, err = root(d.machine, d.scheduler, d.held.ifindex); err == nil && left == ownerKernel {
			err = d.machine.Restore(d.held.ifindex, recalledQueueing(saved.Replaced))
		}
	}
	if err == nil && saved.GSOMaxBytes > 0 {
		err = d.machine.SetGSOMaxBytes(d.held.ifindex, saved.GSOMaxBytes)
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return fmt.Errorf("give %s back: %w", d.held.name, err)
	}
	return nil
}

// GiveBack makes the device what it was before, and forgets what was remembered of
// it. After a failure the next Advance puts everything on it again.
func (d *Device) GiveBack() error {
	if d.state != Absent {
		d.state = Claimed
		if err := d.takeOff(); err != nil {
			return err
		}
	}
	d.store.Forget(d.held.name)
	return nil
}

// Close lets go of the device without changing it.
func (d *Device) Close() { d.closeClassifier() }

func (d *Device) closeClassifier() {
	if d.delays != nil {
		d.delays.Close()
		d.delays = nil
	}
	if d.classifier != nil {
		if d.scheduler != nil {
			d.scheduler.Disconnect()
		}
		d.classifier.Close()
		d.classifier = nil
	}
}
