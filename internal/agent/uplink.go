package agent

import (
	"errors"
	"fmt"
	"net"

	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/sched/htb"
)

// uplink is the device that is shared out, with its scheduler and classifier.
type uplink struct {
	name    string
	ifindex int // 0 while the device is gone
	rateBPS uint64
	// reason says why the uplink is not shared out; nil while it is.
	reason error

	replace    bool
	store      *store
	tc         *kernel.TC
	lock       net.Listener
	backend    sched.Backend
	classifier classifier
}

// classifier tells the packets of containers apart; *classify.Uplink is it.
type classifier interface {
	OfferedBytes(dst []uint64) error
	Close() error
}

// classifyPackets attaches the classifier, or finds the one that is there.
func (u *uplink) classifyPackets() error {
	classifier, err := classify.OpenUplink(u.ifindex, htb.Major)
	if err != nil {
		return err
	}
	if u.classifier != nil {
		u.classifier.Close()
	}
	u.classifier = classifier
	return nil
}

// openUplink claims the uplink. Errors say what to do: no such device, no
// rate, a rate above the device's speed, another agent, a qdisc that somebody
// configured.
func openUplink(config Config, store *store) (*uplink, error) {
	u := &uplink{name: config.Uplink, rateBPS: config.RateBPS, replace: config.Replace, store: store}
	link, err := kernel.LinkByName(u.name)
	if errors.Is(err, kernel.ErrNoLink) {
		return nil, fmt.Errorf("there is no network device %q here; `ip link` lists those that there are", u.name)
	}
	if err != nil {
		return nil, err
	}
	speedBPS, err := kernel.LinkSpeedBPS(u.name)
	if err != nil {
		return nil, err
	}
	switch {
	case u.rateBPS == 0 && speedBPS == 0:
		return nil, fmt.Errorf("%s does not report its speed: say how fast it is, e.g. --rate 100mbit", u.name)
	case u.rateBPS == 0:
		u.rateBPS = speedBPS
	case speedBPS != 0 && u.rateBPS > speedBPS && !config.IgnoreLinkSpeed:
		return nil, fmt.Errorf("the rate %s is above the speed of %s, which is %s: give that or less, or leave the rate out (--ignore-link-speed if the device is wrong about itself)",
			policy.FormatRate(u.rateBPS), u.name, policy.FormatRate(speedBPS))
	}
	if u.tc, err = kernel.OpenTC(); err != nil {
		return nil, err
	}
	if err := u.bind(link); err != nil {
		u.close()
		return nil, err
	}
	return u, nil
}

// bind claims a device: no other agent, and no qdisc of somebody else.
func (u *uplink) bind(link kernel.Link) error {
	// Abstract sockets belong to the network namespace, as the device does,
	// and go with the process: a lock that cannot be left over.
	lock, err := net.Listen("unix", fmt.Sprintf("@weir/uplink/%d", link.Index))
	if err != nil {
		return fmt.Errorf("another weir agent shares out %s: stop it first", link.Name)
	}
	qdiscs, err := u.tc.Qdiscs(link.Index)
	if err != nil {
		lock.Close()
		return err
	}
	if root := configuredRoot(qdiscs); root != nil && !u.replace {
		lock.Close()
		return fmt.Errorf("%s carries a %s qdisc (%s) that somebody configured: with --replace it is put aside, and `weir down` puts it back",
			link.Name, root.Options.Kind(), root.Handle)
	}
	if u.lock != nil {
		u.lock.Close()
	}
	u.lock, u.ifindex, u.name = lock, link.Index, link.Name
	u.backend = htb.New(u.tc, link.Index)
	return nil
}

// configuredRoot is the root qdisc of a device if it is neither the kernel's
// default nor ours.
func configuredRoot(qdiscs []kernel.Qdisc) *kernel.Qdisc {
	if htb.Owns(qdiscs) {
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

// adopt takes over a scheduler and classifier that an earlier agent left, and
// reports whether there were any.
func (u *uplink) adopt() (bool, error) {
	qdiscs, err := u.tc.Qdiscs(u.ifindex)
	if err != nil || !htb.Owns(qdiscs) {
		return false, err
	}
	err = u.classifyPackets()
	return err == nil, err
}

// install puts the scheduler and the classifier on the device, the scheduler
// first: a class must be there before packets name it.
func (u *uplink) install(tree sched.Tree) error {
	qdiscs, err := u.tc.Qdiscs(u.ifindex)
	if err != nil {
		return err
	}
	if root := configuredRoot(qdiscs); root != nil {
		saved, err := u.tc.Save(u.ifindex)
		if err != nil {
			return fmt.Errorf("put the %s qdisc of %s aside: %w", root.Options.Kind(), u.name, err)
		}
		u.store.state.Replaced = saved
		if err := u.store.save(); err != nil {
			return err
		}
		if err := u.tc.Apply(u.ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: root}}); err != nil {
			return fmt.Errorf("put the %s qdisc of %s aside: %w", root.Options.Kind(), u.name, err)
		}
	}
	err = u.backend.Apply(tree)
	if err == nil {
		err = u.classifyPackets()
	}
	if err != nil {
		// Half a scheduler is worse than the queueing that was there.
		return errors.Join(err, u.giveBack())
	}
	return nil
}

// verify makes sure that the next change is compared with the kernel, and
// that the classifier is there.
func (u *uplink) verify() error {
	u.backend.Forget()
	attached, err := classify.UplinkAttached(u.ifindex)
	if err != nil || attached {
		return err
	}
	return u.classifyPackets()
}

func (u *uplink) lost() bool { return u.ifindex == 0 }

func (u *uplink) lose(reason error) {
	if u.classifier != nil {
		u.classifier.Close()
		u.classifier = nil
	}
	if u.lock != nil {
		// The device may come back with the index it had.
		u.lock.Close()
		u.lock = nil
	}
	u.ifindex, u.reason = 0, reason
}

// follow finds the device again: under another name, or made anew. Errors:
// kernel.ErrNoLink while there is none.
func (u *uplink) follow() error {
	if !u.lost() {
		link, err := kernel.LinkByIndex(u.ifindex)
		if err == nil && link.Name != u.name {
			u.name = link.Name
			return u.store.rename(u.name)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, kernel.ErrNoLink) {
			return err
		}
		u.lose(fmt.Errorf("%s is gone; it is shared out again when it comes back", u.name))
	}
	link, err := kernel.LinkByName(u.name)
	if err != nil {
		return err
	}
	if err := u.bind(link); err != nil {
		u.reason = err
		return err
	}
	u.reason = nil
	return nil
}

// close lets go of the device without changing it.
func (u *uplink) close() {
	if u.classifier != nil {
		u.classifier.Close()
	}
	if u.lock != nil {
		u.lock.Close()
	}
	u.tc.Close()
}
