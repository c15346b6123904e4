package engine_test

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// TestRules: one's own algorithm, in one line.
func TestRules(t *testing.T) {
	for rule, want := range map[string]string{
		"option.node == 'c'":                      "c",
		"option.local ? 0.0 : option.cpu_percent": "c",
		"option.local ? 1 : 0":                    "a",
		"!option.local && option.transfer_seconds < service.wait_seconds && option.free_bps > 1e6":                                       "b",
		"service.users > 40.0 && service.capacity == 50.0 && option.round_trip_seconds < 1 ? 1000.0 / (1.0 + option.headroom_bps) : 0.0": "c",
		"service.must":                     "the rule does not accept it",
		"1.0 / 0.0":                        "the rule does not accept it",
		"1 / int(option.cpu_percent) == 0": "c",
		"int(option.free_bps) / (option.local ? 0 : 0) > 1": "the rule fails: division by zero",
	} {
		t.Run(rule, func(t *testing.T) {
			in := crowd(web(func(s *spec.Spec) { s.Algorithm, s.Rule = "rule", rule }), boards("abc"), 60, 0.4, running("web", "a", 1, 45, 0.5))
			in.Nodes[2].CPUUsedPercent, in.Nodes[2].UplinkSentBPS = 50, 1e6
			in.Nodes[1].CPUUsedPercent = 0.5
			if strings.HasPrefix(rule, "1 / int") {
				in.Nodes[1].CPUUsedPercent, in.Nodes[0].State = 0.1, engine.NodeStale
			}
			in.Nodes[0].UplinkSentBPS, in.Nodes[1].UplinkSentBPS = 0, 0
			d := newEngine(t).Round(in).Decisions[0]
			switch {
			case len(want) == 1 && d.Action == engine.Start && d.Node == want && d.Algorithm == "rule":
			case len(want) > 1 && d.Action == engine.Keep && strings.Contains(d.Reason, want):
			default:
				t.Errorf("%s on %q: %s, want %s; %+v", d.Action, d.Node, d.Reason, want, d.Alternatives)
			}
		})
	}
}

func TestRuleErrors(t *testing.T) {
	for rule, want := range map[string]string{
		"":                             "not valid",
		"option.cpu < 5":               "undeclared reference",
		"option.cpu_percent + 'a'":     "no matching overload",
		"'a string'":                   "the rule gives a string; write one that gives true or false, or a number",
		strings.Repeat("(", 300) + "1": "not valid",
	} {
		if err := engine.CheckRule(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", rule, err, want)
		}
	}
	// What takes too long is cut short: it is evaluated for every node of every round.
	list := "[" + strings.Repeat("1,", 200) + "1]"
	in := crowd(web(func(s *spec.Spec) {
		s.Algorithm, s.Rule = "rule", list+".all(x, "+list+".all(y, "+list+".all(z, x * y * z > 0)))"
	}), boards("ab"), 60, 0.4, running("web", "a", 1, 45, 0.5))
	if d := newEngine(t).Round(in).Decisions[0]; !strings.Contains(d.Reason, "cost limit") {
		t.Errorf("%s", d.Reason)
	}
}

// TestAlgorithms: the operator's, by name; and what decides where there is none.
func TestAlgorithms(t *testing.T) {
	e, err := engine.New(engine.Policy{Rules: map[string]string{"mine": "option.node == 'c'"}})
	if err != nil {
		t.Fatal(err)
	}
	in := crowd(web(func(s *spec.Spec) { s.Algorithm = "mine" }), boards("abc"), 60, 0.4, running("web", "a", 1, 45, 0.5))
	if d := e.Round(in).Decisions[0]; d.Node != "c" || d.Algorithm != "mine" {
		t.Errorf("%+v", d)
	}
	for name, want := range map[string]bool{"mine": true, "hybrid": true, "rule": true, "yours": false} {
		if e.HasAlgorithm(name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	for name, change := range map[string]func(*spec.Spec){
		`there is no algorithm "yours"`:     func(s *spec.Spec) { s.Algorithm = "yours" },
		"the service's rule cannot be used": func(s *spec.Spec) { s.Algorithm, s.Rule = "rule", "nonsense(" },
	} {
		if d := e.Round(crowd(web(change), boards("abc"), 60, 0.4, running("web", "a", 1, 45, 0.5))).Decisions[0]; d.Action != engine.Start || d.Algorithm != "hybrid" || !strings.Contains(d.Reason, name) {
			t.Errorf("%+v", d)
		}
	}
	for want, rules := range map[string]map[string]string{
		"rules.local: an algorithm has that name":                                                {"local": "true"},
		"rules.x: the rule is not valid (it may speak of option.cpu_percent, option.exhausted, ": {"x": "option.nonsense > 1.0"},
		"rules.x: the rule is not valid":                                                         {"x": "("},
	} {
		if _, err := engine.New(engine.Policy{Rules: rules}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
