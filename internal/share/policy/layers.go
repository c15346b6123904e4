package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Values are what one layer says of a policy: nil for what it does not say, and
// zero for "none" where [v1.Policy] has it so.
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
}

// Limits are the most that labels may ask for; nil for no limit.
type Limits struct {
	Weight   *uint32
	MinBPS   *uint64
	MaxBPS   *uint64
	Priority *uint32
}

// Inputs are the layers of one container's policy, lowest first. Above the
// built-in defaults, later ones win, each value by itself.
type Inputs struct {
	Defaults Values
	// Labels are all labels of the container, with those of its image.
	Labels map[string]string
	// ImageLabels are those of the image. A label of the container that has
	// the image's value counts as the image's: engines do not tell.
	ImageLabels map[string]string
	// ImageUnknown says why the image's labels are not known; empty if they are.
	ImageUnknown string
	// TrustImageLabels lets labels of images ask for guarantees.
	TrustImageLabels bool
	// Limits cut what labels ask for. Where there are several, the lowest counts.
	Limits []Limits
	// Policies are the operator's for this container, the last one first in rank.
	Policies []Values
	Set      Values // `weir set`
}

// Resolution is the policy of one container.
type Resolution struct {
	Policy   v1.Policy
	From     v1.PolicyFrom
	Problems []Problem // in order of name
}

// Resolve finds the policy that the layers make, and where each value comes from.
// The policy is valid whatever is written; the problems say what is not honoured
// although nothing above it says otherwise.
func Resolve(in Inputs) Resolution {
	r := resolver{Inputs: in}
	r.result.Policy = Default()
	r.result.From = v1.PolicyFrom{
		Weight: v1.LayerBuiltIn, Min: v1.LayerBuiltIn, Max: v1.LayerBuiltIn,
		Priority: v1.LayerBuiltIn, Latency: v1.LayerBuiltIn, Class: v1.LayerBuiltIn,
		EFMax: v1.LayerBuiltIn, AFMin: v1.LayerBuiltIn, DSCP: v1.LayerBuiltIn,
	}
	r.take(v1.LayerDefaults, in.Defaults)
	r.takeLabels()
	for _, values := range in.Policies {
		r.take(v1.LayerPolicies, values)
	}
	r.take(v1.LayerSet, in.Set)
	r.reconcile()
	r.conclude()
	return r.result
}

// resolver is the work on one container.
type resolver struct {
	Inputs
	result Resolution
	// claims are problems that go when a layer above gives the value.
	claims []claim
}

// claim is a problem with what a layer says of one value.
type claim struct {
	key   string // the value, one of Names; empty for none
	layer v1.Layer
	Problem
}

// take lets a layer say what it says.
func (r *resolver) take(layer v1.Layer, values Values) {
	p, from := &r.result.Policy, &r.result.From
	replace(&p.Weight, &from.Weight, values.Weight, layer)
	replace(&p.MinBPS, &from.Min, values.MinBPS, layer)
	replace(&p.MaxBPS, &from.Max, values.MaxBPS, layer)
	replace(&p.Priority, &from.Priority, values.Priority, layer)
	replace(&p.LatencyMS, &from.Latency, values.LatencyMS, layer)
	replace(&p.Class, &from.Class, values.Class, layer)
	replace(&p.EFMax, &from.EFMax, values.EFMax, layer)
	replace(&p.AFMin, &from.AFMin, values.AFMin, layer)
	replace(&p.DSCP, &from.DSCP, values.DSCP, layer)
}

func replace[T any](field *T, from *v1.Layer, value *T, layer v1.Layer) {
	if value != nil {
		*field, *from = *value, layer
	}
}

