package policy_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

func weight(w uint32) policy.Values  { return policy.Values{Weight: &w} }
func least(bps uint64) policy.Values { return policy.Values{MinBPS: &bps} }
func most(bps uint64) policy.Values  { return policy.Values{MaxBPS: &bps} }
func selected(v ...policy.Values) (list []policy.Selected) {
	for _, values := range v {
		list = append(list, policy.Selected{Values: values})
	}
	return list
}

// inDoubt is selected by labels that may come with the image.
func inDoubt(v ...policy.Values) []policy.Selected {
	list := selected(v...)
	for i := range list {
		list[i].InDoubt = true
	}
	return list
}

func latency(ms float64) policy.Values { return policy.Values{LatencyMS: &ms} }

// builtIn is where the values of a container come from of which nothing is said.
var builtIn = v1.PolicyFrom{
	Weight: v1.LayerBuiltIn, Min: v1.LayerBuiltIn, Max: v1.LayerBuiltIn,
	Priority: v1.LayerBuiltIn, Latency: v1.LayerBuiltIn, Class: v1.LayerBuiltIn, EFMax: v1.LayerBuiltIn, AFMin: v1.LayerBuiltIn,
	DSCP: v1.LayerBuiltIn,
}

func from(change func(*v1.PolicyFrom)) v1.PolicyFrom {
	f := builtIn
	change(&f)
	return f
}

