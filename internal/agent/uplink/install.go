package uplink

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// Changes to a device: install scheduler and classifier, apply the plan, and remove both.

// record returns the state file's entry of the present device.
func (d *Device) record() *state.Uplink { return d.store.Uplink(d.held.name, d.held.ifindex) }

// limitPackets limits the packets that sockets of the host, and of host-mode containers, hand to
// the device to a size that suits its rate.
func (d *Device) limitPackets(link kernel.Link) error {
	saved := d.record()
	if saved.GSOMaxBytes == 0 {
		saved.GSOMaxBytes = link.GSOMaxBytes
	}
	want := min(sched.LinkPacketBytes(d.held.rateBPS, policy.PacketTime(d.held.precision)), saved.GSOMaxBytes)
	if link.GSOMaxBytes == want {
		return nil
	}
	// Save the old limit before the kernel forgets it.
	if err := d.store.Save(); err != nil {
		return err
	}
	return d.machine.SetGSOMaxBytes(d.held.ifindex, want)
}

// install puts the scheduler and the classifier on the device. The scheduler comes first, because a
// class must exist before packets name it.
func (d *Device) install(saw situation, tree sched.Tree, change *Change) error {
	change.Unlimited = d.limitPackets(*saw.link)
	d.scheduler.Forget()
	err := d.scheduler.Apply(tree)
	change.Made = true
	if err == nil && (d.classifier == nil || !saw.classified) {
		err = d.classify(tree, change)
	}
	if err != nil {
		// Half a scheduler is worse than the previous queueing.
		d.state = Claimed
		return errors.Join(err, d.takeOff())
	}
	d.state, d.held.wasInstalled, d.refused = Installed, true, nil
	return nil
}

// classify attaches the classifier, or adopts an attached one, and connects it to the scheduler.
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

// Apply applies a tree to the scheduler of an installed device. A failure is a Problem until a
// later Apply succeeds.
func (d *Device) Apply(tree sched.Tree) error {
	if d.state != Installed {
		return nil
	}
	return d.applied(d.scheduler.Apply(tree))
}

// Turn runs one turn of the scheduler of an installed device. A failed change of rates is a Problem
// until a change succeeds.
func (d *Device) Turn(now time.Time, count bool) (sched.Turn, error) {
	turn, err := d.scheduler.Turn(now, count)
	if turn.Applied {
		_ = d.applied(err)
	}
	return turn, err
}

// applied records the result of a change.
func (d *Device) applied(err error) error {
	d.refused = nil
	if err != nil {
		d.refused = refused(err)
	}
	return err
}

// Forget makes the next Apply compare with the kernel's state.
func (d *Device) Forget() {
	if d.scheduler != nil {
		d.scheduler.Forget()
	}
}

// displace removes the queueing of another program and saves it for GiveBack.
func (d *Device) displace(what string) error {
	saved, err := d.machine.Save(d.held.ifindex)
	if err != nil {
		return fmt.Errorf("replace the %s of %s: %w", what, d.held.name, err)
	}
	d.record().Replaced = savedQueueing(saved)
	if err := d.store.Save(); err != nil {
		return err
	}
	if err := d.machine.DeleteRoot(d.held.ifindex); err != nil {
		return fmt.Errorf("replace the %s of %s: %w", what, d.held.name, err)
	}
	return nil
}

// takeOff removes scheduler and classifier from the device and restores the saved queueing and
// packet limit. It keeps queueing that another program has installed meanwhile.
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

// GiveBack restores the device to its state before Weir, and drops its entry in the state file.
// After a failure the next Advance installs everything again.
func (d *Device) GiveBack() error {
	if d.state != Absent {
		d.state = Claimed
		if err := d.takeOff(); err != nil {
			return err
		}
	}
	if err := d.machine.Discard(d.held.name); err != nil {
		return err
	}
	d.store.Forget(d.held.name)
	return nil
}

// Close closes all handles and changes nothing in the kernel.
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
