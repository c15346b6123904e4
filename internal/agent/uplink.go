package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/alloc"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/sched/htb"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
)

// uplink is a device that is shared out, with its scheduler and classifier,
// and what everybody gets of it.
type uplink struct {
	// index is its place among the agent's uplinks.
	index   int
	name    string
	ifindex int // 0 while the device is gone
	config  UplinkConfig
	rateBPS uint64
	// mtuBytes is the device's, which may change at any time.
	mtuBytes uint32
	// reserveBasisPoints is the part that minimums may not claim.
	reserveBasisPoints uint32
	// reason says why the uplink is not shared out; nil while it is.
	reason error

	store      *state.Store
	tc         *kernel.TC
	backend    sched.Backend
	classifier classifier
	// watcher knows where packets come from, for all uplinks.
	watcher *identity.Origins
	// strangersLimited: the classifier was told so; strangersBytes is what they
	// offered so far.
	strangersLimited bool
	strangersBytes   uint64
	// delays measures how long packets wait; nil where the kernel cannot.
	delays delays
	// statsTurns is how often counters were read for people to look at.
	statsTurns int

	host *share
	// controlled are the shares of containers that have a class, in the order
	// of their numbers; participants are they and the host's.
	controlled   []*share
	participants []*share
	allocator    alloc.Allocator

	// ledger makes totals that only grow of the kernel's counters; measuredAt is
	// when those of all were read last.
	ledger     stats.Ledger
	measuredAt time.Time

	lastLook    time.Time
	lastTraffic time.Time
	lastChange  time.Time
	lastStats   time.Time

	// Scratch space of the control loop.
	competing []alloc.Container
	classes   []sched.Class
	direct    []identity.Direct
	offered   []uint64
	asked     []uint16
	lacking   []uint16
	// inDoubt: counters were asked for, as the rates left doubt who wants more.
	inDoubt    bool
	classStats []sched.Stats
}

// classifier tells the packets of containers apart; *identity.Uplink is it.
type classifier interface {
	// OfferedBytes fills dst, indexed by number, with what each has handed to
	// the uplink.
	OfferedBytes(dst []uint64) error
	// SetDirect says who may go past the classes where nobody waits, in the order
	// of numbers; all others may not.
	SetDirect(link identity.Link, direct []identity.Direct) error
	// DirectSent is what a number has sent that way.
	DirectSent(number uint16) (bytes uint64, packets uint32, err error)
	// TieCgroup makes the packets of a cgroup's sockets count for number.
	TieCgroup(path string, number uint16) error
	// UntieCgroup forgets the cgroup of a number.
	UntieCgroup(number uint16) error
	// LimitStrangers has packets judged by the network namespace they come
	// from, and limits those of unknown ones; 0 ends that.
	LimitStrangers(bps uint64) error
	Close() error
}

// delays are how long packets waited, by number; *identity.Delays is it.
type delays interface {
	Read(number uint16, dst *identity.Histogram) error
	// Pause stops measuring, and so what it costs, until Resume.
	Pause() error
	Resume() error
	Close() error
}

// classifyPackets attaches the classifier, or finds the one that is there.
func (u *uplink) classifyPackets() error {
	classifier, err := identity.OpenUplink(u.ifindex, identity.Majors{Classes: htb.Major, Direct: htb.DirectMajor}, u.watcher)
	if err != nil {
		return err
	}
	u.closeClassifier()
	u.classifier = classifier
	for _, s := range u.controlled {
		s.cgroupTied = false
	}
	// Without the delays all else works; `weir doctor` says why there are none.
	if measured, err := identity.OpenDelays(classifier); err == nil {
		u.delays = measured
	}
	for _, s := range u.participants {
		s.delay = delayWindow{}
	}
	return u.setDirect(u.tree())
}

// setDirect tells the classifier whose packets need not pass through the classes
// where nobody waits: those without a maximum. To be called before a maximum is
// put into force; that those who have none any more get on with it a little early
// does no harm.
func (u *uplink) setDirect(tree sched.Tree) error {
	if u.classifier == nil {
		return nil
	}
	u.direct = u.direct[:0]
	for _, c := range tree.Classes {
		u.direct = append(u.direct, identity.Direct{Number: c.Number, May: c.CeilingOr(tree.RateBPS) == tree.RateBPS})
	}
	link := identity.Link{RateBPS: tree.RateBPS, DirectBytes: htb.DirectBytes(tree),
		ControlBPS: sched.ControlBPS(tree.RateBPS)}
	return u.classifier.SetDirect(link, u.direct)
}

func (u *uplink) closeClassifier() {
	if u.delays != nil {
		u.delays.Close()
		u.delays = nil
	}
	if u.classifier != nil {
		u.classifier.Close()
		u.classifier = nil
	}
	u.strangersLimited = false
}

// newUplink prepares an uplink whose device may be missing yet.
func newUplink(index int, config UplinkConfig, reserveBasisPoints uint32, store *state.Store) (*uplink, error) {
	tc, err := kernel.OpenTC()
	if err != nil {
		return nil, err
	}
	return &uplink{
		index: index, name: config.Name, config: config, rateBPS: config.RateBPS,
		reserveBasisPoints: reserveBasisPoints, store: store, tc: tc, measuredAt: time.Now(),
	}, nil
}