// TestResolve: later layers win value by value, and each value says where it is from.
func TestResolve(t *testing.T) {
	limits := func(l policy.Limits) []policy.Limits { return []policy.Limits{l} }
	for _, tc := range []struct {
		name     string
		in       policy.Inputs
		want     v1.Policy
		from     v1.PolicyFrom
		problems []string // each as Error prints it, or its beginning
	}{
		{"nothing", policy.Inputs{}, policy.Default(), builtIn, nil},
		{
			"every layer has a value", policy.Inputs{
				Defaults: weight(1).With(least(1e6)).With(latency(9)).With(most(90e6)),
				Labels:   map[string]string{"weir.min": "2M", "weir.latency": "8ms", "weir.max": "80M"},
				Policies: selected(latency(7), latency(6).With(most(70e6))),
				Set:      most(60e6),
			},
			v1.Policy{Weight: 1, MinBPS: 2e6, LatencyMS: 6, MaxBPS: 60e6},
			from(func(f *v1.PolicyFrom) {
				f.Weight, f.Min, f.Latency, f.Max = v1.LayerDefaults, v1.LayerLabels, v1.LayerPolicies, v1.LayerSet
			}), nil,
		},
		{
			"a value is taken away", policy.Inputs{Labels: map[string]string{"weir.max": "8M"}, Set: most(0)},
			policy.Default(), from(func(f *v1.PolicyFrom) { f.Max = v1.LayerSet }), nil,
		},
		{
			"a bad label falls back to the defaults", policy.Inputs{Defaults: weight(7).With(most(5e6)), Labels: map[string]string{"weir.weight": "x", "weir.max": "10"}},
			v1.Policy{Weight: 7, MaxBPS: 5e6}, from(func(f *v1.PolicyFrom) { f.Weight, f.Max = v1.LayerDefaults, v1.LayerDefaults }),
			[]string{
				`weir.max="10": is 10 bit/s, not even a frame a second; did you mean 10mbit? (maximum 5mbit applies)`,
				`weir.weight="x": write a whole number from 0 to 10000 (weight 7 applies)`,
			},
		},
		{
			"what is given above spoils nothing", policy.Inputs{
				Labels: map[string]string{"weir.weight": "x", "weir.wieght": "5", "Weir.Weight": "6", "weir.other": "1"}, Set: weight(3),
			},
			v1.Policy{Weight: 3}, from(func(f *v1.PolicyFrom) { f.Weight = v1.LayerSet }),
			[]string{`weir.other="1": unknown name; known are`},
		},
		{
			"another case", policy.Inputs{Labels: map[string]string{"Weir.Weight": "5", "weir.Min": "5M", "WEIR.mxa": "1"}},
			policy.Default(), builtIn, []string{
				`WEIR.mxa="1": unknown name; did you mean weir.max? (ignored)`,
				`Weir.Weight="5": names of labels are in lower case; write weir.weight (ignored)`,
				`weir.Min="5M": names of labels are in lower case; write weir.min (ignored)`,
			},
		},
		{
			"labels of the image", policy.Inputs{
				Labels:      map[string]string{"weir.min": "5M", "weir.priority": "9", "weir.latency": "5ms", "weir.weight": "300", "weir.max": "50M"},
				ImageLabels: map[string]string{"weir.min": "5M", "weir.priority": "9", "weir.latency": "5ms", "weir.weight": "300", "weir.max": "50M"},
			},
			v1.Policy{Weight: 100, MaxBPS: 50e6}, from(func(f *v1.PolicyFrom) { f.Max = v1.LayerLabels }),
			[]string{
				`weir.latency="5ms": comes with the image, which may not ask for that; if you want it, give it in policies of the config file, or set trust_image_labels: true there (no latency bound applies)`,
				`weir.min="5M": comes with the image`, `weir.priority="9": comes with the image`, `weir.weight="300": comes with the image`,
			},
		},
		{
			"labels of the image that take nothing from others", policy.Inputs{
				Defaults:    policy.Values{MaxBPS: new(uint64(60e6)), Weight: new(uint32(200))},
				Labels:      map[string]string{"weir.weight": "200", "weir.max": "50M"},
				ImageLabels: map[string]string{"weir.weight": "200", "weir.max": "50M"},
			},
			v1.Policy{Weight: 200, MaxBPS: 50e6}, from(func(f *v1.PolicyFrom) { f.Weight, f.Max = v1.LayerLabels, v1.LayerLabels }), nil,
		},
		{
			"labels of the image above the layer below", policy.Inputs{
				Defaults:    policy.Values{MaxBPS: new(uint64(60e6))},
				Labels:      map[string]string{"weir.weight": "101", "weir.max": "70M"},
				ImageLabels: map[string]string{"weir.weight": "101", "weir.max": "70M"},
			},
			v1.Policy{Weight: 100, MaxBPS: 60e6}, from(func(f *v1.PolicyFrom) { f.Max = v1.LayerDefaults }),
			[]string{`weir.max="70M": comes with the image`, `weir.weight="101": comes with the image`},
		},
		{
			"labels of the image that the operator trusts", policy.Inputs{
				Labels: map[string]string{"weir.min": "5M"}, ImageLabels: map[string]string{"weir.min": "5M"}, TrustImageLabels: true,
			},
			v1.Policy{Weight: 100, MinBPS: 5e6}, from(func(f *v1.PolicyFrom) { f.Min = v1.LayerLabels }), nil,
		},
		{
			"labels that differ from the image's", policy.Inputs{
				Labels: map[string]string{"weir.min": "6M", "weir.priority": "3"}, ImageLabels: map[string]string{"weir.min": "5M"},
			},
			v1.Policy{Weight: 100, MinBPS: 6e6, Priority: 3}, from(func(f *v1.PolicyFrom) { f.Min, f.Priority = v1.LayerLabels, v1.LayerLabels }), nil,
		},
		{
			"an image that cannot be read", policy.Inputs{Labels: map[string]string{"weir.min": "6M", "weir.weight": "3"}, ImageUnknown: "no such image"},
			v1.Policy{Weight: 3}, from(func(f *v1.PolicyFrom) { f.Weight = v1.LayerLabels }),
			[]string{`weir.min="6M": it is not known whether it comes with the image, whose labels cannot be read (no such image); give it in policies`},
		},
		{
			"a policy in doubt that limits", policy.Inputs{
				Defaults: weight(200).With(least(5e6)).With(policy.Values{Priority: new(uint32(4)), InMaxBPS: new(uint64(9e6))}), ImageUnknown: "no such image",
				Policies: inDoubt(weight(50).With(least(1e6)).With(most(10e6)).With(policy.Values{Priority: new(uint32(4)), AFMin: &v1.Part{Percent: 80}, Class: new(v1.ClassNone), InMaxBPS: new(uint64(8e6))})),
			},
			v1.Policy{Weight: 50, MinBPS: 1e6, MaxBPS: 10e6, Priority: 4}, from(func(f *v1.PolicyFrom) {
				f.Weight, f.Min, f.Max, f.Priority, f.Class = v1.LayerPolicies, v1.LayerPolicies, v1.LayerPolicies, v1.LayerPolicies, v1.LayerPolicies
			}),
			[]string{`af-min of the config file's policies="80%": a minimum of AF needs traffic classes`},
		},
		{
			"a policy in doubt that takes", policy.Inputs{
				Defaults: most(50e6), ImageUnknown: "no such image",
				Policies: inDoubt(weight(101).With(least(1e6)).With(most(0)).With(latency(5)).With(policy.Values{
					Priority: new(uint32(1)), Class: new(v1.ClassEF), EFMax: &v1.Part{Percent: 60}, DSCP: new(v1.DSCPTrust), InMinBPS: new(uint64(1e6)),
				})),
			},
			v1.Policy{Weight: 100, MaxBPS: 50e6}, from(func(f *v1.PolicyFrom) { f.Max = v1.LayerDefaults }),
			[]string{
				`class of the config file's policies="ef": the name, project or service that selects the policy may come with the image, whose labels cannot be read (no such image); select by image, or set trust_image_labels: true (no class applies)`,
				`dscp of the config file's policies="trust": the name`, `ef-max of the config file's policies="60%": the name`,
				`in.min of the config file's policies="1mbit": the name`, `latency of the config file's policies="5ms": the name`,
				`max of the config file's policies="none": the name`, `min of the config file's policies="1mbit": the name`,
				`priority of the config file's policies="1": the name`, `weight of the config file's policies="101": the name`,
			},
		},
		{
			"a policy in doubt before another", policy.Inputs{
				Policies: append(inDoubt(weight(300).With(least(1e6))), selected(weight(300))...), Set: least(0), ImageUnknown: "no such image",
			},
			v1.Policy{Weight: 300}, from(func(f *v1.PolicyFrom) { f.Weight, f.Min = v1.LayerPolicies, v1.LayerSet }), nil,
		},
		{
			"a policy in doubt after another", policy.Inputs{
				Policies: append(selected(weight(300).With(least(20e6))), inDoubt(weight(300).With(least(30e6)).With(most(25e6)))...), ImageUnknown: "no such image",
			},
			v1.Policy{Weight: 300, MinBPS: 20e6, MaxBPS: 25e6}, from(func(f *v1.PolicyFrom) { f.Weight, f.Min, f.Max = v1.LayerPolicies, v1.LayerPolicies, v1.LayerPolicies }),
			[]string{`min of the config file's policies="30mbit": the name`},
		},
		{
			"limits cut labels", policy.Inputs{
				Labels: map[string]string{"weir.weight": "500", "weir.min": "30M", "weir.max": "80M", "weir.priority": "9"},
				Limits: []policy.Limits{
					{Weight: new(uint32(200)), MinBPS: new(uint64(20e6))},
					{MinBPS: new(uint64(10e6)), MaxBPS: new(uint64(50e6)), Priority: new(uint32(9)), Weight: new(uint32(400))},
				},
			},
			v1.Policy{Weight: 200, MinBPS: 10e6, MaxBPS: 50e6, Priority: 9},
			from(func(f *v1.PolicyFrom) {
				f.Weight, f.Min, f.Max, f.Priority = v1.LayerLimits, v1.LayerLimits, v1.LayerLimits, v1.LayerLabels
			}),
			[]string{
				`weir.max="80M": is more than the config file's limits let this container's labels ask for (maximum 50mbit applies)`,
				`weir.min="30M": is more than the config file's limits let this container's labels ask for (minimum 10mbit applies)`,
				`weir.weight="500": is more than the config file's limits let this container's labels ask for (weight 200 applies)`,
			},
		},
		{
			"limits cut nobody else", policy.Inputs{
				Defaults: weight(500), Policies: selected(least(30e6)), Limits: limits(policy.Limits{Weight: new(uint32(1)), MinBPS: new(uint64(0))}),
			},
			v1.Policy{Weight: 500, MinBPS: 30e6}, from(func(f *v1.PolicyFrom) { f.Weight, f.Min = v1.LayerDefaults, v1.LayerPolicies }), nil,
		},
		{
			"no minimum at all, and so no latency", policy.Inputs{
				Labels: map[string]string{"weir.min": "30M", "weir.latency": "5ms"}, Limits: limits(policy.Limits{MinBPS: new(uint64(0))}),
			},
			policy.Default(), from(func(f *v1.PolicyFrom) { f.Min = v1.LayerLimits }),
			[]string{
				`weir.latency="5ms": a latency bound needs a minimum rate, and the one given cannot be honoured; correct it (no latency bound applies)`,
				`weir.min="30M": is more than the config file's limits let this container's labels ask for (no minimum applies)`,
			},
		},
		{
			"a label's minimum does not raise the default maximum above the limit", policy.Inputs{
				Defaults: most(10e6), Labels: map[string]string{"weir.min": "50M"},
				Limits: []policy.Limits{{MaxBPS: new(uint64(90e6))}, {MaxBPS: new(uint64(10e6))}},
			},
			v1.Policy{Weight: 100, MinBPS: 10e6, MaxBPS: 10e6}, from(func(f *v1.PolicyFrom) { f.Min, f.Max = v1.LayerLimits, v1.LayerDefaults }),
			[]string{`weir.min="50M": is more than the maximum that the config file's limits let this container's labels ask for (minimum 10mbit applies)`},
		},
		{
			"a label's minimum raises the default maximum to the limit", policy.Inputs{
				Defaults: most(5e6), Labels: map[string]string{"weir.min": "50M"}, Limits: limits(policy.Limits{MaxBPS: new(uint64(10e6)), MinBPS: new(uint64(40e6))}),
			},
			v1.Policy{Weight: 100, MinBPS: 10e6, MaxBPS: 10e6}, from(func(f *v1.PolicyFrom) { f.Min, f.Max = v1.LayerLimits, v1.LayerLimits }),
			[]string{`weir.min="50M": is more than the maximum that the config file's limits let this container's labels ask for (minimum 10mbit applies)`},
		},
		{
			"a default maximum above the limit stays", policy.Inputs{
				Defaults: most(20e6), Labels: map[string]string{"weir.min": "50M"}, Limits: limits(policy.Limits{MaxBPS: new(uint64(10e6))}),
			},
			v1.Policy{Weight: 100, MinBPS: 20e6, MaxBPS: 20e6}, from(func(f *v1.PolicyFrom) { f.Min, f.Max = v1.LayerLimits, v1.LayerDefaults }),
			[]string{`weir.min="50M": is more than the maximum that`},
		},
		{
			"the operator's minimum above a default maximum and the limit", policy.Inputs{
				Defaults: most(5e6), Policies: selected(least(50e6)), Limits: limits(policy.Limits{MaxBPS: new(uint64(10e6))}),
			},
			v1.Policy{Weight: 100, MinBPS: 50e6, MaxBPS: 50e6}, from(func(f *v1.PolicyFrom) { f.Min, f.Max = v1.LayerPolicies, v1.LayerPolicies }), nil,
		},
		{
			"the operator's minimum above the label's maximum", policy.Inputs{Labels: map[string]string{"weir.max": "5M"}, Policies: selected(least(10e6))},
			v1.Policy{Weight: 100, MinBPS: 10e6, MaxBPS: 10e6}, from(func(f *v1.PolicyFrom) { f.Min, f.Max = v1.LayerPolicies, v1.LayerPolicies }),
			nil,
		},
		{
			"the operator's maximum below the label's minimum", policy.Inputs{Labels: map[string]string{"weir.min": "5M"}, Policies: selected(most(1e6))},
			v1.Policy{Weight: 100, MaxBPS: 1e6}, from(func(f *v1.PolicyFrom) { f.Max = v1.LayerPolicies }),
			[]string{`weir.min="5M": the minimum 5mbit is above the maximum 1mbit; lower the minimum or raise the maximum (no minimum applies)`},
		},
		{
			"two policies that do not go together", policy.Inputs{Policies: selected(least(5e6), most(1e6))},
			v1.Policy{Weight: 100, MaxBPS: 1e6}, from(func(f *v1.PolicyFrom) { f.Max = v1.LayerPolicies }),
			[]string{`min of the config file's policies="5mbit": the minimum 5mbit is above the maximum 1mbit; lower the minimum or raise the maximum (no minimum applies)`},
		},
		{
			"a latency without a minimum", policy.Inputs{Policies: selected(latency(5))}, policy.Default(), builtIn,
			[]string{`latency of the config file's policies="5ms": a latency bound needs a minimum rate; set one or remove the bound (no latency bound applies)`},
		},
		{
			"what was set no longer goes with a label", policy.Inputs{Set: latency(5)}, policy.Default(), builtIn,
			[]string{`latency of weir set="5ms": a latency bound needs a minimum rate`},
		},
		{"a default latency is for those that have a minimum", policy.Inputs{Defaults: latency(5)}, policy.Default(), builtIn, nil},
		{
			"classes", policy.Inputs{Labels: map[string]string{"weir.class": "gold"}, Defaults: policy.Values{Class: new(v1.ClassAF)}},
			v1.Policy{Weight: 100, Class: v1.ClassAF}, from(func(f *v1.PolicyFrom) { f.Class = v1.LayerDefaults }),
			[]string{`weir.class="gold": is not a class; write ef, af, be or auto (class af applies)`},
		},
		{
			"a default makes room", policy.Inputs{Labels: map[string]string{"weir.class": "auto", "weir.ef-max": "80%"}},
			v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{Percent: 80}, AFMin: v1.Part{Percent: 20}}, from(func(f *v1.PolicyFrom) { f.Class, f.EFMax = v1.LayerLabels, v1.LayerLabels }), nil,
		},
		{
			"the other default makes room", policy.Inputs{Labels: map[string]string{"weir.class": "auto", "weir.af-min": "87.3%"}},
			v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{Percent: 12.7}, AFMin: v1.Part{Percent: 87.3}}, from(func(f *v1.PolicyFrom) { f.Class, f.AFMin = v1.LayerLabels, v1.LayerLabels }), nil,
		},
		{
			"parts that are too much", policy.Inputs{Labels: map[string]string{"weir.class": "auto", "weir.ef-max": "80%", "weir.af-min": "60%"}},
			v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{Percent: 80}, AFMin: v1.Part{Percent: 20}}, from(func(f *v1.PolicyFrom) { f.Class, f.EFMax, f.AFMin = v1.LayerLabels, v1.LayerLabels, v1.LayerLabels }),
			[]string{`weir.af-min="60%": the maximum of EF 80% and the minimum of AF 60% are more than the whole share together; lower one of them (a minimum of AF of 20% applies)`},
		},
		{
			"the lower layer makes room", policy.Inputs{Labels: map[string]string{"weir.class": "auto", "weir.ef-max": "80%"}, Set: policy.Values{AFMin: &v1.Part{Percent: 60}}},
			v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{Percent: 40}, AFMin: v1.Part{Percent: 60}}, from(func(f *v1.PolicyFrom) { f.Class, f.EFMax, f.AFMin = v1.LayerLabels, v1.LayerLabels, v1.LayerSet }),
			[]string{`weir.ef-max="80%": the maximum of EF 80% and`},
		},
		{
			"rates", policy.Inputs{Labels: map[string]string{"weir.class": "auto", "weir.ef-max": "8mbit", "weir.af-min": "100%"}},
			v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{BPS: 8e6}, AFMin: v1.Part{Percent: 100}}, from(func(f *v1.PolicyFrom) { f.Class, f.EFMax, f.AFMin = v1.LayerLabels, v1.LayerLabels, v1.LayerLabels }), nil,
		},
		{
			"parts and DSCP without classes",
			policy.Inputs{Defaults: policy.Values{DSCP: new(v1.DSCPMark)}, Labels: map[string]string{"weir.ef-max": "80%", "weir.af-min": "60%", "weir.dscp": "trust"}},
			v1.Policy{Weight: 100}, builtIn,
			[]string{
				`weir.af-min="60%": a minimum of AF needs traffic classes; set the class to auto, or remove it (it has no effect)`,
				`weir.dscp="trust": the DSCP field is for traffic classes; set the class to auto`,
				`weir.ef-max="80%": a maximum of EF needs traffic classes; set the class to auto or ef, or remove it (it has no effect)`,
			},
		},
		{
			"parts of one class",
			policy.Inputs{Labels: map[string]string{"weir.class": "ef", "weir.ef-max": "80%", "weir.af-min": "60%", "weir.dscp": "both"}},
			v1.Policy{Weight: 100, Class: v1.ClassEF, EFMax: v1.Part{Percent: 80}, AFMin: v1.Part{Percent: 20}},
			from(func(f *v1.PolicyFrom) { f.Class, f.EFMax = v1.LayerLabels, v1.LayerLabels }),
			[]string{
				`weir.af-min="60%": all of its traffic is ef, none is AF; set the class to auto, or remove the minimum of AF (it has no effect)`,
				`weir.dscp="both": all of its traffic is ef, for any DSCP field; set the class to auto, or write mark (it has no effect)`,
			},
		},
		{
			"all of it is af",
			policy.Inputs{
				Defaults: policy.Values{AFMin: &v1.Part{Percent: 10}}, Labels: map[string]string{"weir.class": "af", "weir.dscp": "Mark"},
				Policies: selected(policy.Values{EFMax: &v1.Part{Percent: 10}}), Set: policy.Values{AFMin: &v1.Part{Percent: 20}},
			},
			v1.Policy{Weight: 100, Class: v1.ClassAF, DSCP: v1.DSCPMark}, from(func(f *v1.PolicyFrom) { f.Class, f.DSCP = v1.LayerLabels, v1.LayerLabels }),
			[]string{
				`af-min of weir set="20%": all of its traffic is af, and has the whole share`,
				`ef-max of the config file's policies="10%": all of its traffic is af, none is EF`,
			},
		},
		{
			"only a default is for classes that it does not have",
			policy.Inputs{Defaults: policy.Values{EFMax: &v1.Part{Percent: 10}, DSCP: new(v1.DSCPBoth)}}, v1.Policy{Weight: 100}, builtIn, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := policy.Resolve(tc.in)
			if want := usualParts(tc.want); got.Policy != want || got.From != tc.from {
				t.Errorf("policy %+v\nfrom   %+v\nwant   %+v\nfrom   %+v", got.Policy, got.From, tc.want, tc.from)
			}
			if len(got.Problems) != len(tc.problems) {
				t.Fatalf("problems %q\nwant %q", got.Problems, tc.problems)
			}
			for i, p := range got.Problems {
				if !strings.HasPrefix(p.Error(), tc.problems[i]) {
					t.Errorf("problem %d: %s\nwant begins: %s", i, p, tc.problems[i])
				}
			}
		})
	}
}