// takeLabels lets the labels say what they may say.
func (r *resolver) takeLabels() {
	p, from := &r.result.Policy, &r.result.From
	takeLabel(r, "weight", LabelWeight, &p.Weight, &from.Weight, ParseWeight)
	takeLabel(r, "min", LabelMin, &p.MinBPS, &from.Min, ParseRate)
	takeLabel(r, "max", r.maxLabel(), &p.MaxBPS, &from.Max, ParseRate)
	takeLabel(r, "priority", LabelPriority, &p.Priority, &from.Priority, ParsePriority)
	takeLabel(r, "latency", LabelLatency, &p.LatencyMS, &from.Latency, ParseLatencyMS)
	takeLabel(r, "class", LabelClass, &p.Class, &from.Class, ParseClass)
	takeLabel(r, "ef-max", LabelEFMax, &p.EFMax, &from.EFMax, ParsePart)
	takeLabel(r, "af-min", LabelAFMin, &p.AFMin, &from.AFMin, ParsePart)
	takeLabel(r, "dscp", LabelDSCP, &p.DSCP, &from.DSCP, ParseDSCP)
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

// maxLabel is the label that has the maximum.
func (r *resolver) maxLabel() string {
	if _, given := r.Labels[LabelMax]; given {
		return LabelMax
	}
	return LabelKubernetesMax
}

// takeLabel parses a label, if it is given and may be honoured, into field.
func takeLabel[T any](r *resolver, key, name string, field *T, from *v1.Layer, parse func(string) (T, error)) {
	text, given := r.Labels[name]
	if !given {
		return
	}
	value, err := parse(text)
	if err == nil {
		err = r.mayAsk(name, text)
	}
	if err != nil {
		r.report(key, v1.LayerLabels, name, err.Error())
		return
	}
	*field, *from = value, v1.LayerLabels
}

// guarantees are the labels that take something from other containers.
var guarantees = []string{LabelMin, LabelPriority, LabelLatency, LabelClass, LabelEFMax, LabelDSCP}

// mayAsk says why a label may not ask for what it does: who makes an image is not
// who runs the host.
func (r *resolver) mayAsk(name, text string) error {
	if r.TrustImageLabels || !slices.Contains(guarantees, name) {
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

// cut holds what a label asks for to a limit.
func cut[T cmp.Ordered](r *resolver, key, name string, field *T, from *v1.Layer, limit *T) {
	if limit == nil || *field <= *limit || *from != v1.LayerLabels && *from != v1.LayerLimits {
		return
	}
	*field, *from = *limit, v1.LayerLimits
	r.drop(name)
	r.report(key, v1.LayerLimits, name, "is more than the config file's limits let this container's labels ask for")
}

// checkName reports a label that looks like one of ours and is none.
func (r *resolver) checkName(name string) {
	lower := strings.ToLower(name)
	key, ours := strings.CutPrefix(lower, Prefix)
	switch known := slices.Contains(Names(), key); {
	case !ours || known && name == lower:
	case known:
		r.reportName(key, name, fmt.Sprintf("names of labels are in lower case; write %s%s", Prefix, key))
	default:
		meant, _ := Nearest(key, Names())
		r.reportName(meant, name, "unknown name; "+suggest(key))
	}
}

// report notes a problem with a label's value.
func (r *resolver) report(key string, layer v1.Layer, name, message string) {
	r.claims = append(r.claims, claim{key, layer, Problem{Name: name, Value: r.Labels[name], Message: message}})
}

// reportName notes a label that is none, and the value that it was probably meant
// for.
func (r *resolver) reportName(meant, name, message string) {
	r.claims = append(r.claims, claim{meant, v1.LayerLabels, Problem{Name: name, Value: r.Labels[name], Message: message, Effect: "ignored"}})
}

// drop forgets the problems with a label.
func (r *resolver) drop(name string) {
	r.claims = slices.DeleteFunc(r.claims, func(c claim) bool { return c.Name == name })
}

// reconcile makes the values fit each other. What a higher layer says stays.
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
		// A default is for those that have a minimum.
		if from.Latency != v1.LayerDefaults {
			r.complain("latency", from.Latency, LabelLatency, Latency(*p).String(), message)
		}
		p.LatencyMS, from.Latency = 0, v1.LayerBuiltIn
	}
	r.dropUnused()
	r.reconcileParts()
}

// reconcileParts makes the parts of EF and AF fit the share: the one that was asked
// for by the lower layer has what the other leaves.
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

// dropUnused takes away what was asked for of classes that the container does not
// have. The config file's defaults are for those that have them.
func (r *resolver) dropUnused() {
	p, from, built := &r.result.Policy, &r.result.From, Default()
	dropIf(r, checkEFMaxUse(*p), "ef-max", LabelEFMax, &p.EFMax, &from.EFMax, FormatPart, built.EFMax)
	dropIf(r, checkAFMinUse(*p), "af-min", LabelAFMin, &p.AFMin, &from.AFMin, FormatPart, built.AFMin)
	dropIf(r, checkDSCPUse(*p), "dscp", LabelDSCP, &p.DSCP, &from.DSCP, func(d v1.DSCP) string { return string(d) }, built.DSCP)
}

// dropIf takes a value back to the built-in one if there is something against it.
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

// limitRaise holds a minimum that labels ask for to what they may ask for as a
// maximum, as it would raise the one of a layer below. A maximum of that layer that
// is above the limit stays. It says whether the minimum was cut to the maximum.
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

// complain reports that a value of a layer does not go with the others.
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

// rank orders the layers; a label that was cut is a label.
func rank(layer v1.Layer) int {
	if layer == v1.LayerLimits {
		layer = v1.LayerLabels
	}
	return slices.Index([]v1.Layer{v1.LayerBuiltIn, v1.LayerDefaults, v1.LayerLabels, v1.LayerPolicies, v1.LayerSet}, layer)
}

// conclude keeps the problems with values that no layer above gives, and says what
// applies instead.
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
	slices.SortStableFunc(r.result.Problems, func(a, b Problem) int { return cmp.Compare(a.Name, b.Name) })
}

// effect says where a value comes from, and what applies.
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
