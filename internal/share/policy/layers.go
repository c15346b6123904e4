package policy

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
)

// Values are the policy values that one layer sets: nil if not set, zero for "none" where
// [v1.Policy] allows it.
type Values struct {
	Weight    *uint32
	MinBPS    *uint64
	MaxBPS    *uint64
	Priority  *uint32
	LatencyMS *float64
	Class     *v1.Class
	EFMax     *v1.Part
	AFMin     *v1.Part
	DSCP      *v1.DSCP
	// The values for received traffic.
	InWeight    *uint32
	InMinBPS    *uint64
	InMaxBPS    *uint64
	InPriority  *uint32
	InLatencyMS *float64
}

// incoming returns the values for received traffic as those of a policy of its own.
func (v Values) incoming() Values {
	return Values{Weight: v.InWeight, MinBPS: v.InMinBPS, MaxBPS: v.InMaxBPS, Priority: v.InPriority, LatencyMS: v.InLatencyMS}
}

// Limits are the highest values that labels may request; nil means no limit.
type Limits struct {
	Weight   *uint32
	MinBPS   *uint64
	MaxBPS   *uint64
	Priority *uint32
	// InMinBPS and InMaxBPS are those of received traffic.
	InMinBPS *uint64
	InMaxBPS *uint64
}

// Inputs are the layers of one container's policy, lowest first. Each value is taken from
// the highest layer that sets it, or else from the built-in defaults.
type Inputs struct {
	Defaults Values
	// Labels are all labels of the container, including its image's.
	Labels map[string]string
	// ImageLabels are the labels of the image. A container label with the same value
	// counts as the image's, because engines do not distinguish them.
	ImageLabels map[string]string
	// ImageUnknown says why the image's labels are unknown; empty if they are known.
	ImageUnknown string
	// TrustImageLabels allows image labels to request guarantees.
	TrustImageLabels bool
	// Limits cap the values of labels. With several, the lowest applies.
	Limits []Limits
	// Policies are the config file's policies for this container; later ones override earlier ones.
	Policies []Selected
	Set      Values // `weir set`
	// received: these are the layers for received traffic; their unknown names are reported with
	// those for what goes out.
	received bool
}

// Selected is a policy of the config file that selects a container.
type Selected struct {
	Values
	// InDoubt: the label by which it selects the container may be that of the image, which is unknown. Neither side may
	// err then: another's minimum is not for the image to take, and the operator's maximum is not to be lost. So values
	// that limit the container apply, and values that take capacity from other containers do not.
	InDoubt bool
}

// Resolution is the resolved policy of one container.
type Resolution struct {
	Policy   v1.Policy
	From     v1.PolicyFrom
	Problems []Problem // sorted by name
	// In is the policy for received traffic, and InFrom the layers of its values.
	In     v1.Policy
	InFrom v1.PolicyFrom
}

// Resolve merges the layers into a policy and returns the layer of each value. The policy
// is always valid. Problems list values that were not honoured and that no higher layer
// replaced.
func Resolve(in Inputs) Resolution {
	r := resolve(in, Resolution{Policy: Default(), From: builtIn()})
	received := resolve(in.incoming(), r.incoming())
	r.In, r.InFrom = received.Policy, received.From
	for _, p := range received.Problems {
		r.Problems = append(r.Problems, p.incoming(in.Labels))
	}
	slices.SortStableFunc(r.Problems, byName)
	return r
}

func builtIn() v1.PolicyFrom {
	return v1.PolicyFrom{
		Weight: v1.LayerBuiltIn, Min: v1.LayerBuiltIn, Max: v1.LayerBuiltIn,
		Priority: v1.LayerBuiltIn, Latency: v1.LayerBuiltIn, Class: v1.LayerBuiltIn,
		EFMax: v1.LayerBuiltIn, AFMin: v1.LayerBuiltIn, DSCP: v1.LayerBuiltIn,
	}
}

