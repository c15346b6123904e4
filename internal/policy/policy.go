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
// [ParsePriority], [ParseClass]), whose errors say what is wrong and what to
// write. [Parse] reads labels: it puts the default in place of a value that
// cannot be honoured, and reports a [Problem]. [ApplyChange] reads `weir set`: it
// applies all of a change or nothing.
//
// # Limits
//
// Only what can be judged from the values alone is judged here. Whether a minimum
// can be admitted and a latency met depends on the uplink: see internal/alloc.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// The labels of containers, and annotations of pods, that Weir reads.
const (
	Prefix        = "weir."
	LabelWeight   = Prefix + "weight"
	LabelMin      = Prefix + "min"
	LabelMax      = Prefix + "max"
	LabelPriority = Prefix + "priority"
	LabelLatency  = Prefix + "latency"
	LabelClass    = Prefix + "class"

	// LabelKubernetesMax is read as LabelMax where that is not given.
	LabelKubernetesMax = "kubernetes.io/egress-bandwidth"
)

// Names are the names that follow [Prefix], in the order of the reference.
func Names() []string {
	return []string{"weight", "min", "max", "priority", "latency", "class"}
}

// DefaultWeight is the weight of a container that asks for none.
const DefaultWeight = 100

// Default is the policy of a container that asks for nothing.
func Default() v1.Policy { return v1.Policy{Weight: DefaultWeight} }

// Problem is a value that is not honoured. The container runs without it.
type Problem struct {
	Name    string // the label, e.g. "weir.min"
	Value   string // what was written
	Message string // what is wrong with it, and what to write instead
	Effect  string // what applies instead, e.g. "no minimum"
}

// Error makes a Problem fit to be logged, joined and shown as a reason.
func (p Problem) Error() string {
	return fmt.Sprintf("%s=%q: %s (%s)", p.Name, p.Value, p.Message, p.Effect)
}

// Parse reads a container's labels. It always returns a valid policy: a value
// that is missing, or that cannot be parsed or honoured, has its default, and the
// problems say why, in order of name. Labels that do not start with [Prefix] are
// ignored, but for [LabelKubernetesMax].
func Parse(labels map[string]string) (v1.Policy, []Problem) {
	p := Default()
	var problems []Problem
	report := func(name, message, effect string) {
		problems = append(problems, Problem{Name: name, Value: labels[name], Message: message, Effect: effect})
	}

	maxName := LabelMax
	if _, given := labels[LabelMax]; !given {
		maxName = LabelKubernetesMax
	}
	set(labels, LabelWeight, &p.Weight, ParseWeight, report, "weight 100 applies")
	set(labels, LabelMin, &p.MinBPS, ParseRate, report, "no minimum applies")
	set(labels, maxName, &p.MaxBPS, ParseRate, report, "no maximum applies")
	set(labels, LabelPriority, &p.Priority, ParsePriority, report, "priority 0 applies")
	set(labels, LabelLatency, &p.LatencyMS, parseLatencyMS, report, "no latency bound applies")
	set(labels, LabelClass, &p.Class, ParseClass, report, "no class applies")

	if err := checkMinMax(p); err != nil {
		report(LabelMin, err.Error(), "no minimum applies")
		p.MinBPS = 0
	}
	if err := checkLatencyMin(p); err != nil {
		message := err.Error()
		if _, given := labels[LabelMin]; given {
			message = "a latency bound needs a minimum rate, and the one given cannot be honoured; correct it"
		}
		report(LabelLatency, message, "no latency bound applies")
		p.LatencyMS = 0
	}
	for name := range labels {
		if key, ours := strings.CutPrefix(name, Prefix); ours && !slices.Contains(Names(), key) {
			report(name, "unknown name; "+suggest(key), "ignored")
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Name, b.Name) })
	return p, problems
}

// set parses labels[name] into field, if it is given, and reports what is wrong.
func set[T any](labels map[string]string, name string, field *T, parse func(string) (T, error),
	report func(name, message, effect string), effect string,
) {
	text, given := labels[name]
	if !given {
		return
	}
	value, err := parse(text)
	if err != nil {
		report(name, err.Error(), effect)
		return
	}
	*field = value
}

// suggest says which name was probably meant.
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

// ApplyChange returns base with the fields of change that are not nil set. For
// min, max, latency and class, the empty string and "none" remove the value. It
// is strict: with any problem it returns base as it was and all problems joined.
func ApplyChange(base v1.Policy, change v1.PolicyChange) (v1.Policy, error) {
	p := base
	var errs []error
	apply(&errs, "weight", change.Weight, &p.Weight, ParseWeight)
	apply(&errs, "min", change.Min, &p.MinBPS, removable(ParseRate))
	apply(&errs, "max", change.Max, &p.MaxBPS, removable(ParseRate))
	apply(&errs, "priority", change.Priority, &p.Priority, ParsePriority)
	apply(&errs, "latency", change.Latency, &p.LatencyMS, removable(parseLatencyMS))
	apply(&errs, "class", change.Class, &p.Class, removable(ParseClass))
	if len(errs) == 0 {
		errs = append(errs, checkMinMax(p), checkLatencyMin(p))
	}
	if err := errors.Join(errs...); err != nil {
		return base, err
	}
	return p, nil
}

// apply parses text, if it is given, into field.
func apply[T any](errs *[]error, name string, text *string, field *T, parse func(string) (T, error)) {
	if text == nil {
		return
	}
	value, err := parse(*text)
	if err != nil {
		*errs = append(*errs, fmt.Errorf("%s %q: %w", name, *text, err))
		return
	}
	*field = value
}

// removable lets "" and "none" stand for the zero value.
func removable[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		if text == "" || strings.EqualFold(text, "none") {
			var zero T
			return zero, nil
		}
		return parse(text)
	}
}

// parseLatencyMS is ParseLatency in the unit of [v1.Policy].
func parseLatencyMS(text string) (float64, error) {
	d, err := ParseLatency(text)
	return float64(d) / float64(time.Millisecond), err
}

// Latency is the bound on queueing delay that a policy asks for; 0 for none.
func Latency(p v1.Policy) time.Duration {
	return time.Duration(p.LatencyMS * float64(time.Millisecond))
}
