package agent

import (
	"cmp"
	"maps"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/sched"
)

// Who runs, as the sources of containers tell, and what each is to have, of all that
// speak of it (internal/policy). That is found when one of the layers may have changed:
// the container was seen, something was set, the config file was read.

// learn takes one event of a source in.
func (a *Agent) learn(event discovery.Event) {
	source := v1.Source{Name: event.Source, Connected: event.Disconnected == nil}
	switch {
	case event.Disconnected != nil:
		source.Reason = event.Disconnected.Error()
		if old := a.sources[event.Source]; old.Connected {
			a.log.Warn("lost a source of containers; those that are known stay as they are",
				"source", event.Source, "error", event.Disconnected)
		}
	case event.Snapshot != nil:
		running := map[key]bool{}
		// Whose network it is comes before those that joined it.
		slices.SortStableFunc(event.Snapshot.Containers, func(c, d discovery.Container) int {
			return cmp.Compare(min(len(c.SharesNetworkOf), 1), min(len(d.SharesNetworkOf), 1))
		})
		for _, c := range event.Snapshot.Containers {
			running[key{c.Runtime, c.ID}] = true
			a.update(c)
		}
		for k, c := range a.registry.byKey {
			if c.Runtime == event.Source && !running[k] {
				a.forget(c)
			}
		}
	case event.Updated != nil:
		a.update(*event.Updated)
	default:
		if c := a.registry.byKey[key{event.Source, event.RemovedID}]; c != nil {
			a.forget(c)
		}
	}
	a.sources[event.Source] = source
}

// update takes in a container that started or changed.
func (a *Agent) update(seen discovery.Container) {
	k := key{seen.Runtime, seen.ID}
	c := a.registry.byKey[k]
	if c != nil && !c.StartedAt.IsZero() && !c.StartedAt.Equal(seen.StartedAt) {
		// It stopped and started while nobody looked: what was set for its
		// last run ended with it.
		a.forget(c)
		c = nil
	}
	if c == nil {
		c = &container{}
		a.addShares(c)
		a.registry.byKey[k] = c
		a.log.Info("container started", "name", seen.Name, "id", short(seen.ID), "runtime", seen.Runtime)
	}
	c.Container = seen
	c.published, c.publishedCount = published(seen.Ports)
	c.Labels = relevantLabels(seen.Labels)
	c.ImageLabels = relevantLabels(seen.ImageLabels)
	a.resolve(c)
	a.inspect(c)
}

// short is an ID as people see it.
func short(id string) string { return id[:min(len(id), 12)] }

// forget drops a container that stopped. Its devices went with it; its class
// goes with the next reconciliation.
func (a *Agent) forget(c *container) {
	a.log.Info("container stopped", "name", c.Name, "id", short(c.ID), "runtime", c.Runtime)
	a.release(c)
	delete(a.registry.byKey, c.key())
	if c.netns == (kernel.NetNSID{}) {
		return
	}
	// Those that joined its network are now on their own in there.
	for _, other := range a.registry.inNetNS(c.netns) {
		a.inspect(other)
	}
}

// release ends the control of a container and undoes what was done to its
// devices, where they still are.
func (a *Agent) release(c *container) {
	if err := undo(c.NetNSPath, c.number, c.attachments); err != nil {
		a.log.Warn("give a container's devices back", "name", c.Name, "error", err)
	}
	a.unassignCgroups(c)
	if c.number != 0 {
		a.forgetTraffic(c, c.number)
	}
	a.registry.release(c)
	c.attachments = nil
	for _, s := range c.shares {
		s.class = sched.State{}
	}
}

// subject is a container as the layers of policy know it.
func (c *container) subject() policy.Subject {
	return policy.Subject{
		Name: c.Name, Image: c.Image,
		Labels: c.Labels, ImageLabels: c.ImageLabels, ImageUnknown: c.ImageUnknown,
	}
}

// resolve puts the layers of a container's policy on each other, and logs what of
// them is not honoured and was not known before.
func (a *Agent) resolve(c *container) {
	before := c.resolved.Problems
	c.resolved = a.config.Rules.Resolve(c.subject(), c.set)
	if slices.Equal(before, c.resolved.Problems) { // a container is seen more than once
		return
	}
	for _, p := range c.resolved.Problems {
		a.log.Warn("label is not honoured", "name", c.Name, "problem", p.Error())
	}
}

// relevantLabels keeps what a policy may read: containers may carry a lot of
// labels, and there may be many containers.
func relevantLabels(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	maps.DeleteFunc(labels, func(name, _ string) bool { return !policy.ReadsLabel(name) })
	return labels
}
