package policy

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Received traffic has values of its own, and the rules of sent traffic: the same layers, resolved a
// second time with the values for received traffic under the names of those for sent traffic.

// incoming returns the layers for received traffic.
func (in Inputs) incoming() Inputs {
	received := Inputs{
		Defaults: in.Defaults.incoming(), Set: in.Set.incoming(),
		Labels: incomingLabels(in.Labels), ImageLabels: incomingLabels(in.ImageLabels),
		ImageUnknown: in.ImageUnknown, TrustImageLabels: in.TrustImageLabels, received: true,
	}
	for _, selected := range in.Policies {
		received.Policies = append(received.Policies, Selected{selected.incoming(), selected.InDoubt})
	}
	for _, limits := range in.Limits { // rates of the other direction are no limits for this one
		received.Limits = append(received.Limits, Limits{
			Weight: limits.Weight, Priority: limits.Priority, MinBPS: limits.InMinBPS, MaxBPS: limits.InMaxBPS,
		})
	}
	return received
}

// incoming returns what applies to received traffic without values of its own: the weight, and the
// traffic classes, which are the flows'.
func (r Resolution) incoming() Resolution {
	p, from := Default(), builtIn()
	p.Weight, p.Class, p.EFMax, p.AFMin = r.Policy.Weight, r.Policy.Class, r.Policy.EFMax, r.Policy.AFMin
	from.Weight, from.Class, from.EFMax, from.AFMin = r.From.Weight, r.From.Class, r.From.EFMax, r.From.AFMin
	return Resolution{Policy: p, From: from}
}

// incomingLabels returns the labels for received traffic, under the names of those for sent traffic.
func incomingLabels(labels map[string]string) map[string]string {
	received := map[string]string{}
	for _, name := range IncomingNames() {
		if text, given := labels[Prefix+name]; given {
			received[Prefix+strings.TrimPrefix(name, incoming)] = text
		}
	}
	if alias, given := incomingAlias(labels); given {
		if _, own := received[LabelMax]; !own {
			received[LabelKubernetesMax] = labels[alias]
		}
	}
	return received
}

// incomingAlias returns the label of another project that gives the maximum of received traffic.
func incomingAlias(labels map[string]string) (name string, given bool) {
	aliases := []string{LabelKubernetesIn, LabelDockerTCIn}
	i := slices.IndexFunc(aliases, func(name string) bool { _, given := labels[name]; return given })
	if i < 0 {
		return "", false
	}
	return aliases[i], true
}

// incoming names a problem with received traffic as the user did.
func (p Problem) incoming(labels map[string]string) Problem {
	key, label := strings.CutPrefix(p.Name, Prefix)
	switch alias, _ := incomingAlias(labels); {
	case p.Name == LabelKubernetesMax:
		p.Name = alias
	case label:
		p.Name = LabelIn + key
	default:
		p.Name = incoming + p.Name
	}
	return p
}

// ofIncoming says that an error is of received traffic.
func ofIncoming(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("received traffic: %w", err)
}

// HasIncoming reports whether a container, and not only the config file's defaults, has values of its
// own for received traffic.
func (r Resolution) HasIncoming() bool {
	own := func(layer v1.Layer) bool {
		return layer != "" && rank(layer) != rank(v1.LayerBuiltIn) && layer != v1.LayerDefaults
	}
	return own(r.InFrom.Min) || own(r.InFrom.Max) || own(r.InFrom.Priority) || own(r.InFrom.Latency) ||
		own(r.InFrom.Weight) && (r.InFrom.Weight != r.From.Weight || r.In.Weight != r.Policy.Weight)
}