func together(v policy.Values) bool {
	_, err := v.Check()
	return err == nil
}

// drawn are values of a layer, alone in order.
var drawn = rapid.Custom(func(t *rapid.T) policy.Values {
	var v policy.Values
	for _, one := range []policy.Values{weight(5), least(5e6), most(20e6), most(1e6), latency(5), least(0), {Class: new(v1.ClassEF)}, {EFMax: &v1.Part{Percent: 80}}, {AFMin: &v1.Part{Percent: 60}}, {AFMin: &v1.Part{BPS: 4e6}}, {Priority: new(uint32(5))}} {
		if rapid.IntRange(0, 3).Draw(t, "given") == 0 && together(v.With(one)) {
			v = v.With(one)
		}
	}
	return v
})

// TestResolveProperties: the policy is valid whatever the layers say, `weir set` has
// the last word, and labels of an image and policies in doubt never raise a guarantee.
func TestResolveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.MapOf(rapid.SampledFrom([]string{
			"weir.weight", "weir.min", "weir.max", "weir.priority", "weir.latency", "weir.class", "weir.ef-max", "weir.af-min", "weir.dscp", "Weir.Min",
		}), values).Draw(t, "labels")
		in := policy.Inputs{Defaults: drawn.Draw(t, "defaults"), Labels: labels, Set: drawn.Draw(t, "set")}
		for _, values := range rapid.SliceOfN(drawn, 0, 2).Draw(t, "policies") {
			in.Policies = append(in.Policies, policy.Selected{Values: values, InDoubt: rapid.Bool().Draw(t, "in doubt")})
		}
		if rapid.Bool().Draw(t, "limited") {
			in.Limits = []policy.Limits{{Weight: new(uint32(50)), MaxBPS: new(uint64(9e6)), Priority: new(uint32(1))}}
			if rapid.Bool().Draw(t, "minimum limited") {
				in.Limits[0].MinBPS = new(uint64(1e6))
			}
		}
		got := policy.Resolve(in)
		if !valid(got.Policy) {
			t.Fatalf("invalid policy %+v", got.Policy)
		}
		if in.Set.Weight != nil && (got.Policy.Weight != *in.Set.Weight || got.From.Weight != v1.LayerSet) {
			t.Fatalf("set weight became %+v from %+v", got.Policy, got.From)
		}
		for _, p := range got.Problems {
			if p.Name == "" || p.Message == "" || p.Effect == "" {
				t.Fatalf("problem %+v", p)
			}
		}
		if in.Limits != nil && got.Policy.MaxBPS > 9e6 && (got.From.Max == v1.LayerLabels || got.From.Max == v1.LayerLimits) {
			t.Fatalf("labels raise the maximum above its limit: %+v from %+v", got.Policy, got.From)
		}
		in.ImageLabels = labels
		without := in
		without.Labels = nil
		raises(t, "the image's labels", policy.Resolve(in).Policy, policy.Resolve(without).Policy)
		for i := range in.Policies {
			in.Policies[i].InDoubt = true
		}
		without = in
		without.Policies = nil
		raises(t, "policies in doubt", policy.Resolve(in).Policy, policy.Resolve(without).Policy)
	})
}

