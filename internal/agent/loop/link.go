package loop

import (
	"cmp"
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// link is the agent's state of one uplink, with the shares of all containers.
type link struct {
	// index is its position among the agent's uplinks.
	index int
	// reserveBasisPoints is the part of the rate that minimums may not claim.
	reserveBasisPoints uint32

	device *uplink.Device
	// of is the uplink whose received packets this one shares; nil for what is sent. in is the other
	// way round: the one for what this uplink receives; nil if that is not shared.
	of, in *link
	// suspect: the uplink did not do what it was told, and needs a check.
	suspect bool

	// attached is the attacher's view of the uplink.
	attached attach.Uplink
	// statsTurns counts the readings of counters for users.
	statsTurns int

	host *share
	// controlled holds the shares of containers that have a class, sorted by number; participants
	// are these and the host's share.
	controlled   []*share
	participants []*share
	// hostCompetes: the host class wants more than its reserve, or did recently.
	hostCompetes bool

	// ledger turns the kernel's counters into totals that only grow; measuredAt is the time of the
	// last full reading.
	ledger stats.Ledger
	// classLedger is the ledger of traffic classes, by ledgerKey.
	classLedger stats.Ledger
	measuredAt  time.Time

	// lastStats is the time of the last reading of counters.
	lastStats time.Time

	// Scratch space of the control loop.
	wanted   []sched.Competitor
	snapshot sched.Snapshot
}

func newLink(device *uplink.Device, reserveBasisPoints uint32) *link {
	return &link{
		device: device, reserveBasisPoints: reserveBasisPoints, measuredAt: time.Now(),
		attached: attach.Uplink{UplinkDevice: device},
	}
}

// incoming returns the uplink for what u receives, which is not shared yet.
func (us *uplinks) incoming(u *link, config UplinkConfig) *link {
	of := func() (string, int) { return u.device.Name(), u.device.Ifindex() }
	in := newLink(uplink.New(config.Incoming(u.device.Name()), us.machine.Incoming(of), us.store), u.reserveBasisPoints)
	in.of, in.attached.Incoming = u, true
	u.in = in
	return in
}

// name returns the name of the uplink for users.
func (u *link) name() string {
	return cmp.Or(u.of, u).device.Name()
}

// label returns the name of the uplink for logs, with its direction.
func (u *link) label() string {
	if u.of != nil {
		return u.name() + " (received traffic)"
	}
	return u.name()
}

// says returns a complaint, with the direction that it is about if that is not sent traffic.
func (u *link) says(complaint string) string {
	if u.of != nil {
		return "received traffic: " + complaint
	}
	return complaint
}

// installed reports whether scheduler and classifier are on the device.
func (u *link) installed() bool { return u.device.State() == uplink.Installed }

// link returns the uplink as input for decisions.
func (u *link) link() plan.Link {
	return plan.Link{RateBPS: u.device.RateBPS(), ReserveBasisPoints: u.reserveBasisPoints, MTUBytes: u.device.MTUBytes(), PacketTime: policy.PacketTime(u.device.Precision())}
}

// advance brings the device as far towards Installed as possible.
func (a *Agent) advance(u *link) (changed bool) {
	u.suspect = false
	u.device.HoldDown(time.Now().Before(a.uplinks.heldUntil))
	before, name := u.device.Problem(), u.device.Name()
	change := u.device.Advance(func() sched.Tree {
		return u.plan(a.containers.byKey, a.containers.controlled())
	})
	if u.in != nil && u.device.Name() != name { // which may have a rate of its own
		u.in.device.Configure(u.device.Config().Incoming(u.device.Name()))
	}
	u.readCounters()
	if change.Any {
		u.forgetMeasurements(change)
	}
	a.logChange(u, change, before)
	if u.device.Config().Name == uplink.Auto && change.Lost && change.From == uplink.Installed && u.installed() {
		message := fmt.Sprintf("the default route leads through %s now, which is shared out at %s in place of %s: if their rates differ, list both under uplinks, each with its rate",
			u.name(), policy.FormatRate(u.device.RateBPS()), name)
		a.log.Info(message)
		a.uplinks.moved(time.Now())
		a.events.Add(v1.Event{At: time.Now(), Kind: v1.EventUplinkMoved, Uplink: u.name(), Message: message})
	}
	if change.Adopted {
		u.adoptCounters()
	}
	return change.Any
}

// forgetMeasurements drops measurements of a replaced classifier or scheduler.
func (u *link) forgetMeasurements(change uplink.Change) {
	if change.Made {
		u.ledger.ClassesMade()
		u.classLedger.ClassesMade()
	}
	if change.Classified || !u.installed() {
		for _, s := range u.participants {
			s.delay = delayWindow{}
			s.forgetClassDelays()
		}
	}
	if !u.installed() {
		// Nothing reads the counters any more.
		for _, s := range u.participants {
			s.active, s.measured, s.rate = false, measured{}, stats.Rate{}
		}
	}
}

// logChange logs the state change of an uplink.
func (a *Agent) logChange(u *link, change uplink.Change, before error) {
	if change.Displaced != "" {
		a.log.Warn("replaced the queueing of another program; weir down restores it",
			"uplink", u.label(), "queueing", change.Displaced)
	}
	if change.Unlimited != nil {
		// Not fatal: the uplink cuts larger packets up.
		a.log.Warn("cannot limit the uplink's packets", "uplink", u.label(), "error", change.Unlimited)
	}
	back := change.From == uplink.Installed && change.To == uplink.Installed && (change.Classified && !change.Moved || change.Off)
	if u.of != nil && back {
		what := "the redirect of received packets to %s was gone"
		switch {
		case change.Lost:
			what = "%s was deleted"
		case change.Off:
			what = "%s was switched off"
		}
		message := fmt.Sprintf(what+", and is there again: traffic received at %s meanwhile was not shared", u.device.Name(), u.name())
		a.log.Warn(message)
		a.events.Add(v1.Event{At: time.Now(), Kind: v1.EventRepaired, Uplink: u.name(), Message: message})
	}
	if change.To == uplink.Installed && change.From != uplink.Installed {
		a.log.Info("sharing out the uplink", "uplink", u.label(), "rate_bps", u.device.RateBPS())
	}
	if u.device.Problem() != nil && (before == nil || before.Error() != u.device.Problem().Error()) {
		a.log.Error("the uplink is not shared out as it should be", "uplink", u.label(), "state", change.To, "error", u.device.Problem())
	}
}

// adoptionLooks is the number of times a new agent checks which containers send before it changes
// the allocations of an earlier agent.
const (
	adoptionLooks    = 4
	adoptionInterval = 10 * time.Millisecond
)

// adoptCounters reads the counters and the sending containers, so that a new agent never shows
// smaller totals than the earlier one.
func (u *link) adoptCounters() {
	for range adoptionLooks {
		// The next reconciliation makes missing classes.
		if _, err := u.control(time.Now()); err != nil {
			return
		}
		time.Sleep(adoptionInterval)
	}
}
