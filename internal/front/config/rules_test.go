package config_test

import (
	"reflect"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/share/policy"
)

func TestRules(t *testing.T) {
	got, err := config.Parse("weir.yaml", []byte(`
defaults: {class: be, latency: None}
limits:
- at_most: {min: none}
- {image: "registry.example/*", at_most: {weight: 0}}
policies:
- {name: web, policy: {max: none, class: none, min: 1M, priority: 0}}
trust_image_labels: true
`))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Rules{
		Defaults: policy.Values{Class: new(v1.ClassBE), LatencyMS: new(0.0)},
		Limits: []policy.Limit{
			{Limits: policy.Limits{MinBPS: new(uint64(0))}},
			{Selector: policy.Selector{Image: "registry.example/*"}, Limits: policy.Limits{Weight: new(uint32(0))}},
		},
		Policies: []policy.Rule{{
			Selector: policy.Selector{Name: "web"},
			Values:   policy.Values{MinBPS: new(uint64(1e6)), MaxBPS: new(uint64(0)), Priority: new(uint32(0)), Class: new(v1.ClassNone)},
		}},
		TrustImageLabels: true,
	}
	if !reflect.DeepEqual(got.Rules, want) {
		t.Errorf("rules %+v\nwant  %+v", got.Rules, want)
	}
}

func TestRulesAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"a rate without its unit", "defaults:\n  max: 50\n", `weir.yaml:2: defaults.max: "50": is 50 bit/s, not even a frame a second; did you mean 50mbit?`},
		{"nothing after the key", "defaults:\n  max: ''\n", `weir.yaml:2: defaults.max: "": is empty; write a value or none`},
		{"weight without a number", "defaults:\n  weight: none\n", `weir.yaml:2: defaults.weight: "none": write a whole number from 0 to 10000`},
		{"misspelt", "defaults:\n  wieght: 1\n", "weir.yaml:2: defaults.wieght: unknown key; did you mean weight?"},
		{"a map of received traffic", "defaults:\n  in: {max: 1M}\n", "weir.yaml:2: defaults.in: unknown key; write in.weight: VALUE, a key for each value"},
		{"no rate of received traffic", "in_rate: none\n", `weir.yaml:1: in_rate: "none": leave it out if received traffic is not to be shared`},
		{"minimum above maximum", "policies:\n- name: a\n  policy:\n    min: 2M\n    max: 1M\n", "weir.yaml:4: policies[0].policy.min: the minimum 2mbit is above the maximum 1mbit"},
		{"for nobody", "policies:\n- policy: {weight: 1}\n", "weir.yaml:2: policies[0]: names no container: give name, project, service or image"},
		{"nothing said", "policies:\n- name: a\n", "weir.yaml:2: policies[0]: policy is missing"},
		{"no limit", "limits:\n- name: a\n", "weir.yaml:2: limits[0]: at_most is missing"},
		{"no maximum as a limit", "limits:\n- at_most:\n    max: none\n", `weir.yaml:3: limits[0].at_most.max: "none": is not a rate`},
		{"a limit of what has none", "limits:\n- at_most:\n    latency: 1ms\n", "weir.yaml:3: limits[0].at_most.latency: unknown key"},
		{"no pattern", "policies:\n- name: '[a'\n  policy: {weight: 1}\n", `weir.yaml:2: policies[0].name: "[a": is not a pattern`},
		{"an empty pattern", "policies:\n- name: ''\n  policy: {weight: 1}\n", `weir.yaml:2: policies[0].name: "": is empty`},
		{"perhaps", "trust_image_labels: perhaps\n", `weir.yaml:1: trust_image_labels: "perhaps": write true or false`},
		{"no list", "policies: {name: a}\n", "weir.yaml:1: policies: is a map; write a list"},
	} {
		_, err := config.Parse("weir.yaml", []byte(tc.text))
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", tc.name, err, tc.want)
		}
	}
}
