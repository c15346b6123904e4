package agent

import (
	"maps"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
)

// What a container is to have, of all that speak of it (internal/policy). It is
// found when one of the layers may have changed: the container was seen, something
// was set, the config file was read.

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

// relevantLabels keeps what a policy may read: containers may carry a lot of
// labels, and there may be many containers.
func relevantLabels(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	maps.DeleteFunc(labels, func(name, _ string) bool { return !policy.ReadsLabel(name) })
	return labels
}
