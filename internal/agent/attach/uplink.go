package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// UplinkDevice is the device of an uplink. Implementation: *uplink.Device.
type UplinkDevice interface {
	Name() string
	Ifindex() int
	RateBPS() uint64
	// Classifier returns nil unless the device is installed.
	Classifier() identity.Classifier
}

// Uplink is the attacher's view of one uplink.
type Uplink struct {
	UplinkDevice
	// Incoming: it shares what an uplink receives. Most of what may go wrong with what a container
	// sends does not apply then.
	Incoming bool
	// NoteSenders: what comes back is shared, so the container of each flow is noted.
	NoteSenders bool

	refusals identity.Refusals
	// tunnels names the devices whose packets reach this uplink as the host's.
	tunnels error
	// tunnelsIn names those whose received packets are not shared by container; nil unless others are.
	tunnelsIn error
	// defaultRoute says that the default route leads past the uplinks; nil if it does not.
	defaultRoute error
	// followers are programs and filters of others that see packets after the classifier.
	followers []string
	// passed are the devices that packets pass before they leave by this port of theirs, and where
	// programs or filters of others may take their number.
	passed []identity.Passed
	// below names the devices below it, at any depth, and the outward ports of a bridge.
	below []string
	// unknownBytes counts bytes from unknown network namespaces; offered is scratch space.
	unknownBytes uint64
	offered      [identity.NumberNone + 1]uint64
}

// Problem returns the reason why packets that should leave through the uplink do not, or nil.
func (u *Uplink) Problem() error { return u.defaultRoute }

// Refusal returns the settings of a container that the classifier refused.
func (u *Uplink) Refusal(c *Container) identity.Refusal { return u.refusals.Numbers[c.Number] }

// Complaints lists the problems of identifying the container's packets at this uplink.
func (u *Uplink) Complaints(c *Container) []string {
	reasons := u.Miscounted(c)
	if u.tunnels == nil && u.ReceivesMiscounted(c) {
		reasons = append(reasons, "what it receives through a tunnel is counted as the host's: "+u.tunnelsIn.Error())
	}
	if complaint := u.belowComplaint(c); complaint != "" {
		reasons = append(reasons, complaint)
	}
	return reasons
}

// ReceivesMiscounted reports whether the host receives packets of the container through a tunnel over this
// uplink, as its own.
func (u *Uplink) ReceivesMiscounted(c *Container) bool { return c.isRouted() && u.tunnelsIn != nil }

// Miscounted lists why packets that the container sends, or receives at an uplink of received traffic, may count as
// another's there, or pass it by.
func (u *Uplink) Miscounted(c *Container) (reasons []string) {
	if u.Incoming {
		return u.incomingComplaints(c)
	}
	if err := u.Refusal(c).Cgroup; err != nil && c.SendsFromSockets() {
		reasons = append(reasons, "its sockets cannot be told apart: "+err.Error())
	}
	if c.Number != 0 && len(u.followers) > 0 {
		reasons = append(reasons, fmt.Sprintf("%s at egress of %s comes after Weir's and may change whose class packets are in: remove it, or attach it elsewhere",
			strings.Join(u.followers, ", "), u.Name()))
	}
	if slices.Contains(c.bridged.entrances, u.Ifindex()) {
		reasons = append(reasons, fmt.Sprintf("what it sends to other ports of its bridge is not controlled, as it does not pass %[1]s: name each port that leads out as an uplink instead of %[1]s", u.Name()))
	}
	if c.isRouted() && u.tunnels != nil {
		reasons = append(reasons, "what it sends through a tunnel is counted as the host's: "+u.tunnels.Error())
	}
	if c.isRouted() && u.defaultRoute != nil {
		reasons = append(reasons, u.defaultRoute.Error())
	}
	for _, complaint := range []string{u.publishedComplaint(c), u.passedComplaint(c)} {
		if complaint != "" {
			reasons = append(reasons, complaint)
		}
	}
	return reasons
}

// applyTable sends a table to the classifier of an uplink and logs what it refused.
func (a *Attacher) applyTable(u *Uplink, table identity.Table, list []*Container) {
	before := u.refusals
	if u.Classifier() == nil {
		u.refusals = identity.Refusals{}
		return
	}
	u.refusals = u.Classifier().Apply(table)
	for _, c := range list {
		refusal, had := u.refusals.Numbers[c.Number], before.Numbers[c.Number]
		for what, err := range map[string]error{"assign a cgroup": refusal.Cgroup, "assign a traffic class": refusal.Class, "mark packets": refusal.Mark} {
			if err != nil {
				a.log.Debug(what, "name", c.Seen.Name, "uplink", u.Name(), "error", err)
			}
		}
		if refusal.Published != nil && had.Published == nil {
			a.log.Warn("cannot assign published ports", "name", c.Seen.Name, "uplink", u.Name(), "error", refusal.Published)
		}
	}
	if err := u.refusals.Published; err != nil && before.Published == nil {
		a.log.Warn("cannot assign published ports", "uplink", u.Name(), "error", err)
	}
	if err := u.refusals.Destinations; err != nil {
		a.log.Warn("cannot assign the devices that received packets are for", "uplink", u.Name(), "error", err)
	}
	if err := u.refusals.Index; err != nil {
		a.log.Warn("cannot set the devices whose tags in tc_index are trusted", "uplink", u.Name(), "error", err)
	}
	if err := u.refusals.Senders; err != nil {
		a.log.Warn("cannot note the senders of flows", "uplink", u.Name(), "error", err)
	}
	if err := u.refusals.Unknown; err != nil {
		a.log.Warn("cannot limit unknown origins", "uplink", u.Name(), "error", err)
	}
}