// raises fails if a policy takes more from other containers than another does.
func raises(t *rapid.T, what string, with, without v1.Policy) {
	if with.Priority > without.Priority || with.MinBPS > without.MinBPS || with.Weight > without.Weight ||
		with.LatencyMS != 0 && (without.LatencyMS == 0 || with.LatencyMS < without.LatencyMS) ||
		without.MaxBPS != 0 && (with.MaxBPS == 0 || with.MaxBPS > without.MaxBPS) {
		t.Fatalf("with %s %+v, without %+v", what, with, without)
	}
}

func TestRules(t *testing.T) {
	compose := func(project, service string) map[string]string {
		return map[string]string{"com.docker.compose.project": project, "com.docker.compose.service": service}
	}
	swarm := map[string]string{"com.docker.stack.namespace": "shop", "com.docker.swarm.service.name": "shop_web"}
	for _, tc := range []struct {
		name     string
		selector policy.Selector
		subject  policy.Subject
		want     bool
	}{
		{"name", policy.Selector{Name: "web-*"}, policy.Subject{Name: "web-1"}, true},
		{"another name", policy.Selector{Name: "web-*"}, policy.Subject{Name: "web"}, false},
		{"service", policy.Selector{Service: "web"}, policy.Subject{Labels: compose("shop", "web")}, true},
		{"service of Swarm", policy.Selector{Service: "shop_web"}, policy.Subject{Labels: swarm}, true},
		{"service of a stack", policy.Selector{Project: "shop", Service: "web"}, policy.Subject{Labels: swarm}, true},
		{"service of no stack", policy.Selector{Service: "b"}, policy.Subject{Labels: map[string]string{"com.docker.swarm.service.name": "a_b"}}, false},
		{"service, but none is given", policy.Selector{Service: "*"}, policy.Subject{}, false},
		{"project", policy.Selector{Project: "sh*"}, policy.Subject{Labels: compose("shop", "web")}, true},
		{"stack", policy.Selector{Project: "shop"}, policy.Subject{Labels: swarm}, true},
		{"all parts", policy.Selector{Project: "shop", Service: "db"}, policy.Subject{Labels: compose("shop", "web")}, false},
		{"image", policy.Selector{Image: "nginx"}, policy.Subject{Image: "nginx"}, true},
		{"image with a tag", policy.Selector{Image: "nginx"}, policy.Subject{Image: "nginx:1.25"}, true},
		{"tag", policy.Selector{Image: "nginx:2*"}, policy.Subject{Image: "nginx:1.25"}, false},
		{"registry", policy.Selector{Image: "ghcr.example:5000/*"}, policy.Subject{Image: "ghcr.example:5000/a/b:1"}, true},
		{"registry with a port, no tag", policy.Selector{Image: "ghcr.example:5000/a"}, policy.Subject{Image: "ghcr.example:5000/a"}, true},
		{"digest", policy.Selector{Image: "a/b"}, policy.Subject{Image: "a/b@sha256:12"}, true},
		{"another's image", policy.Selector{Image: "a/b"}, policy.Subject{Image: "c/a/b"}, false},
	} {
		rules := policy.Rules{Policies: []policy.Rule{{Selector: tc.selector, Values: weight(7)}}}
		if got := rules.Resolve(tc.subject, policy.Values{}).Policy.Weight == 7; got != tc.want {
			t.Errorf("%s: a policy applies: %v", tc.name, got)
		}
		tc.subject.Labels = maps(tc.subject.Labels, "weir.weight", "500")
		rules = policy.Rules{Limits: []policy.Limit{{Selector: tc.selector, Limits: policy.Limits{Weight: new(uint32(7))}}}}
		if got := rules.Resolve(tc.subject, policy.Values{}).Policy.Weight == 7; got != tc.want {
			t.Errorf("%s: a limit applies: %v", tc.name, got)
		}
	}

	// An image claims another's service: it does not get its policy, and does get
	// its limit.
	claims := policy.Subject{Labels: maps(compose("shop", "web"), "weir.weight", "500"), ImageLabels: compose("shop", "web")}
	rules := policy.Rules{
		Policies: []policy.Rule{{Selector: policy.Selector{Service: "web"}, Values: least(5e6)}},
		Limits:   []policy.Limit{{Selector: policy.Selector{Service: "web"}, Limits: policy.Limits{Weight: new(uint32(7))}}},
	}
	if got := rules.Resolve(claims, policy.Values{}).Policy; got != usualParts(v1.Policy{Weight: 7}) {
		t.Errorf("an image that claims a service: %+v", got)
	}
	perhaps := claims
	perhaps.ImageLabels, perhaps.ImageUnknown = nil, "no such image"
	rules.Policies = append(rules.Policies, policy.Rule{Selector: policy.Selector{Project: "shop"}, Values: most(10e6)})
	if got := rules.Resolve(perhaps, policy.Values{}); got.Policy != usualParts(v1.Policy{Weight: 100, MaxBPS: 10e6}) || len(got.Problems) != 2 ||
		!strings.HasPrefix(got.Problems[0].Error(), `min of the config file's policies="5mbit": the name, project or service`) || !strings.HasPrefix(got.Problems[1].Error(), "weir.weight=") {
		t.Errorf("an image that may claim a service: %+v", got)
	}
	perhaps.Labels = maps(perhaps.Labels, "com.docker.compose.container-number", "1")
	if got := rules.Resolve(perhaps, policy.Values{}).Policy; got != usualParts(v1.Policy{Weight: 100, MaxBPS: 10e6}) {
		t.Errorf("an image that may claim to be a container of Compose: %+v", got)
	}
	rules.Policies = rules.Policies[:1]
	for _, namespace := range []string{"", "k8s.io/"} {
		named := policy.Subject{Name: namespace + "1234", Labels: map[string]string{"nerdctl/name": "web"}, ImageUnknown: "no such image"}
		byName := policy.Rules{Policies: []policy.Rule{{Selector: policy.Selector{Name: namespace + "web"}, Values: most(10e6).With(least(1e6))}}}
		if got := byName.Resolve(named, policy.Values{}); got.Policy.MaxBPS != 10e6 || got.Policy.MinBPS != 0 || len(got.Problems) != 1 {
			t.Errorf("an image that may claim a name: %+v", got)
		}
		named.ImageUnknown, named.ImageLabels = "", named.Labels
		if got := byName.Resolve(named, policy.Values{}).Policy; got != policy.Default() {
			t.Errorf("an image that claims a name: %+v", got)
		}
	}
	rules.TrustImageLabels = true
	if got := rules.Resolve(claims, weight(9)).Policy; got != usualParts(v1.Policy{Weight: 9, MinBPS: 5e6}) {
		t.Errorf("an image that is trusted: %+v", got)
	}

	// Compose gives the images that it builds the same labels as the containers,
	// but for their number.
	rules.TrustImageLabels, rules.Limits = false, nil
	built := policy.Subject{Labels: maps(compose("shop", "web"), "com.docker.compose.container-number", "1"), ImageLabels: compose("shop", "web")}
	if got := rules.Resolve(built, policy.Values{}).Policy.MinBPS; got != 5e6 {
		t.Errorf("a container of Compose from an image that Compose built: a minimum of %d", got)
	}
	built.ImageLabels = built.Labels
	if got := rules.Resolve(built, policy.Values{}).Policy.MinBPS; got != 0 {
		t.Errorf("an image that claims to be a container of Compose: a minimum of %d", got)
	}
	stack := policy.Subject{Labels: maps(swarm, "com.docker.compose.container-number", "1"), ImageLabels: swarm}
	for _, service := range []string{"shop_web", "web"} {
		rules.Policies[0].Service = service
		if got := rules.Resolve(stack, policy.Values{}).Policy.MinBPS; got != 0 {
			t.Errorf("an image that claims the service %s of Swarm: a minimum of %d", service, got)
		}
	}
}

