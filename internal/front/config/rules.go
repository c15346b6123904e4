package config

import (
	"errors"
	"slices"

	"github.com/weir-project/weir/internal/share/policy"
)

// The operator's rules for containers: defaults, limits and policies.

func readRules(f map[string]value) policy.Rules {
	var rules policy.Rules
	rules.Defaults = readValues(f["defaults"])
	for _, item := range f["limits"].items() {
		fields := item.fields(append([]string{"at_most"}, selectorKeys...)...)
		item.require(fields, "at_most")
		rules.Limits = append(rules.Limits, policy.Limit{Selector: readSelector(fields), Limits: readLimits(fields["at_most"])})
	}
	for _, item := range f["policies"].items() {
		fields := item.fields(append([]string{"policy"}, selectorKeys...)...)
		item.require(fields, "policy")
		selector := readSelector(fields)
		if !slices.ContainsFunc(selectorKeys, func(key string) bool { return fields == nil || fields[key].given() }) {
			item.fail("names no container: give name, project, service or image, or write it under defaults")
		}
		rules.Policies = append(rules.Policies, policy.Rule{Selector: selector, Values: readValues(fields["policy"])})
	}
	read(f["trust_image_labels"], &rules.TrustImageLabels, parseBool)
	return rules
}

// selectorKeys are the keys of a selector.
var selectorKeys = []string{"name", "project", "service", "image"}

func readSelector(f map[string]value) policy.Selector {
	var s policy.Selector
	read(f["name"], &s.Name, policy.ParsePattern)
	read(f["project"], &s.Project, policy.ParsePattern)
	read(f["service"], &s.Service, policy.ParsePattern)
	read(f["image"], &s.Image, policy.ParsePattern)
	return s
}

// readValues reads the policy values of one layer. "none" removes the value of a lower
// layer.
func readValues(v value) policy.Values {
	var values policy.Values
	f := v.fields(policy.Names()...)
	readGiven(f["weight"], &values.Weight, policy.ParseWeight)
	readGiven(f["min"], &values.MinBPS, orNone(policy.ParseRate))
	readGiven(f["max"], &values.MaxBPS, orNone(policy.ParseRate))
	readGiven(f["priority"], &values.Priority, policy.ParsePriority)
	readGiven(f["latency"], &values.LatencyMS, orNone(policy.ParseLatencyMS))
	readGiven(f["class"], &values.Class, orNone(policy.ParseClass))
	readGiven(f["ef-max"], &values.EFMax, policy.ParsePart)
	readGiven(f["af-min"], &values.AFMin, policy.ParsePart)
	readGiven(f["dscp"], &values.DSCP, orNone(policy.ParseDSCP))
	readGiven(f["in.weight"], &values.InWeight, policy.ParseWeight)
	readGiven(f["in.min"], &values.InMinBPS, orNone(policy.ParseRate))
	readGiven(f["in.max"], &values.InMaxBPS, orNone(policy.ParseRate))
	readGiven(f["in.priority"], &values.InPriority, policy.ParsePriority)
	readGiven(f["in.latency"], &values.InLatencyMS, orNone(policy.ParseLatencyMS))
	if name, err := values.Check(); err != nil {
		f[name].fail("%v", err)
	}
	return values
}

// readLimits reads the limits for labels.
func readLimits(v value) policy.Limits {
	var limits policy.Limits
	f := v.fields("weight", "min", "max", "priority", "in.min", "in.max")
	readGiven(f["weight"], &limits.Weight, policy.ParseWeight)
	readGiven(f["min"], &limits.MinBPS, orNone(policy.ParseRate))
	readGiven(f["max"], &limits.MaxBPS, policy.ParseRate)
	readGiven(f["priority"], &limits.Priority, policy.ParsePriority)
	readGiven(f["in.min"], &limits.InMinBPS, orNone(policy.ParseRate))
	readGiven(f["in.max"], &limits.InMaxBPS, policy.ParseRate)
	return limits
}

// readGiven is read for optional values: it allocates field if the value is present.
func readGiven[T any](v value, field **T, parse func(string) (T, error)) {
	if !v.given() {
		return
	}
	read(v, field, func(text string) (*T, error) {
		parsed, err := parse(text)
		return &parsed, err
	})
}

// orNone is policy.OrNone, except that an empty text is an error.
func orNone[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		if text == "" {
			var zero T
			return zero, errors.New("is empty; write a value or none")
		}
		return policy.OrNone(parse)(text)
	}
}
