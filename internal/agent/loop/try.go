package loop

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
)

// Trial of a policy change, for Set with the present state and for Try with the latest snapshot.

// trial is a container with the policy change to try.
type trial struct {
	name   string
	isHost bool
	// owner is the container whose network it uses and with which it is counted; "" for none.
	owner string
	// controlled: it has a number, so that a minimum can be in force.
	controlled bool
	policy     v1.Policy
	set        policy.Values
	subject    policy.Subject
	rules      policy.Rules
	shares     []triedShare
	// policyIn and sharesIn are of what it receives.
	policyIn v1.Policy
	sharesIn []triedShare
}

// triedShare is the container's share of an uplink.
type triedShare struct {
	link plan.Link
	// heldBPS is its admitted minimum; othersBPS is the sum of all other admitted minimums.
	heldBPS, othersBPS uint64
}

// Try returns the policy that Set would produce, by the latest snapshot, and changes nothing.
// Errors: those of Set.
func (a *Agent) Try(ctx context.Context, name string, change v1.PolicyChange) (v1.Policy, error) {
	seen, err := a.Latest(ctx)
	if err != nil {
		return v1.Policy{}, err
	}
	index, err := Find(seen.Containers, name)
	if err != nil {
		return v1.Policy{}, err
	}
	_, after, err := trialIn(seen, index).try(change)
	return after, err
}

// try returns all values set for a container after a change, and the resulting policy. Errors:
// ErrRefused.
func (t *trial) try(change v1.PolicyChange) (policy.Values, v1.Policy, error) {
	refuse := func(err error) (policy.Values, v1.Policy, error) {
		return policy.Values{}, v1.Policy{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if t.isHost {
		return refuse(errors.New("the host class has its policy in the config file: change it there, then `weir reload`"))
	}
	if t.owner != "" {
		return refuse(fmt.Errorf("%s shares the network of %s and is counted there, where a policy of its own has no effect: use `weir set %[2]s`",
			t.name, t.owner))
	}
	values, err := policy.CheckChange(t.policy, t.policyIn, change)
	if err != nil {
		return refuse(err)
	}
	set := t.set.With(values)
	if values.Class != nil {
		// A value set for another class cannot be removed by itself.
		set = set.OfUse(*values.Class)
	}
	after := t.rules.Resolve(t.subject, set)
	if err := t.admit(t.policy, after.Policy, t.shares, values.MinBPS != nil, values.LatencyMS != nil); err != nil {
		return refuse(err)
	}
	if err := t.admit(t.policyIn, after.In, t.sharesIn, values.InMinBPS != nil, values.InLatencyMS != nil); err != nil {
		return refuse(fmt.Errorf("received traffic: %w", err))
	}
	return set, after.Policy, nil
}

// admit returns an error if the guarantees of a policy that a change asks for could not be put into
// force at any uplink: a guarantee that was refused earlier does not block a change of something
// else. A container that is not controlled has no claim yet, but a minimum above the rate of an empty
// uplink is refused anyway, if the rate is known. Errors: *alloc.FloorError, *alloc.LatencyError.
func (t *trial) admit(before, p v1.Policy, shares []triedShare, asksMin, asksLatency bool) error {
	if !asksMin && !asksLatency && p.MinBPS == before.MinBPS && p.LatencyMS == before.LatencyMS {
		return nil
	}
	if !asksLatency {
		p.LatencyMS = 0
	}
	var refusals []error
	for _, s := range shares {
		othersBPS := s.othersBPS
		if !t.controlled {
			othersBPS = 0
		}
		claim := plan.Claim{FloorBPS: p.MinBPS, HeldBPS: s.heldBPS, Latency: policy.Latency(p)}
		err := s.link.Admits(othersBPS, claim)
		if err == nil || !t.controlled && s.link.RateBPS == 0 {
			return nil
		}
		refusals = append(refusals, err)
	}
	return errors.Join(refusals...)
}

// trialOf returns a trial of a container in its present state.
func (a *Agent) trialOf(c *container) *trial {
	t := &trial{
		name: c.Seen.Name, isHost: c == a.containers.host, controlled: c.Number != 0,
		policy: c.policy(), set: c.set, subject: c.subject(), rules: a.containers.rules,
	}
	if owner := a.containers.owners().of(c); owner != nil {
		t.owner = owner.Seen.Name
	}
	for _, s := range c.shares {
		tried := triedShare{link: s.uplink.link(), heldBPS: s.admittedBPS}
		for _, other := range s.uplink.participants {
			if other != s {
				tried.othersBPS += other.admittedBPS
			}
		}
		if s.uplink.of != nil {
			t.policyIn, t.sharesIn = c.resolved.In, append(t.sharesIn, tried)
		} else {
			t.shares = append(t.shares, tried)
		}
	}
	return t
}

// trialIn returns a trial of the container at an index of a snapshot.
func trialIn(seen *stats.Snapshot, index int) *trial {
	c, place := &seen.Containers[index], &seen.Places[index]
	t := &trial{
		name: c.Name, isHost: index == len(seen.Containers)-1,
		policy: c.Policy, set: place.Set, subject: place.Subject, rules: seen.Rules,
	}
	for i := range seen.Containers {
		if c.CountedWith != "" && seen.Containers[i].ID == c.CountedWith {
			t.owner = seen.Containers[i].Name
		}
	}
	t.shares, t.controlled = triedShares(seen.Links, index, len(seen.Containers), func(i int) []v1.Share { return seen.Containers[i].Shares })
	if c.In != nil {
		t.policyIn = c.In.Policy
		t.sharesIn, _ = triedShares(seen.LinksIn, index, len(seen.Containers), func(i int) []v1.Share { return seen.Containers[i].In.Shares })
	}
	return t
}

// triedShares returns the shares of one of count containers, given the shares of each, and whether it
// is controlled.
func triedShares(links []plan.Link, index, count int, of func(int) []v1.Share) (list []triedShare, controlled bool) {
	for i, share := range of(index) {
		tried := triedShare{link: links[i], heldBPS: share.AdmittedBPS}
		for j := range count {
			if j != index {
				tried.othersBPS += of(j)[i].AdmittedBPS
			}
		}
		list, controlled = append(list, tried), share.Controlled
	}
	return list, controlled
}