// resolve puts the layers onto what applies without them.
func resolve(in Inputs, without Resolution) Resolution {
	r := resolver{Inputs: in, result: without}
	r.take(v1.LayerDefaults, in.Defaults)
	r.takeLabels()
	for _, selected := range in.Policies {
		if selected.InDoubt {
			selected.Values = r.onlyLimits(selected.Values)
		}
		r.take(v1.LayerPolicies, selected.Values)
	}
	r.take(v1.LayerSet, in.Set)
	r.reconcile()
	r.conclude()
	return r.result
}

// resolver is the state of Resolve.
type resolver struct {
	Inputs
	result Resolution
	// claims are problems that are dropped when a higher layer sets the value.
	claims []claim
}

// claim is a problem with one value of a layer.
type claim struct {
	key   string // the value's name, one of Names; empty for none
	layer v1.Layer
	Problem
}

// take applies the values of a layer.
func (r *resolver) take(layer v1.Layer, values Values) {
	p, from := &r.result.Policy, &r.result.From
	replace(r, "weight", &p.Weight, &from.Weight, values.Weight, layer)
	replace(r, "min", &p.MinBPS, &from.Min, values.MinBPS, layer)
	replace(r, "max", &p.MaxBPS, &from.Max, values.MaxBPS, layer)
	replace(r, "priority", &p.Priority, &from.Priority, values.Priority, layer)
	replace(r, "latency", &p.LatencyMS, &from.Latency, values.LatencyMS, layer)
	replace(r, "class", &p.Class, &from.Class, values.Class, layer)
	replace(r, "ef-max", &p.EFMax, &from.EFMax, values.EFMax, layer)
	replace(r, "af-min", &p.AFMin, &from.AFMin, values.AFMin, layer)
	replace(r, "dscp", &p.DSCP, &from.DSCP, values.DSCP, layer)
}

// replace sets a value, which settles the problems with that of an earlier policy.
func replace[T any](r *resolver, key string, field *T, from *v1.Layer, value *T, layer v1.Layer) {
	if value == nil {
		return
	}
	*field, *from = *value, layer
	r.claims = slices.DeleteFunc(r.claims, func(c claim) bool { return c.key == key && c.layer == layer })
}

// onlyLimits returns the values of a policy that take no capacity from other containers, compared with those of the layers
// below, and reports the others.
func (r *resolver) onlyLimits(v Values) Values {
	p := r.result.Policy
	refuse(r, "weight", &v.Weight, func(weight uint32) bool { return weight > p.Weight }, formatValue)
	refuse(r, "min", &v.MinBPS, func(bps uint64) bool { return bps > p.MinBPS }, FormatRate)
	refuse(r, "max", &v.MaxBPS, func(bps uint64) bool { return raisesMax(bps, p.MaxBPS) }, func(bps uint64) string {
		if bps == 0 {
			return "none"
		}
		return FormatRate(bps)
	})
	refuse(r, "priority", &v.Priority, func(priority uint32) bool { return priority > p.Priority }, formatValue)
	refuse(r, "latency", &v.LatencyMS, func(ms float64) bool { return ms != 0 && (p.LatencyMS == 0 || ms < p.LatencyMS) }, func(ms float64) string {
		return Latency(v1.Policy{LatencyMS: ms}).String()
	})
	refuse(r, "class", &v.Class, func(class v1.Class) bool { return class != p.Class }, formatValue)
	refuse(r, "ef-max", &v.EFMax, func(part v1.Part) bool { return part != p.EFMax }, FormatPart)
	refuse(r, "dscp", &v.DSCP, func(dscp v1.DSCP) bool { return dscp != p.DSCP }, formatValue)
	return v
}

