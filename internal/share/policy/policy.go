// Package policy turns what users write into policies.
//
// # Problem
//
// The same values arrive as labels of Docker and Podman containers, Kubernetes
// annotations, a config file and the flags of `weir set`. A label must never stop
// a container, so a bad one costs only its own value and is explained; a person
// at a prompt or with an editor is better served by a refusal.
//
// # Method
//
// One parser per kind of value ([ParseRate], [ParseLatency], [ParseWeight],
// [ParsePriority], [ParseClass], [ParsePart], [ParseDSCP]), whose errors say what is wrong and what to
// write. [Rules] are the operator's, for all containers; [Rules.Resolve] finds the
// layers of one container, and [Resolve] puts them on each other: it says which
// layer each value comes from, and reports a [Problem] for a value that cannot be
// honoured. [CheckChange] reads `weir set`: it takes all of a change or nothing.
//
// # Limits
//
// Only what can be judged from the values alone is judged here. Whether a minimum
// can be admitted and a latency met depends on the uplink: see internal/share/alloc.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Labels of containers and annotations of pods that Weir reads.
const (
	Prefix        = "weir."
	LabelWeight   = Prefix + "weight"
	LabelMin      = Prefix + "min"
	LabelMax      = Prefix + "max"
	LabelPriority = Prefix + "priority"
	LabelLatency  = Prefix + "latency"
	LabelClass    = Prefix + "class"
	LabelEFMax    = Prefix + "ef-max"
	LabelAFMin    = Prefix + "af-min"
	LabelDSCP     = Prefix + "dscp"

	// LabelIn begins the labels for received traffic: weir.in.weight and so on (IncomingNames).
	LabelIn    = Prefix + incoming
	LabelInMin = LabelIn + "min"

	// LabelKubernetesMax is used as the maximum if LabelMax is absent, and LabelKubernetesIn or
	// LabelDockerTCIn as the maximum of received traffic.
	LabelKubernetesMax = "kubernetes.io/egress-bandwidth"
	LabelKubernetesIn  = "kubernetes.io/ingress-bandwidth"
	LabelDockerTCIn    = "com.docker-tc.limit"
)

// incoming begins the names of values for received traffic.
const incoming = "in."

// Names returns the label names without [Prefix], in the order of the reference.
func Names() []string {
	return append([]string{"weight", "min", "max", "priority", "latency", "class", "ef-max", "af-min", "dscp"}, IncomingNames()...)
}

// IncomingNames returns those of Names that are for received traffic.
func IncomingNames() []string {
	names := []string{"weight", "min", "max", "priority", "latency"}
	for i, name := range names {
		names[i] = incoming + name
	}
	return names
}

// DefaultWeight is the weight of a container without a configured weight.
const DefaultWeight = 100

// Default percentages of the share for a container with traffic classes: the maximum of EF
// and the minimum of AF.
const (
	DefaultEFMaxPercent = 50
	DefaultAFMinPercent = 30
)

// Default returns the policy of a container without settings.
func Default() v1.Policy {
	return v1.Policy{
		Weight: DefaultWeight,
		EFMax:  v1.Part{Percent: DefaultEFMaxPercent}, AFMin: v1.Part{Percent: DefaultAFMinPercent},
	}
}

// Problem is a value that is not honoured; the container runs without it.
type Problem struct {
	Name    string // the label, e.g. "weir.min"
	Value   string // the text of the value
	Message string // what is wrong with it, and what to write instead
	Effect  string // what applies instead, e.g. "no minimum"
}

// Error returns the problem as one line for logs and reasons.
func (p Problem) Error() string {
	return fmt.Sprintf("%s=%q: %s (%s)", p.Name, p.Value, p.Message, p.Effect)
}

func byName(a, b Problem) int { return cmp.Compare(a.Name, b.Name) }

// Parse reads labels alone, without other layers. It always returns a valid
// policy: a value that is missing, or that cannot be parsed or honoured, has its
// default, and the problems say why, in order of name. Labels that do not start
// with [Prefix] are ignored, but for [LabelKubernetesMax].
func Parse(labels map[string]string) (v1.Policy, []Problem) {
	r := Resolve(Inputs{Labels: labels})
	return r.Policy, r.Problems
}

// suggest returns a hint with the name that was probably meant, or "".
func suggest(key string) string {
	if name, ok := Nearest(key, Names()); ok {
		return fmt.Sprintf("did you mean %s%s?", Prefix, name)
	}
	return "known are " + Prefix + strings.Join(Names(), ", "+Prefix)
}

