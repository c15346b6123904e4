package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/policy"
)

// container is the agent's state of one container, or of the host class.
type container struct {
	attach.Container

	// resolved is the policy from all layers; set is the layer that `weir set` changed.
	resolved policy.Resolution
	set      policy.Values
	// toldRefusals are the refusals that were logged and still hold.
	toldRefusals []refusal
	// shares are its shares of the uplinks, in the order of the uplinks.
	shares []*share
	// earlier holds the totals of devices that are not shared any more, by name: they go on from there
	// when the configuration names the device again.
	earlier    map[string]stats.Totals
	inspection inspection
}

// key identifies a container among those of all sources.
type key struct{ runtime, id string }

func (c *container) key() key { return key{c.Seen.Runtime, c.Seen.ID} }

// policy returns the container's resolved policy.
func (c *container) policy() v1.Policy { return c.resolved.Policy }

// state returns whether the policy is in force, and the reason if it is not.
func (c *container) state() (v1.State, string) {
	state := v1.StateOK
	var reasons []string
	if c.Obstacle != "" {
		state = v1.StateDegraded
		reasons = append(reasons, c.Obstacle)
	}
	for _, p := range c.resolved.Problems {
		state = v1.StateDegraded
		reasons = append(reasons, p.Error())
	}
	complaints := c.Complaints()
	if complaint := c.uninspectedComplaint(time.Now()); complaint != "" {
		complaints = append(complaints, complaint)
	}
	if complaint := c.notReceived(); complaint != "" {
		complaints = append(complaints, complaint)
	}
	if file := c.Seen.Pod.LimitedBy; file != "" {
		complaints = append(complaints, fmt.Sprintf("CNI's bandwidth plugin limits it as well: take the plugin out of %s and start the pod again", file))
	}
	if len(complaints) > 0 {
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
			complaint = share.uplink.says(complaint)
			if c.uplinks() > 1 {
				complaint = share.uplink.name() + ": " + complaint
			}
			reasons = append(reasons, complaint)
		}
	}
	if c.Mode == v1.ModeNone && len(reasons) == 0 {
		return state, "no network: nothing to limit"
	}
	return state, strings.Join(reasons, "; ")
}

// view returns a container for the API.
func (c *container) view(owners owners) v1.Container {
	state, reason := c.state()
	if owner := owners.of(c); owner != nil && reason == "" {
		reason = fmt.Sprintf("it shares the network of %s and is counted there", owner.Seen.Name)
	}
	view := v1.Container{
		ID: c.Seen.ID, Name: c.Seen.Name, Runtime: c.Seen.Runtime, Groups: groups(c), Members: c.Seen.Pod.Members, CountedWith: owners.countedWith(c), Mode: c.Mode,
		State: state, Reason: reason, StartedAt: c.Seen.StartedAt, Direction: v1.Direction{Policy: c.policy(), PolicyFrom: c.resolved.From},
	}
	for _, s := range c.shares {
		direction := &view.Direction
		if s.uplink.of != nil {
			if view.In == nil {
				view.In = &v1.Direction{Policy: c.resolved.In, PolicyFrom: c.resolved.InFrom}
			}
			direction = view.In
		}
		addShare(direction, s.view())
	}
	return view
}

// addShare adds the share of one uplink.
func addShare(to *v1.Direction, share v1.Share) {
	to.EntitledBPS += share.EntitledBPS
	to.AllocatedBPS += share.AllocatedBPS
	to.RateBPS += share.RateBPS
	to.BacklogBytes += share.BacklogBytes
	to.SentBytes += share.SentBytes
	to.SentPackets += share.SentPackets
	to.DroppedPackets += share.DroppedPackets
	to.MarkedPackets += share.MarkedPackets
	to.DelayP50MS = max(to.DelayP50MS, share.DelayP50MS)
	to.DelayP99MS = max(to.DelayP99MS, share.DelayP99MS)
	if to.MeasuredAt.IsZero() || share.MeasuredAt.Before(to.MeasuredAt) {
		to.MeasuredAt = share.MeasuredAt
	}
	to.Classes = addClasses(to.Classes, share.Classes)
	to.Shares = append(to.Shares, share)
}

// notReceived says where the container's values for received traffic have no effect, and what to do; "" for nowhere.
func (c *container) notReceived() string {
	if !c.resolved.HasIncoming() || c.Mode == v1.ModeNone || c.Number == identity.NumberHost {
		return ""
	}
	var without []string
	for _, s := range c.shares {
		if s.uplink.of == nil && s.uplink.in == nil {
			without = append(without, s.uplink.name())
		}
	}
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("its values for received traffic have no effect at %s: give --in-rate, or in_rate in the config file", strings.Join(without, ", "))
}

// receives reports whether any uplink shares what the container receives.
func (c *container) receives() bool {
	return slices.ContainsFunc(c.shares, func(s *share) bool { return s.uplink.of != nil })
}

// uplinks returns the number of uplinks that the container may send through.
func (c *container) uplinks() (count int) {
	for _, s := range c.shares {
		if s.uplink.of == nil {
			count++
		}
	}
	return count
}

// newHost returns the host class, which covers everything that belongs to no known container.
func newHost(p, in v1.Policy) *container {
	return &container{
		Container: attach.Container{
			Seen:   discovery.Container{ID: "host", Name: "host", Runtime: "host"},
			Number: identity.NumberHost,
			Mode:   v1.ModeHost,
		},
		resolved: hostResolution(p, in),
	}
}

// hostResolution returns the policy of the host class, which only the config file sets.
func hostResolution(p, in v1.Policy) policy.Resolution {
	return policy.Resolution{Policy: p, From: hostLayers(p), In: in, InFrom: hostLayers(in)}
}

func hostLayers(p v1.Policy) v1.PolicyFrom {
	from := func(isDefault bool) v1.Layer {
		if isDefault {
			return v1.LayerBuiltIn
		}
		return v1.LayerHost
	}
	builtIn := policy.Default()
	return v1.PolicyFrom{
		Weight: from(p.Weight == builtIn.Weight), Min: from(p.MinBPS == builtIn.MinBPS),
		Max: from(p.MaxBPS == builtIn.MaxBPS), Priority: from(p.Priority == builtIn.Priority),
		Latency: from(p.LatencyMS == builtIn.LatencyMS), Class: from(p.Class == builtIn.Class),
		EFMax: from(p.EFMax == builtIn.EFMax), AFMin: from(p.AFMin == builtIn.AFMin),
		DSCP: from(p.DSCP == builtIn.DSCP),
	}
}
