package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// takeLabels applies the labels.
func (r *resolver) takeLabels() {
	p, from := &r.result.Policy, &r.result.From
	takeLabel(r, "weight", LabelWeight, &p.Weight, &from.Weight, ParseWeight, func(weight, below uint32) bool { return weight > below })
	takeLabel(r, "min", LabelMin, &p.MinBPS, &from.Min, ParseRate, always)
	takeLabel(r, "max", r.maxLabel(), &p.MaxBPS, &from.Max, ParseRate, raisesMax)
	takeLabel(r, "priority", LabelPriority, &p.Priority, &from.Priority, ParsePriority, always)
	takeLabel(r, "latency", LabelLatency, &p.LatencyMS, &from.Latency, ParseLatencyMS, always)
	takeLabel(r, "class", LabelClass, &p.Class, &from.Class, ParseClass, always)
	takeLabel(r, "ef-max", LabelEFMax, &p.EFMax, &from.EFMax, ParsePart, always)
	takeLabel(r, "af-min", LabelAFMin, &p.AFMin, &from.AFMin, ParsePart, func(_, _ v1.Part) bool { return false })
	takeLabel(r, "dscp", LabelDSCP, &p.DSCP, &from.DSCP, ParseDSCP, always)
	for _, limits := range r.Limits {
		cut(r, "weight", LabelWeight, &p.Weight, &from.Weight, limits.Weight)
		cut(r, "min", LabelMin, &p.MinBPS, &from.Min, limits.MinBPS)
		cut(r, "max", r.maxLabel(), &p.MaxBPS, &from.Max, limits.MaxBPS)
		cut(r, "priority", LabelPriority, &p.Priority, &from.Priority, limits.Priority)
	}
	for name := range r.Labels {
		r.checkName(name)
	}
}

// maxLabel returns the name of the label that sets the maximum.
func (r *resolver) maxLabel() string {
	if _, given := r.Labels[LabelMax]; given {
		return LabelMax
	}
	return LabelKubernetesMax
}

// takeLabel parses a label into field, if the label is present and permitted. takes reports whether a
// value takes capacity from other containers, compared with that of the layers below.
func takeLabel[T any](r *resolver, key, name string, field *T, from *v1.Layer, parse func(string) (T, error), takes func(value, below T) bool) {
	text, given := r.Labels[name]
	if !given {
		return
	}
	value, err := parse(text)
	if err == nil && takes(value, *field) {
		err = r.mayTake(name, text)
	}
	if err != nil {
		r.report(key, v1.LayerLabels, name, err.Error())
		return
	}
	*field, *from = value, v1.LayerLabels
}

// always is for labels whose every value takes capacity from other containers.
func always[T any](_, _ T) bool { return true }

// mayTake returns an error if a label that takes capacity from other containers may not be honoured
// because it comes, or may come, from the image: the image's author is not the host's operator.
func (r *resolver) mayTake(name, text string) error {
	if r.TrustImageLabels {
		return nil
	}
	if r.ImageUnknown != "" {
		return fmt.Errorf("it is not known whether it comes with the image, whose labels cannot be read (%s); give it in policies of the config file, or with trust_image_labels: true there", r.ImageUnknown)
	}
	if of, there := r.ImageLabels[name]; there && of == text {
		return errors.New("comes with the image, which may not ask for that; if you want it, give it in policies of the config file, or set trust_image_labels: true there")
	}
	return nil
}

// cut caps a label's value at a limit.
func cut[T cmp.Ordered](r *resolver, key, name string, field *T, from *v1.Layer, limit *T) {
	if limit == nil || *field <= *limit || *from != v1.LayerLabels && *from != v1.LayerLimits {
		return
	}
	*field, *from = *limit, v1.LayerLimits
	r.drop(name)
	r.report(key, v1.LayerLimits, name, "is more than the config file's limits let this container's labels ask for")
}

// checkName reports a label with Weir's prefix but an unknown name.
func (r *resolver) checkName(name string) {
	lower := strings.ToLower(name)
	key, ours := strings.CutPrefix(lower, Prefix)
	switch known := slices.Contains(Names(), key); {
	case !ours || known && name == lower || r.received:
	case known:
		r.reportName(key, name, fmt.Sprintf("names of labels are in lower case; write %s%s", Prefix, key))
	default:
		meant, _ := Nearest(key, Names())
		r.reportName(meant, name, "unknown name; "+suggest(key))
	}
}

// report records a problem with a label's value.
func (r *resolver) report(key string, layer v1.Layer, name, message string) {
	r.claims = append(r.claims, claim{key, layer, Problem{Name: name, Value: r.Labels[name], Message: message}})
}

// reportName records a problem with an unknown label name, and the value it probably meant.
func (r *resolver) reportName(meant, name, message string) {
	r.claims = append(r.claims, claim{meant, v1.LayerLabels, Problem{Name: name, Value: r.Labels[name], Message: message, Effect: "ignored"}})
}

// drop removes the problems with a label.
func (r *resolver) drop(name string) {
	r.claims = slices.DeleteFunc(r.claims, func(c claim) bool { return c.Name == name })
}