func checkMinMax(p v1.Policy) error {
	if p.MaxBPS == 0 || p.MinBPS <= p.MaxBPS {
		return nil
	}
	return fmt.Errorf("the minimum %s is above the maximum %s; lower the minimum or raise the maximum",
		FormatRate(p.MinBPS), FormatRate(p.MaxBPS))
}

func checkLatencyMin(p v1.Policy) error {
	if p.LatencyMS == 0 || p.MinBPS > 0 {
		return nil
	}
	return errors.New("a latency bound needs a minimum rate; set one or remove the bound")
}

// checkParts returns an error if EF's maximum and AF's minimum exceed the share together.
// Rates are checked only by the scheduler, because the share changes with the load.
func checkParts(p v1.Policy) error {
	if p.EFMax.Percent+p.AFMin.Percent <= 100 {
		return nil
	}
	return fmt.Errorf("the maximum of EF %s and the minimum of AF %s are more than the whole share together; lower one of them",
		FormatPart(p.EFMax), FormatPart(p.AFMin))
}

// CheckChange returns what the fields of change that are not nil say, if base, and what it
// says of received traffic, can be changed so. For min, max, latency, class and dscp, "none" takes the value away. It
// is strict: an error has all problems joined.
func CheckChange(base, baseIn v1.Policy, change v1.PolicyChange) (Values, error) {
	values, err := ParseChange(change)
	if err != nil {
		return Values{}, err
	}
	r := resolver{result: Resolution{Policy: base}}
	r.take(v1.LayerSet, values)
	p := r.result.Policy
	built := Default()
	if values.EFMax == nil && p.EFMax == built.EFMax || values.AFMin == nil && p.AFMin == built.AFMin {
		p.EFMax, p.AFMin = built.EFMax, built.AFMin // a default gives way
	}
	in := resolver{result: Resolution{Policy: baseIn}}
	in.take(v1.LayerSet, values.incoming())
	if err := errors.Join(checkMinMax(p), checkLatencyMin(p), checkParts(p), ofIncoming(checkMinMax(in.result.Policy)), ofIncoming(checkLatencyMin(in.result.Policy))); err != nil {
		return Values{}, err
	}
	if err := checkUse(values, p); err != nil {
		return Values{}, err
	}
	return values, nil
}

// ParseChange parses the values of a change one by one. Its error joins all problems.
func ParseChange(change v1.PolicyChange) (Values, error) {
	var v Values
	err := errors.Join(
		parseField("weight", change.Weight, &v.Weight, ParseWeight),
		parseField("min", change.Min, &v.MinBPS, OrNone(ParseRate)),
		parseField("max", change.Max, &v.MaxBPS, OrNone(ParseRate)),
		parseField("priority", change.Priority, &v.Priority, ParsePriority),
		parseField("latency", change.Latency, &v.LatencyMS, OrNone(ParseLatencyMS)),
		parseField("class", change.Class, &v.Class, OrNone(ParseClass)),
		parseField("ef-max", change.EFMax, &v.EFMax, ParsePart),
		parseField("af-min", change.AFMin, &v.AFMin, ParsePart),
		parseField("dscp", change.DSCP, &v.DSCP, OrNone(ParseDSCP)),
		parseField("in.weight", change.InWeight, &v.InWeight, ParseWeight),
		parseField("in.min", change.InMin, &v.InMinBPS, OrNone(ParseRate)),
		parseField("in.max", change.InMax, &v.InMaxBPS, OrNone(ParseRate)),
		parseField("in.priority", change.InPriority, &v.InPriority, ParsePriority),
		parseField("in.latency", change.InLatency, &v.InLatencyMS, OrNone(ParseLatencyMS)))
	return v, err
}

// parseField parses text into field, unless text is nil.
func parseField[T any](name string, text *string, field **T, parse func(string) (T, error)) error {
	if text == nil {
		return nil
	}
	if *text == "" { // probably an unset shell variable
		return fmt.Errorf("%s is empty; write a value, or none to take it away", name)
	}
	value, err := parse(*text)
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, *text, err)
	}
	*field = &value
	return nil
}

// OrNone returns a parser that also accepts "" and "none" as the zero value.
func OrNone[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		if text == "" || strings.EqualFold(text, "none") {
			var zero T
			return zero, nil
		}
		return parse(text)
	}
}

// ParseLatencyMS is ParseLatency in milliseconds, the unit of [v1.Policy].
func ParseLatencyMS(text string) (float64, error) {
	d, err := ParseLatency(text)
	return float64(d) / float64(time.Millisecond), err
}

// Latency returns a policy's latency bound; 0 for none.
func Latency(p v1.Policy) time.Duration {
	return time.Duration(p.LatencyMS * float64(time.Millisecond))
}