// refuse takes a value out of a policy in doubt, and reports it, if it takes capacity from other containers.
func refuse[T any](r *resolver, key string, value **T, takes func(T) bool, format func(T) string) {
	if *value == nil || !takes(**value) {
		return
	}
	r.complain(key, v1.LayerPolicies, "", format(**value), fmt.Sprintf(
		"the name, project or service that selects the policy may come with the image, whose labels cannot be read (%s); select by image, or set trust_image_labels: true", r.ImageUnknown))
	*value = nil
}

// formatValue returns the text of a number, a class or a use of the DSCP field.
func formatValue[T any](value T) string { return cmp.Or(fmt.Sprint(value), "none") }

// raisesMax reports whether a maximum is above that of the layers below. 0 is none.
func raisesMax(max, below uint64) bool { return below != 0 && (max == 0 || max > below) }

// reconcile resolves conflicts between values; the value of the higher layer stays.
func (r *resolver) reconcile() {
	p, from := &r.result.Policy, &r.result.From
	if err := checkMinMax(*p); err != nil {
		switch {
		case rank(from.Max) < rank(from.Min) && r.limitRaise():
		case rank(from.Max) < rank(from.Min):
			r.complain("max", from.Max, r.maxLabel(), FormatRate(p.MaxBPS), err.Error())
			p.MaxBPS, from.Max = p.MinBPS, from.Min
		default:
			r.complain("min", from.Min, LabelMin, FormatRate(p.MinBPS), err.Error())
			p.MinBPS, from.Min = 0, v1.LayerBuiltIn
		}
	}
	if err := checkLatencyMin(*p); err != nil {
		message := err.Error()
		if slices.ContainsFunc(r.claims, func(c claim) bool { return c.key == "min" }) {
			message = "a latency bound needs a minimum rate, and the one given cannot be honoured; correct it"
		}
		// A default latency applies only to containers with a minimum.
		if from.Latency != v1.LayerDefaults {
			r.complain("latency", from.Latency, LabelLatency, Latency(*p).String(), message)
		}
		p.LatencyMS, from.Latency = 0, v1.LayerBuiltIn
	}
	r.dropUnused()
	r.reconcileParts()
}

// reconcileParts makes EF's maximum and AF's minimum fit the share. The one from the lower
// layer is reduced to what the other leaves.
func (r *resolver) reconcileParts() {
	p, from := &r.result.Policy, &r.result.From
	err := checkParts(*p)
	if err == nil {
		return
	}
	key, label, part, layer, other := "af-min", LabelAFMin, &p.AFMin, from.AFMin, p.EFMax
	if rank(from.EFMax) < rank(from.AFMin) {
		key, label, part, layer, other = "ef-max", LabelEFMax, &p.EFMax, from.EFMax, p.AFMin
	}
	if layer != v1.LayerBuiltIn {
		r.complain(key, layer, label, FormatPart(*part), err.Error())
	}
	part.Percent = roundPercent(100 - other.Percent)
}

// dropUnused removes values for traffic classes that the container does not have. Values
// from the config file's defaults are removed without a problem.
func (r *resolver) dropUnused() {
	p, from, built := &r.result.Policy, &r.result.From, Default()
	dropIf(r, checkEFMaxUse(*p), "ef-max", LabelEFMax, &p.EFMax, &from.EFMax, FormatPart, built.EFMax)
	dropIf(r, checkAFMinUse(*p), "af-min", LabelAFMin, &p.AFMin, &from.AFMin, FormatPart, built.AFMin)
	dropIf(r, checkDSCPUse(*p), "dscp", LabelDSCP, &p.DSCP, &from.DSCP, func(d v1.DSCP) string { return string(d) }, built.DSCP)
}

// dropIf resets a value to the built-in one, and reports it, if against is an error.
func dropIf[T any](r *resolver, against error, key, label string, field *T, from *v1.Layer, format func(T) string, builtIn T) {
	if against == nil || *from == v1.LayerBuiltIn {
		return
	}
	if *from != v1.LayerDefaults {
		r.complain(key, *from, label, format(*field), against.Error())
		r.claims[len(r.claims)-1].Effect = "it has no effect"
	}
	*field, *from = builtIn, v1.LayerBuiltIn
}

