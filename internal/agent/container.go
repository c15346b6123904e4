package agent

import (
	"cmp"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
)

// container is what the agent knows of one container, or of the host class.
type container struct {
	discovery.Container

	// What the users want, by all layers of policy, and of these `weir set`.
	resolved policy.Resolution
	set      policy.Values
	// How its packets are told apart.
	number      uint16 // 0: not controlled
	mode        v1.Mode
	netns       kernel.NetNSID
	netnsID     int // of a configured one: the same, as devices in the agent's namespace name it
	attachments []attachment
	unattached  bool   // its devices are to be looked for again
	obstacle    string // why it is not controlled, in whole or in part

	// published are those of its ports that classifiers are told of, of so many.
	published      []identity.Published
	publishedCount int

	// fragmentsRefused says why IPv4 fragments that the host makes of its packets are the
	// host's.
	fragmentsRefused error

	// flowsSeen: it has a table for its flows, which its taps look at, or are to;
	// flowsRefused says why it has none.
	flowsSeen    bool
	flowsRefused error
	// answersSeen: what its cgroup is sent counts for its flows (host mode), until
	// answersKnown that of an earlier agent may; answersRefused says why it does not.
	answersSeen, answersKnown bool
	answersRefused            error
	// trustRefused says why its DSCP field is not trusted, or still is.
	trustRefused error

	// toldRefusals are those that the log was told of and that have not ended.
	toldRefusals []refusal

	// shares are what it gets, at each uplink, in the order of the uplinks.
	shares []*share
}

// attachment is a device of a container and what was done to it.
type attachment struct {
	identity.Attachment
	// gsoBefore is the device's packet limit before ours.
	gsoBefore uint32
	// saved: the state file has it; only then is the limit changed.
	saved bool
	// refusedLimit is a packet limit that could not be set.
	refusedLimit uint32
	// assigned: the device's packets carry the container's number; flowsRefused says
	// why not the class of their flow.
	assigned     bool
	flowsRefused error
}

// isVeth says whether the device of that index in the agent's namespace is the
// host end of the attachment's veth.
func (at attachment) isVeth(ifindex int) bool {
	return at.Tap.NetNSPath == "" && at.Tap.Ifindex == ifindex
}

// attachment carries over what was done to a device before.
func (c *container) attachment(found identity.Attachment) attachment {
	for _, old := range c.attachments {
		if old.Interface == found.Interface && old.Tap.Ifindex == found.Tap.Ifindex {
			old.assigned = old.assigned && old.Tap == found.Tap
			old.Attachment = found
			return old
		}
	}
	return attachment{Attachment: found, gsoBefore: found.GSOMaxBytes}
}

// bringsSockets says whether packets of the container reach an uplink with
// the socket that they were sent through.
func (c *container) bringsSockets() bool { return c.mode == v1.ModeHost || c.direct() }

// direct says whether the container has a device that is on one of the host's.
func (c *container) direct() bool {
	return slices.ContainsFunc(c.attachments, func(at attachment) bool {
		return at.Mode == v1.ModeMacvlan || at.Mode == v1.ModeIPvlan
	})
}

// key tells containers of all sources apart.
type key struct{ runtime, id string }

func (c *container) key() key { return key{c.Runtime, c.ID} }

// policy is what is asked for.
func (c *container) policy() v1.Policy { return c.resolved.Policy }

// state sums up for the user whether the policy is in force, and why not.
func (c *container) state() (v1.State, string) {
	state := v1.StateOK
	var reasons []string
	if c.obstacle != "" {
		state = v1.StateDegraded
		reasons = append(reasons, c.obstacle)
	}
	for _, p := range c.resolved.Problems {
		state = v1.StateDegraded
		reasons = append(reasons, p.Error())
	}
	if complaint := c.fragmentsComplaint(); complaint != "" {
		state = v1.StateDegraded
		reasons = append(reasons, complaint)
	}
	if complaints := c.flowsComplaints(); len(complaints) > 0 {
		state = v1.StateDegraded
		reasons = append(reasons, complaints...)
	}
	for _, share := range c.shares {
		rejected, complaints := share.complaints()
		if len(complaints) > 0 && state == v1.StateOK {
			state = v1.StateDegraded
		}
		if rejected {
			state = v1.StateRejected
		}
		for _, complaint := range complaints {
			if len(c.shares) > 1 {
				complaint = share.uplink.name + ": " + complaint
			}
			reasons = append(reasons, complaint)
		}
	}
	return state, strings.Join(reasons, "; ")
}

// view is a container as users see it.
func (a *Agent) view(c *container) v1.Container {
	state, reason := c.state()
	view := v1.Container{
		ID: c.ID, Name: c.Name, Runtime: c.Runtime, Groups: groups(c), CountedWith: a.countedWith(c), Mode: c.mode,
		Policy: c.policy(), PolicyFrom: c.resolved.From, State: state, Reason: reason, StartedAt: c.StartedAt,
	}
	for _, s := range c.shares {
		share := s.view()
		view.EntitledBPS += share.EntitledBPS
		view.AllocatedBPS += share.AllocatedBPS
		view.RateBPS += share.RateBPS
		view.BacklogBytes += share.BacklogBytes
		view.SentBytes += share.SentBytes
		view.SentPackets += share.SentPackets
		view.DroppedPackets += share.DroppedPackets
		view.MarkedPackets += share.MarkedPackets
		view.DelayP50MS = max(view.DelayP50MS, share.DelayP50MS)
		view.DelayP99MS = max(view.DelayP99MS, share.DelayP99MS)
		if view.MeasuredAt.IsZero() || share.MeasuredAt.Before(view.MeasuredAt) {
			view.MeasuredAt = share.MeasuredAt
		}
		view.Classes = addClasses(view.Classes, share.Classes)
		view.Shares = append(view.Shares, share)
	}
	return view
}

