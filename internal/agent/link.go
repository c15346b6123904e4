package agent

import (
	"errors"
	"time"

	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/plan"
	"github.com/weir-project/weir/internal/sched"
	"github.com/weir-project/weir/internal/stats"
	"github.com/weir-project/weir/internal/uplink"
)

// link is one direction of a device that is shared out, and what everybody gets of it.
type link struct {
	// index is its place among the agent's uplinks.
	index int
	// reserveBasisPoints is the part that minimums may not claim.
	reserveBasisPoints uint32

	device *uplink.Device
	// What is known of the device since it was advanced last; scheduler,
	// classifier and delays are nil unless it is installed, and delays also where
	// the kernel cannot measure them.
	name     string
	rateBPS  uint64
	mtuBytes uint32
	// bridgeIndex is the device's if it is a bridge, and 0 if not.
	bridgeIndex int
	backend     sched.Backend
	classifier  uplink.Classifier
	delays      uplink.Delays
	// reason says why the uplink is not shared out as it should be; nil while it
	// is.
	reason error
	// suspect: it did not do what was asked of it, and is to be looked at.
	suspect bool

	// tunnels says which devices take packets through this one as the host's; nil
	// if there are none.
	tunnels error

	// followers are programs and filters of others that see packets after the
	// classifier, by name.
	followers []string

	// unknownBPS is what the classifier was told that unknown origins may send, 0 while
	// nothing is watched; unknownBytes is what they offered so far.
	unknownBPS   uint64
	unknownBytes uint64
	// statsTurns is how often counters were read for people to look at.
	statsTurns int

	host *share
	// controlled are the shares of containers that have a class, in the order
	// of their numbers; participants are they and the host's.
	controlled   []*share
	participants []*share
	// hostCompetes: the host class wants more than its reserve, or lately did.
	hostCompetes bool

	// ledger makes totals that only grow of the kernel's counters; measuredAt is
	// when those of all were read last.
	ledger stats.Ledger
	// classLedger is that of traffic classes, by ledgerKey.
	classLedger stats.Ledger
	measuredAt  time.Time

	// lastStats is when counters were last asked for.
	lastStats time.Time

	// Scratch space of the control loop.
	wanted   []sched.Competitor
	snapshot sched.Snapshot
	unknown  [identity.NumberNone + 1]uint64
}

func newLink(index int, device *uplink.Device, reserveBasisPoints uint32) *link {
	u := &link{index: index, device: device, reserveBasisPoints: reserveBasisPoints, measuredAt: time.Now()}
	u.take()
	return u
}

// installed says whether scheduler and classifier work on the device.
func (u *link) installed() bool { return u.device.State() == uplink.Installed }

// link is the uplink as decisions see it.
func (u *link) link() plan.Link {
	return plan.Link{RateBPS: u.rateBPS, ReserveBasisPoints: u.reserveBasisPoints, MTUBytes: u.mtuBytes}
}

// take takes up what is known of the device.
func (u *link) take() {
	d := u.device
	u.name, u.rateBPS, u.mtuBytes = d.Name(), d.RateBPS(), d.MTUBytes()
	u.backend, u.classifier, u.delays = nil, nil, nil
	if u.installed() {
		u.backend, u.classifier, u.delays = d.Scheduler(), d.Classifier(), d.Delays()
	}
	u.bridgeIndex = 0
	if d.IsBridge() {
		u.bridgeIndex = d.Ifindex()
	}
	u.reason = nil
	if problems := d.Problems(); len(problems) > 0 {
		u.reason = errors.New(problems.String())
	}
}

// advance brings the device as far as it can be brought.
func (a *Agent) advance(u *link) (changed bool) {
	u.suspect = false
	before := u.reason
	change := u.device.Advance(func() sched.Tree {
		u.take()
		return u.plan(a.registry.byKey, a.registry.controlled())
	})
	u.take()
	u.ask()
	if change.Any {
		u.forgetMeasurements(change)
	}
	a.tellOf(u, change, before)
	if change.Adopted {
		u.lookAtSenders()
	}
	return change.Any
}

// forgetMeasurements drops what was true of another classifier or scheduler.
func (u *link) forgetMeasurements(change uplink.Change) {
	if change.Made {
		u.ledger.ClassesMade()
		u.classLedger.ClassesMade()
	}
	if change.Classified || !u.installed() {
		u.unknownBPS = 0
		for _, s := range u.participants {
			s.cgroupAssigned, s.cgroupRefused = false, nil
			s.classAssigned, s.classRefused = false, nil
			s.delay = delayWindow{}
			s.forgetClassDelays()
		}
	}
	if !u.installed() {
		// Nobody counts.
		for _, s := range u.participants {
			s.active, s.measured, s.rate = false, measured{}, stats.Rate{}
		}
	}
}

// tellOf tells the log what became of an uplink.
func (a *Agent) tellOf(u *link, change uplink.Change, before error) {
	if change.Displaced != "" {
		a.log.Warn("the queueing of somebody else was put aside; weir down puts it back",
			"uplink", u.name, "queueing", change.Displaced)
	}
	if change.Unlimited != nil {
		// Not fatal: larger packets are cut up.
		a.log.Warn("limit the uplink's packets", "uplink", u.name, "error", change.Unlimited)
	}
	if change.To == uplink.Installed && change.From != uplink.Installed {
		a.log.Info("sharing out the uplink", "uplink", u.name, "rate_bps", u.rateBPS)
	}
	if u.reason != nil && (before == nil || before.Error() != u.reason.Error()) {
		a.log.Error("the uplink is not shared out as it should be", "uplink", u.name, "state", change.To, "error", u.reason)
	}
}

// adoptionLooks is how often a new agent looks at who is sending before it
// changes what an earlier one allocated.
const (
	adoptionLooks    = 4
	adoptionInterval = 10 * time.Millisecond
)

// lookAtSenders finds out what was sent, before anybody is shown less than an
// earlier agent had said, and who is sending.
func (u *link) lookAtSenders() {
	for range adoptionLooks {
		// Classes that are missing are made by the next reconciliation.
		if _, err := u.control(time.Now()); err != nil {
			return
		}
		time.Sleep(adoptionInterval)
	}
}