// limitRaise caps a minimum from labels at the labels' limit for the maximum, because the
// minimum would raise a lower layer's maximum. A maximum of that layer above the limit
// stays. It reports whether the minimum was cut to the maximum.
func (r *resolver) limitRaise() bool {
	p, from := &r.result.Policy, &r.result.From
	if rank(from.Min) != rank(v1.LayerLabels) {
		return false
	}
	for _, limits := range r.Limits {
		if limits.MaxBPS == nil || max(*limits.MaxBPS, p.MaxBPS) >= p.MinBPS {
			continue
		}
		p.MinBPS, from.Min = max(*limits.MaxBPS, p.MaxBPS), v1.LayerLimits
		r.drop(LabelMin)
		r.report("min", v1.LayerLimits, LabelMin, "is more than the maximum that the config file's limits let this container's labels ask for")
	}
	return p.MinBPS == p.MaxBPS
}

// complain reports that a layer's value conflicts with the others.
func (r *resolver) complain(key string, layer v1.Layer, label, value, message string) {
	if layer == v1.LayerLabels {
		r.report(key, layer, label, message)
		return
	}
	name := fmt.Sprintf("%s of the config file's %s", key, layer)
	if layer == v1.LayerSet {
		name = key + " of weir set"
	}
	r.claims = append(r.claims, claim{key, layer, Problem{Name: name, Value: value, Message: message}})
}

// rank orders the layers. A label cut to a limit ranks as a label.
func rank(layer v1.Layer) int {
	if layer == v1.LayerLimits {
		layer = v1.LayerLabels
	}
	return slices.Index([]v1.Layer{v1.LayerBuiltIn, v1.LayerDefaults, v1.LayerLabels, v1.LayerPolicies, v1.LayerSet}, layer)
}

// conclude keeps the problems with values that no higher layer sets, and adds what applies
// instead.
func (r *resolver) conclude() {
	for _, c := range r.claims {
		from, effect := r.effect(c.key)
		if rank(from) > rank(c.layer) {
			continue
		}
		if c.Effect == "" {
			c.Effect = effect
		}
		r.result.Problems = append(r.result.Problems, c.Problem)
	}
	slices.SortStableFunc(r.result.Problems, byName)
}

// effect returns the layer of a value and a text that says what applies.
func (r *resolver) effect(key string) (v1.Layer, string) {
	p, from := r.result.Policy, r.result.From
	switch key {
	case "weight":
		return from.Weight, fmt.Sprintf("weight %d applies", p.Weight)
	case "min":
		return from.Min, orNone("minimum", p.MinBPS == 0, FormatRate(p.MinBPS))
	case "max":
		return from.Max, orNone("maximum", p.MaxBPS == 0, FormatRate(p.MaxBPS))
	case "priority":
		return from.Priority, fmt.Sprintf("priority %d applies", p.Priority)
	case "latency":
		return from.Latency, orNone("latency bound", p.LatencyMS == 0, Latency(p).String())
	case "class":
		return from.Class, orNone("class", p.Class == v1.ClassNone, string(p.Class))
	case "ef-max":
		return from.EFMax, fmt.Sprintf("a maximum of EF of %s applies", FormatPart(p.EFMax))
	case "af-min":
		return from.AFMin, fmt.Sprintf("a minimum of AF of %s applies", FormatPart(p.AFMin))
	case "dscp":
		return from.DSCP, orNone("use of the DSCP field", p.DSCP == v1.DSCPNone, string(p.DSCP))
	}
	return v1.LayerBuiltIn, ""
}

func orNone(what string, none bool, value string) string {
	if none {
		return fmt.Sprintf("no %s applies", what)
	}
	return fmt.Sprintf("%s %s applies", what, value)
}