// newHost is the class of everything that belongs to no known container.
func newHost(p v1.Policy) *container {
	return &container{
		Container: discovery.Container{ID: "host", Name: "host", Runtime: "host"},
		resolved:  hostResolution(p),
		number:    identity.NumberHost,
		mode:      v1.ModeHost,
	}
}

// hostResolution is the policy of the host class, of which the config file decides
// alone.
func hostResolution(p v1.Policy) policy.Resolution {
	from := func(isDefault bool) v1.Layer {
		if isDefault {
			return v1.LayerBuiltIn
		}
		return v1.LayerHost
	}
	builtIn := policy.Default()
	return policy.Resolution{Policy: p, From: v1.PolicyFrom{
		Weight: from(p.Weight == builtIn.Weight), Min: from(p.MinBPS == builtIn.MinBPS),
		Max: from(p.MaxBPS == builtIn.MaxBPS), Priority: from(p.Priority == builtIn.Priority),
		Latency: from(p.LatencyMS == builtIn.LatencyMS), Class: from(p.Class == builtIn.Class),
		EFMax: from(p.EFMax == builtIn.EFMax), AFMin: from(p.AFMin == builtIn.AFMin),
		DSCP: from(p.DSCP == builtIn.DSCP),
	}}
}

// registry holds the containers.
type registry struct {
	byKey    map[key]*container
	byNumber map[uint16]*container
	next     uint16
}

func newRegistry() *registry {
	return &registry{byKey: map[key]*container{}, byNumber: map[uint16]*container{}, next: identity.NumberFirst}
}

// all lists the containers, those that started first first.
func (r *registry) all() []*container {
	list := make([]*container, 0, len(r.byKey))
	for _, c := range r.byKey {
		list = append(list, c)
	}
	slices.SortFunc(list, startOrder)
	return list
}

// inNetNS lists the containers in a network namespace, those that started first first:
// who is looked at first has the policy that counts there.
func (r *registry) inNetNS(netns kernel.NetNSID) []*container {
	var list []*container
	for _, c := range r.byKey {
		if c.netns == netns {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, startOrder)
	return list
}

// controlled lists the containers that have a class, by number.
func (r *registry) controlled() []*container {
	list := make([]*container, 0, len(r.byNumber))
	for _, c := range r.byNumber {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *container) int { return cmp.Compare(a.number, b.number) })
	return list
}

// unattached lists the containers that are to be looked at again, those that
// started first first.
func (r *registry) unattached() []*container {
	var list []*container
	for _, c := range r.byKey {
		if c.unattached {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, startOrder)
	return list
}

func (r *registry) anyUnattached() bool { return len(r.unattached()) > 0 }

// hasVeth says whether the device with that index is the host end of a
// container's veth.
func (r *registry) hasVeth(ifindex int) bool {
	for _, c := range r.byNumber {
		for _, at := range c.attachments {
			if at.isVeth(ifindex) {
				return true
			}
		}
	}
	return false
}

// lostVeth notes that the host end of a veth is gone. Its container is to be
// looked at again: it may have another.
func (r *registry) lostVeth(ifindex int) {
	for _, c := range r.byNumber {
		for _, at := range c.attachments {
			if at.isVeth(ifindex) {
				c.unattached = true
			}
		}
	}
}

// movedVeth notes that the host end of a veth is a port of a bridge. If its container was
// looked at before, that is to be looked at again.
func (r *registry) movedVeth(ifindex, bridge int) {
	if bridge == 0 {
		return // on its way from one to another, or told late
	}
	for _, c := range r.byNumber {
		for _, at := range c.attachments {
			if at.isVeth(ifindex) && at.BridgeIndex != bridge {
				c.unattached = true
			}
		}
	}
}

// assign gives a container a number: the preferred one if it is free, or the
// next in turn, so that a number is not used again while packets of its last
// holder may be on their way. It reports false when all are in use.
func (r *registry) assign(c *container, preferred uint16) bool {
	if r.take(c, preferred) {
		return true
	}
	for range identity.NumberLast - identity.NumberFirst + 1 {
		candidate := r.next
		if r.next++; r.next > identity.NumberLast {
			r.next = identity.NumberFirst
		}
		if r.take(c, candidate) {
			return true
		}
	}
	return false
}

// take gives a container a number if that is one of a container's, and free.
func (r *registry) take(c *container, number uint16) bool {
	if number < identity.NumberFirst || number > identity.NumberLast || r.byNumber[number] != nil {
		return false
	}
	c.number = number
	r.byNumber[number] = c
	return true
}

// release takes a container's number back.
func (r *registry) release(c *container) {
	if c.number != 0 {
		delete(r.byNumber, c.number)
		c.number = 0
	}
}

// sharesNetNS finds the controlled container that has the same network
// namespace.
func (r *registry) sharesNetNS(c *container) *container {
	for _, other := range r.byNumber {
		if other != c && other.netns == c.netns && other.mode != v1.ModeHost {
			return other
		}
	}
	return nil
}