// unknownSent reports whether unknown network namespaces have sent anything since the last call.
func (u *Uplink) unknownSent() bool {
	before := u.unknownBytes
	if u.Classifier() != nil && u.Classifier().OfferedBytes(u.offered[:]) == nil {
		u.unknownBytes = u.offered[identity.NumberNone]
	}
	return u.unknownBytes != before
}

// checkFollowers looks for programs and filters of others that see packets after the classifier.
// They may change the priority, which names the HTB class, and Weir cannot detect that later. It also
// looks for those that see packets before, at the bridge that the uplink is a port of.
func (a *Attacher) checkFollowers(u *Uplink) {
	if u.Classifier() == nil {
		u.followers, u.passed = nil, nil
		return
	}
	passed, err := identity.PassedBefore(u.Ifindex())
	if err != nil {
		a.log.Warn("cannot look for programs of others at the uplink's bridge", "uplink", u.Name(), "error", err)
	} else {
		u.passed = passed
	}
	followers, err := identity.Followers(u.Ifindex())
	if err != nil {
		a.log.Warn("cannot look for programs of others at the uplink", "uplink", u.Name(), "error", err)
		return
	}
	if len(followers) > 0 && !slices.Equal(followers, u.followers) {
		a.log.Warn("programs of others come after the classifier and may change whose class packets are in",
			"uplink", u.Name(), "programs", followers)
	}
	u.followers = followers
}

// Packets that the host puts into a tunnel (GRE, PPPoE, a program's) reach the uplink as the host's, but
// for those whose number is carried (WireGuard, VXLAN); what is received through such a device is the
// host's. If routes lead through one, the affected containers get a complaint that names the device to
// configure as an uplink.
//
// The host's own IPsec has no device, and its packets keep the container's number. Over UDP the outer flow
// is noted as that container's, and so is what is received. A container's own IPsec looks the same here.

// checkRoutes looks for routes that lead past the uplinks, or through devices on top of them.
func (a *Attacher) checkRoutes(uplinks []*Uplink, now time.Time) {
	var indexes []int
	for _, u := range uplinks {
		if u.Ifindex() != 0 && !u.Incoming {
			indexes = append(indexes, u.Ifindex())
		}
	}
	began := time.Now()
	stacked, outside, err := kernel.StackedOn(indexes)
	a.routesFrom = now.Add(max(routesInterval, routesDivisor*time.Since(began)))
	if err != nil {
		a.log.Warn("cannot look for routes past the uplinks", "error", err)
		return
	}
	if a.IgnoreDefaultRoute || len(indexes) == 0 { // else the uplinks are missing, which they say
		outside = nil
	}
	for _, u := range uplinks {
		if u.Classifier() != nil && !u.Incoming {
			err = errors.Join(err, u.Classifier().Carry(u.stackedOn(stacked)))
		}
	}
	if err = errors.Join(err, identity.DetachCarriers(stacked)); err != nil {
		a.log.Warn("what containers send through tunnels may count as the host's", "error", err)
	}
	setRoutes(uplinks, stacked, identity.NotCarried(stacked), outside)
}

// stackedOn returns those of the devices that are stacked on the uplink.
func (u *Uplink) stackedOn(all []kernel.Stacked) []kernel.Stacked {
	return slices.DeleteFunc(slices.Clone(all), func(s kernel.Stacked) bool { return s.On != u.Name() })
}

// setRoutes assigns each uplink the devices on top of it, those of these whose numbers are not carried, and
// the devices of default routes past all.
func setRoutes(uplinks []*Uplink, stacked, notCarried []kernel.Stacked, outside []string) {
	for _, u := range uplinks {
		u.tunnels, u.tunnelsIn, u.defaultRoute = identity.TunnelProblem(u.stackedOn(notCarried)), nil, identity.DefaultRouteProblem(outside)
		if u.NoteSenders { // what comes back is shared
			u.tunnelsIn = identity.TunnelProblem(u.stackedOn(stacked))
		}
	}
}