// open claims the uplink. Errors say what to do: no such device, no rate, a
// rate above the device's speed, a qdisc that somebody configured.
func (u *uplink) open() error {
	link, err := kernel.LinkByName(u.name)
	if errors.Is(err, kernel.ErrNoLink) {
		return fmt.Errorf("there is no network device %q here; `ip link` lists those that there are: %w", u.name, err)
	}
	if err != nil {
		return err
	}
	speedBPS, err := kernel.LinkSpeedBPS(u.name)
	if err != nil {
		return err
	}
	rateBPS := u.config.RateBPS
	switch {
	case rateBPS == 0 && speedBPS == 0:
		return fmt.Errorf("%s does not report its speed: say how fast it is, e.g. --rate 100mbit", u.name)
	case rateBPS == 0:
		rateBPS = speedBPS
	case speedBPS != 0 && rateBPS > speedBPS && !u.config.IgnoreLinkSpeed:
		return fmt.Errorf("the rate %s is above the speed of %s, which is %s: give that or less, or leave the rate out (--ignore-link-speed if the device is wrong about itself)",
			policy.FormatRate(rateBPS), u.name, policy.FormatRate(speedBPS))
	}
	u.rateBPS = rateBPS
	return u.bind(link)
}

// bind takes a device, unless it has a qdisc of somebody else.
func (u *uplink) bind(link kernel.Link) error {
	qdiscs, err := u.tc.Qdiscs(link.Index)
	if err != nil {
		return err
	}
	if root := configuredRoot(qdiscs); root != nil && !u.config.Replace {
		return fmt.Errorf("%s carries a %s qdisc (%s) that somebody configured: with --replace it is put aside, and `weir down` puts it back",
			link.Name, root.Options.Kind(), root.Handle)
	}
	u.ifindex, u.name, u.mtuBytes = link.Index, link.Name, link.MTUBytes
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

// limitPackets limits what sockets of the host, and of containers in its
// network, hand to the device at once to what its rate can take.
func (u *uplink) limitPackets() error {
	link, err := kernel.LinkByIndex(u.ifindex)
	if err != nil {
		return err
	}
	saved := u.store.Uplink(u.name)
	if saved.GSOMaxBytes == 0 {
		saved.GSOMaxBytes = link.GSOMaxBytes
	}
	want := min(sched.LinkPacketBytes(u.rateBPS), saved.GSOMaxBytes)
	if link.GSOMaxBytes == want {
		return nil
	}
	return kernel.SetGSOMaxBytes(u.ifindex, want)
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
func (u *uplink) install() error {
	qdiscs, err := u.tc.Qdiscs(u.ifindex)
	if err != nil {
		return err
	}
	if root := configuredRoot(qdiscs); root != nil {
		saved, err := u.tc.Save(u.ifindex)
		if err != nil {
			return fmt.Errorf("put the %s qdisc of %s aside: %w", root.Options.Kind(), u.name, err)
		}
		u.store.Uplink(u.name).Replaced = savedQueueing(saved)
		if err := u.store.Save(); err != nil {
			return err
		}
		if err := u.tc.Apply(u.ifindex, []kernel.Op{{Verb: kernel.Delete, Qdisc: root}}); err != nil {
			return fmt.Errorf("put the %s qdisc of %s aside: %w", root.Options.Kind(), u.name, err)
		}
	}
	err = u.backend.Apply(u.tree())
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
	attached, err := identity.UplinkAttached(u.ifindex)
	if err != nil || attached {
		return err
	}
	return u.classifyPackets()
}

func (u *uplink) lost() bool { return u.ifindex == 0 }

// apply brings the scheduler to the plan. A failure is not the end: it is
// shown, and the next check tries again.
func (u *uplink) apply() error {
	tree := u.tree()
	u.reason = u.setDirect(tree)
	if u.reason == nil {
		u.reason = u.backend.Apply(tree)
	}
	return u.reason
}

func (u *uplink) lose(reason error) {
	u.closeClassifier()
	u.ifindex, u.reason = 0, reason
}

// follow finds the device again: under another name, with another MTU, or made
// anew. Errors: kernel.ErrNoLink while there is none.
func (u *uplink) follow() error {
	if !u.lost() {
		link, err := kernel.LinkByIndex(u.ifindex)
		if err == nil && link.Name != u.name {
			err = u.store.Rename(u.name, link.Name)
			u.name = link.Name
			return err
		}
		if err == nil && link.MTUBytes != u.mtuBytes {
			u.mtuBytes = link.MTUBytes
			return u.apply()
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, kernel.ErrNoLink) {
			return err
		}
		u.lose(fmt.Errorf("%s is gone; it is shared out again when it comes back", u.name))
	}
	if err := u.open(); err != nil {
		if !errors.Is(err, kernel.ErrNoLink) {
			u.reason = err
		}
		return err
	}
	u.reason = nil
	return nil
}

// close lets go of the device without changing it.
func (u *uplink) close() {
	u.closeClassifier()
	u.tc.Close()
}