// maps is labels with one more.
func maps(labels map[string]string, name, value string) map[string]string {
	more := map[string]string{name: value}
	for k, v := range labels {
		more[k] = v
	}
	return more
}

// What the file says of a container that no engine knows comes from the file.
func TestConfiguredContainer(t *testing.T) {
	weight := uint32(70)
	rules := policy.Rules{Defaults: policy.Values{Priority: &weight}, Limits: []policy.Limit{{Limits: policy.Limits{Weight: &weight}}}}
	got := rules.Resolve(policy.Subject{Configured: true, Labels: map[string]string{policy.LabelMax: "9mbit", policy.LabelWeight: "300"}}, policy.Values{}).From
	if got.Max != v1.LayerContainers || got.Weight != v1.LayerLimits || got.Priority != v1.LayerDefaults || got.Min != v1.LayerBuiltIn {
		t.Errorf("got %+v", got)
	}
}

func TestReadsLabel(t *testing.T) {
	var read []string
	for _, name := range []string{"weir.min", "Weir.Min", "weir.x", "weir", "weir.", "weird.min", "com.docker.compose.service", "com.docker.compose.oneoff", "kubernetes.io/egress-bandwidth", "nerdctl/name", ""} {
		if policy.ReadsLabel(name) {
			read = append(read, name)
		}
	}
	if want := []string{"weir.min", "Weir.Min", "weir.x", "com.docker.compose.service", "kubernetes.io/egress-bandwidth", "nerdctl/name"}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
}

func TestParsePattern(t *testing.T) {
	for text, want := range map[string]string{"web-*": "", "a?[bc]": "", "": "is empty", "[a": "is not a pattern"} {
		got, err := policy.ParsePattern(text)
		if want == "" && (err != nil || got != text) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParsePattern(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// EF goes before what others have queued, so an image may not ask for it either.
func TestClassOfImage(t *testing.T) {
	labels := map[string]string{"weir.class": "ef", "weir.ef-max": "60%"}
	got := policy.Resolve(policy.Inputs{Labels: labels, ImageLabels: labels})
	if got.Policy.Class != v1.ClassNone || got.Policy.EFMax.Percent != policy.DefaultEFMaxPercent || len(got.Problems) != 2 {
		t.Errorf("labels of the image: %+v, %v", got.Policy, got.Problems)
	}
	got = policy.Resolve(policy.Inputs{Labels: labels, ImageLabels: labels, TrustImageLabels: true})
	if got.Policy.Class != v1.ClassEF || got.Policy.EFMax.Percent != 60 {
		t.Errorf("of one that is trusted: %+v", got.Policy)
	}
}
