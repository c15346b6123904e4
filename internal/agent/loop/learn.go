package loop

import (
	"cmp"
	"maps"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// Discovery events, and the policy of each container from all layers (internal/share/policy). A
// policy is resolved again when a layer may have changed: the source reported the container, `weir
// set` changed it, or the config file was read.

// learnNext handles one of several events that wait. Users learn of changes by comparing snapshots, so what the event would
// undo before a snapshot has it is published first: a container that starts and ends at once, a source that comes back.
func (cs *containers) learnNext(event discovery.Event, publish func()) {
	if cs.undoesUnpublished(event) {
		publish()
	}
	cs.learn(event)
}

// undoesUnpublished reports whether the event ends a container, or changes whether its source is connected, as no published
// snapshot has it yet.
func (cs *containers) undoesUnpublished(event discovery.Event) bool {
	connects := event.Disconnected == nil
	switch {
	case cs.unpublished.sources[event.Source] && connects != cs.sources[event.Source].Connected:
		return true
	case !connects:
		return false
	case event.Snapshot != nil: // it may lack any of them
		for c := range cs.unpublished.started {
			if c.Seen.Runtime == event.Source {
				return true
			}
		}
		return false
	case event.Updated != nil:
		c := cs.byKey[key{event.Source, event.Updated.ID}]
		return cs.unpublished.started[c] && c.isEarlierRun(event.Updated)
	default:
		return cs.unpublished.started[cs.byKey[key{event.Source, event.RemovedID}]]
	}
}

// learn handles one event of a source.
func (cs *containers) learn(event discovery.Event) {
	source := v1.Source{Name: event.Source, Connected: event.Disconnected == nil}
	switch {
	case event.Disconnected != nil:
		source.Reason = event.Disconnected.Error()
		if old := cs.sources[event.Source]; old.Connected {
			cs.log.Warn("lost a source of containers; known containers keep their shares",
				"source", event.Source, "error", event.Disconnected)
		}
	case event.Snapshot != nil:
		running := map[key]bool{}
		// The owner of a network comes before the containers that joined it.
		slices.SortStableFunc(event.Snapshot.Containers, func(c, d discovery.Container) int {
			return cmp.Compare(min(len(c.SharesNetworkOf), 1), min(len(d.SharesNetworkOf), 1))
		})
		for _, c := range event.Snapshot.Containers {
			running[key{c.Runtime, c.ID}] = true
			cs.update(c)
		}
		for _, id := range event.Snapshot.Uninspected {
			running[key{event.Source, id}] = true
		}
		for k, c := range cs.byKey {
			if c.Seen.Runtime == event.Source && !running[k] {
				cs.forget(c)
			}
		}
	case event.Updated != nil:
		cs.update(*event.Updated)
	default:
		if c := cs.byKey[key{event.Source, event.RemovedID}]; c != nil {
			cs.forget(c)
		}
	}
	if source.Connected != cs.sources[event.Source].Connected {
		cs.unpublished.sources[event.Source] = true
	}
	cs.sources[event.Source] = source
}

// update handles a container that started or changed.
func (cs *containers) update(seen discovery.Container) {
	k := key{seen.Runtime, seen.ID}
	c := cs.byKey[k]
	if c != nil && c.isEarlierRun(&seen) {
		// It was restarted unseen: `weir set` changes ended with the previous run.
		cs.forget(c)
		c = nil
	}
	if c == nil {
		c = &container{}
		cs.addShares(c)
		cs.byKey[k] = c
		cs.unpublished.started[c] = true
		cs.log.Info("container started", "name", seen.Name, "id", short(seen.ID), "runtime", seen.Runtime)
	}
	c.keepImage(&seen)
	c.Learn(seen)
	c.Seen.Labels = relevantLabels(seen.Labels)
	c.Seen.ImageLabels = relevantLabels(seen.ImageLabels)
	cs.resolve(c)
	cs.inspect(c)
}

// isEarlierRun reports whether the container was restarted since it was reported last.
func (c *container) isEarlierRun(seen *discovery.Container) bool {
	return !c.Seen.StartedAt.IsZero() && !c.Seen.StartedAt.Equal(seen.StartedAt)
}

// keepImage keeps what is known of the container's image until the container ends: a later report may be without it, because
// the image is gone, or have the labels of another image, which has the name now. A container of containerd keeps its name, too,
// which is nerdctl's or the ID depending on these labels, unless it was renamed.
func (c *container) keepImage(seen *discovery.Container) {
	was := c.Seen
	if was.ImageUnknown != "" || was.Image != seen.Image || was.StartedAt.IsZero() {
		return
	}
	seen.ImageLabels, seen.ImageUnknown = was.ImageLabels, ""
	if seen.Runtime == v1.RuntimeContainerd && seen.Labels[policy.LabelNerdctlName] == was.Labels[policy.LabelNerdctlName] {
		seen.Name, seen.Pod.Name = was.Name, was.Pod.Name
	}
}

// short returns the short form of an ID.
func short(id string) string { return id[:min(len(id), 12)] }

// forget drops a container that stopped. Its devices are gone; the next reconciliation removes its
// class.
func (cs *containers) forget(c *container) {
	cs.log.Info("container stopped", "name", c.Seen.Name, "id", short(c.Seen.ID), "runtime", c.Seen.Runtime)
	cs.release(c)
	delete(cs.byKey, c.key())
	delete(cs.unpublished.started, c)
	if c.NetNS == (kernel.NetNSID{}) {
		return
	}
	// Containers that joined its network now have that network for themselves.
	for _, other := range cs.inNetNS(c.NetNS) {
		cs.inspect(other)
	}
}

// release ends the control of a container and undoes the changes to its remaining devices.
func (cs *containers) release(c *container) {
	cs.attach.Release(&c.Container, cs.uplinks.attachments())
	cs.free(c)
	for _, s := range c.shares {
		s.class = sched.State{}
	}
}

// subject returns the container as policy layers and rules see it.
func (c *container) subject() policy.Subject {
	return policy.Subject{
		Name: c.Seen.Name, Image: c.Seen.Image,
		Labels: c.Seen.Labels, ImageLabels: c.Seen.ImageLabels, ImageUnknown: c.Seen.ImageUnknown,
		Configured: c.Seen.Configured,
	}
}

// resolve computes the container's policy from all layers, and logs new problems.
func (cs *containers) resolve(c *container) {
	before := c.resolved.Problems
	c.resolved = cs.rules.Resolve(c.subject(), c.set)
	p := c.policy()
	c.Want.Class, c.Want.TrustDSCP, c.Want.MarkDSCP = trafficClass(p.Class), policy.TrustsDSCP(p), policy.MarksDSCP(p)
	if slices.Equal(before, c.resolved.Problems) { // a container is reported more than once
		return
	}
	for _, p := range c.resolved.Problems {
		cs.log.Warn("label is not honoured", "name", c.Seen.Name, "problem", p.Error())
	}
}

// relevantLabels returns the labels that the agent reads: of policies, and the role that weir-edge
// gave. Containers may carry many others.
func relevantLabels(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	maps.DeleteFunc(labels, func(name, _ string) bool { return name != v1.LabelEdgeRole && !policy.ReadsLabel(name) })
	return labels
}
