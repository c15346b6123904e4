package policy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   v1.Policy
	}{
		{"nothing", nil, v1.Policy{Weight: 100}},
		{"others' labels", map[string]string{"com.docker.compose.service": "web", "weird": "yes", "weir": "1"}, v1.Policy{Weight: 100}},
		{
			"everything",
			map[string]string{
				"weir.weight": "300", "weir.min": "10mbit", "weir.max": "1.5G",
				"weir.priority": "7", "weir.latency": "20ms", "weir.class": "auto",
			},
			v1.Policy{
				Weight: 300, MinBPS: 10_000_000, MaxBPS: 1_500_000_000,
				Priority: 7, LatencyMS: 20, Class: v1.ClassAuto,
			},
		},
		{"limits", map[string]string{"weir.weight": "10000", "weir.priority": "1000"}, v1.Policy{Weight: 10000, Priority: 1000}},
		{"minimum equals maximum", map[string]string{"weir.min": "5M", "weir.max": "5mbit"}, v1.Policy{Weight: 100, MinBPS: 5e6, MaxBPS: 5e6}},
		{"Kubernetes", map[string]string{"kubernetes.io/egress-bandwidth": "10M"}, v1.Policy{Weight: 100, MaxBPS: 10_000_000}},
		{
			"weir.max before Kubernetes",
			map[string]string{"kubernetes.io/egress-bandwidth": "10MB", "weir.max": "5M"},
			v1.Policy{Weight: 100, MaxBPS: 5_000_000},
		},
		{"no share by weight", map[string]string{"weir.weight": "0"}, v1.Policy{Weight: 0}},
		{"fraction of a millisecond", map[string]string{"weir.min": "1G", "weir.latency": "250us"}, v1.Policy{Weight: 100, MinBPS: 1e9, LatencyMS: 0.25}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := policy.Parse(tc.labels)
			if want := usualParts(tc.want); got != want || problems != nil {
				t.Errorf("Parse = %+v, %v\nwant %+v", got, problems, tc.want)
			}
		})
	}
}

// TestParseProblems: a bad value costs that value (and what depends on it) only.
func TestParseProblems(t *testing.T) {
	for _, tc := range []struct {
		name     string
		labels   map[string]string
		want     v1.Policy
		problems []string // each as Error prints it, or its beginning
	}{
		{
			"weight below 0", map[string]string{"weir.weight": "-1", "weir.priority": "3"},
			v1.Policy{Weight: 100, Priority: 3},
			[]string{`weir.weight="-1": write a whole number from 0 to 10000 (weight 100 applies)`},
		},
		{
			"all bad, in order of name",
			map[string]string{
				"weir.weight": "heavy", "weir.min": "30MB", "weir.max": "-1", "weir.priority": "1001",
				"weir.latency": "20", "weir.class": "gold", "weir.colour": "red",
			},
			policy.Default(),
			[]string{
				`weir.class="gold": is not a class; write ef, af, be or auto (no class applies)`,
				`weir.colour="red": unknown name; known are weir.weight, weir.min, weir.max, weir.priority, weir.latency, weir.class, weir.ef-max, weir.af-min, weir.dscp, weir.in.weight, weir.in.min, weir.in.max, weir.in.priority, weir.in.latency (ignored)`,
				`weir.latency="20": has no unit; for milliseconds write 20ms (no latency bound applies)`,
				`weir.max="-1": is negative; write for example 30mbit (no maximum applies)`,
				`weir.min="30MB": has the unit "MB": bytes are not accepted; for 30 megabit write 30mbit (no minimum applies)`,
				`weir.priority="1001": write a whole number from 0 to 1000 (priority 0 applies)`,
				`weir.weight="heavy": write a whole number from 0 to 10000 (weight 100 applies)`,
			},
		},
		{
			"minimum above maximum", map[string]string{"weir.min": "30M", "weir.max": "20M"},
			v1.Policy{Weight: 100, MaxBPS: 20_000_000},
			[]string{`weir.min="30M": the minimum 30mbit is above the maximum 20mbit; lower the minimum or raise the maximum (no minimum applies)`},
		},
		{
			"minimum above Kubernetes' maximum, which takes the latency with it",
			map[string]string{"weir.min": "30M", "kubernetes.io/egress-bandwidth": "20M", "weir.latency": "5ms"},
			v1.Policy{Weight: 100, MaxBPS: 20_000_000},
			[]string{
				`weir.latency="5ms": a latency bound needs a minimum rate, and the one given cannot be honoured; correct it (no latency bound applies)`,
				`weir.min="30M": the minimum 30mbit is above`,
			},
		},
		{
			"latency without minimum", map[string]string{"weir.latency": "5ms"},
			policy.Default(),
			[]string{`weir.latency="5ms": a latency bound needs a minimum rate; set one or remove the bound (no latency bound applies)`},
		},
		{
			"bad Kubernetes bandwidth", map[string]string{"kubernetes.io/egress-bandwidth": "10m"},
			policy.Default(),
			[]string{`kubernetes.io/egress-bandwidth="10m": has the unit m, which means a thousandth in Kubernetes; write 10M or 10mbit (no maximum applies)`},
		},
		{
			"bad weir.max does not fall back to Kubernetes", map[string]string{"kubernetes.io/egress-bandwidth": "10M", "weir.max": ""},
			policy.Default(),
			[]string{`weir.max="": is empty; write a value or remove it (no maximum applies)`},
		},
		{
			"misspelt names", map[string]string{"weir.wieght": "3", "weir.Max": "1M", "weir.": "x", "weir.ceil": "1M"},
			policy.Default(),
			[]string{
				`weir.="x": unknown name; known are`,
				`weir.Max="1M": names of labels are in lower case; write weir.max (ignored)`,
				`weir.ceil="1M": unknown name; known are`,
				`weir.wieght="3": unknown name; did you mean weir.weight? (ignored)`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, problems := policy.Parse(tc.labels)
			if want := usualParts(tc.want); got != want {
				t.Errorf("Parse = %+v\nwant    %+v", got, want)
			}
			if len(problems) != len(tc.problems) {
				t.Fatalf("problems %q\nwant %q", problems, tc.problems)
			}
			for i, p := range problems {
				if !strings.HasPrefix(p.Error(), tc.problems[i]) {
					t.Errorf("problem %d: %s\nwant begins: %s", i, p, tc.problems[i])
				}
				if value, given := tc.labels[p.Name]; !given || value != p.Value {
					t.Errorf("problem %d is about %s=%q, which is not a label", i, p.Name, p.Value)
				}
			}
		})
	}
}

func TestNames(t *testing.T) {
	var fields []string
	change := reflect.TypeFor[v1.PolicyChange]()
	for i := range change.NumField() {
		name, _, _ := strings.Cut(change.Field(i).Tag.Get("json"), ",")
		if in, ok := strings.CutPrefix(name, "in_"); ok {
			name = "in." + in
		}
		fields = append(fields, strings.ReplaceAll(name, "_", "-"))
	}
	if !slices.Equal(fields, policy.Names()) {
		t.Errorf("Names() = %v, but v1.PolicyChange has %v", policy.Names(), fields)
	}
}

func TestParseValues(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"20ms": 20 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "500us": 500 * time.Microsecond,
		"500µs": 500 * time.Microsecond, "1ns": 1, "10s": 10 * time.Second,
	} {
		if got, err := policy.ParseLatency(text); err != nil || got != want {
			t.Errorf("ParseLatency(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]v1.Class{
		"ef": v1.ClassEF, "AF": v1.ClassAF, "be": v1.ClassBE, "Auto": v1.ClassAuto,
	} {
		if got, err := policy.ParseClass(text); err != nil || got != want {
			t.Errorf("ParseClass(%q) = %q, %v; want %q", text, got, err, want)
		}
	}

	latency := func(text string) error { _, err := policy.ParseLatency(text); return err }
	weight := func(text string) error { _, err := policy.ParseWeight(text); return err }
	priority := func(text string) error { _, err := policy.ParsePriority(text); return err }
	class := func(text string) error { _, err := policy.ParseClass(text); return err }
	for _, tc := range []struct {
		parse      func(string) error
		text, want string
	}{
		{latency, "", "is empty"},
		{latency, "20", "write 20ms"},
		{latency, "1.5", "write 1.5ms"},
		{latency, "20 ms", "is not a duration"},
		{latency, "soon", "is not a duration"},
		{latency, "99999999999999999999h", "is not a duration"},
		{latency, "0s", "must be above 0"},
		{latency, "-20ms", "must be above 0"},
		{latency, "10.001s", "write at most 10s"},
		{weight, "", "is empty"},
		{weight, "10001", "from 0 to 10000"},
		{weight, "-1", "from 0 to 10000"},
		{weight, "+1", "from 0 to 10000"},
		{weight, "1.5", "from 0 to 10000"},
		{weight, "1_0", "from 0 to 10000"},
		{weight, "18446744073709551617", "from 0 to 10000"},
		{weight, "٣", "from 0 to 10000"},
		{priority, "", "is empty"},
		{priority, "1001", "from 0 to 1000"},
		{priority, "high", "from 0 to 1000"},
		{class, "", "is empty"},
		{class, "none", "write ef, af, be or auto"},
		{class, "ef ", "write ef, af, be or auto"},
	} {
		if err := tc.parse(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v; want one with %q", tc.text, err, tc.want)
		}
	}
}

// changed is base with what `weir set` says.
func changed(base v1.Policy, set policy.Values) v1.Policy {
	return policy.Resolve(policy.Inputs{Defaults: policy.Values{
		Weight: &base.Weight, MinBPS: &base.MinBPS, MaxBPS: &base.MaxBPS,
		Priority: &base.Priority, LatencyMS: &base.LatencyMS, Class: &base.Class,
	}, Set: set}).Policy
}

func TestCheckChange(t *testing.T) {
	base := v1.Policy{Weight: 50, MinBPS: 10e6, MaxBPS: 20e6, Priority: 1, LatencyMS: 5, Class: v1.ClassEF}
	base = usualParts(base)
	for _, tc := range []struct {
		name   string
		change v1.PolicyChange
		want   v1.Policy
	}{
		{"nothing", v1.PolicyChange{}, base},
		{
			"everything",
			v1.PolicyChange{
				Weight: new("200"), Min: new("1mbit"), Max: new("2mbit"),
				Priority: new("0"), Latency: new("1s"), Class: new("be"),
			},
			v1.Policy{Weight: 200, MinBPS: 1e6, MaxBPS: 2e6, Priority: 0, LatencyMS: 1000, Class: v1.ClassBE},
		},
		{
			"remove with none",
			v1.PolicyChange{Min: new("none"), Max: new("None"), Latency: new("NONE"), Class: new("none")},
			v1.Policy{Weight: 50, Priority: 1},
		},
		{
			"minimum and maximum are judged together",
			v1.PolicyChange{Min: new("30mbit"), Max: new("40mbit")},
			v1.Policy{Weight: 50, MinBPS: 30e6, MaxBPS: 40e6, Priority: 1, LatencyMS: 5, Class: v1.ClassEF},
		},
		{
			"a default part makes room", v1.PolicyChange{EFMax: new("80%")},
			v1.Policy{
				Weight: 50, MinBPS: 10e6, MaxBPS: 20e6, Priority: 1, LatencyMS: 5, Class: v1.ClassEF,
				EFMax: v1.Part{Percent: 80}, AFMin: v1.Part{Percent: 20},
			},
		},
		{
			"minimum without ceiling",
			v1.PolicyChange{Min: new("30mbit"), Max: new("none")},
			v1.Policy{Weight: 50, MinBPS: 30e6, Priority: 1, LatencyMS: 5, Class: v1.ClassEF},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := policy.CheckChange(base, policy.Default(), tc.change)
			if got := changed(base, set); err != nil || got != usualParts(tc.want) {
				t.Errorf("changed to %+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}

	for _, tc := range []struct {
		name   string
		change v1.PolicyChange
		want   []string
	}{
		{"minimum above maximum", v1.PolicyChange{Min: new("21M")}, []string{"the minimum 21mbit is above the maximum 20mbit"}},
		{"that of received traffic", v1.PolicyChange{InMin: new("2M"), InMax: new("1M")}, []string{"received traffic: the minimum 2mbit is above the maximum 1mbit"}},
		{"latency left without minimum", v1.PolicyChange{Min: new("none")}, []string{"needs a minimum rate; set one or remove the bound"}},
		{
			"an empty value is no wish", // as of a variable that is not set
			v1.PolicyChange{Weight: new(""), Min: new(""), Max: new(""), Latency: new(""), Class: new("")},
			[]string{"weight is empty", "min is empty", "max is empty", "latency is empty", "class is empty"},
		},
		{"priority cannot be removed", v1.PolicyChange{Priority: new("none")}, []string{`priority "none": write a whole number`}},
		{
			"all problems at once, and no consequence of them",
			v1.PolicyChange{
				Weight: new("-1"), Min: new("1MB"), Max: new("0"),
				Priority: new("-1"), Latency: new("1"), Class: new("x"),
				EFMax: new("none"), AFMin: new("101%"), DSCP: new("EF"),
			},
			[]string{`weight "-1"`, `min "1MB"`, `max "0"`, `priority "-1"`, `latency "1"`, `class "x"`, `ef-max "none"`, `af-min "101%"`, `dscp "EF": is no use of DSCP; write trust, mark or both`},
		},
		{"a minimum of AF where there is none", v1.PolicyChange{AFMin: new("10%"), DSCP: new("trust")}, []string{"all of its traffic is", "all of its traffic is"}},
		{"parts of more than the whole", v1.PolicyChange{EFMax: new("80%"), AFMin: new("30%")}, []string{"lower one of them"}},
		{"a good value does not slip past a bad one", v1.PolicyChange{Weight: new("7"), Max: new("x")}, []string{`max "x"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := policy.CheckChange(base, policy.Default(), tc.change)
			if err == nil || got != (policy.Values{}) {
				t.Fatalf("CheckChange = %+v, %v; want an error alone", got, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("errors:\n%v\nwant %d", err, len(tc.want))
			}
			for i, line := range lines {
				if !strings.Contains(line, tc.want[i]) {
					t.Errorf("error %d: %s\nwant one with %s", i, line, tc.want[i])
				}
			}
		})
	}
}

func TestParsePart(t *testing.T) {
	for text, want := range map[string]v1.Part{
		"50%": {Percent: 50}, "12.5%": {Percent: 12.5}, "0%": {}, "100%": {Percent: 100}, "0.05%": {Percent: 0.05},
		"10mbit": {BPS: 10e6}, "5M": {BPS: 5e6},
	} {
		got, err := policy.ParsePart(text)
		if err != nil || got != want {
			t.Errorf("ParsePart(%q) = %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if again, err := policy.ParsePart(policy.FormatPart(got)); err != nil || again != got {
			t.Errorf("%q is written %q, which is %+v, %v", text, policy.FormatPart(got), again, err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", "50": "for a percentage of the share 50%", "0": "for a percentage of the share 0%", "101%": "is not a percentage", "-1%": "is not a percentage",
		"1e1%": "is not a percentage", "5.125%": "is not a percentage", "%": "is not a percentage", "NaN%": "is not a percentage",
		"none": "is not a rate", "10MB": "bytes are not accepted", "5 %": "is not a percentage",
	} {
		if got, err := policy.ParsePart(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePart(%q) = %+v, %v; want %q", text, got, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"weight", "min", "max", "priority", "latency", "class"}
	for name, want := range map[string]string{
		"weight": "weight", "weigth": "weight", "wheight": "weight", "WEIGHT": "weight", "wei": "",
		"mni": "min", "ma": "max", "m": "", "mix": "min", "": "", "x": "",
		"prio": "", "priorty": "priority", "prioritize": "", "clas": "class", "latncey": "latency", "lat€ncy": "latency",
	} {
		if got, ok := policy.Nearest(name, known); got != want || ok != (want != "") {
			t.Errorf("Nearest(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
}

// valid says what every policy keeps to.
func valid(p v1.Policy) bool {
	_, classErr := policy.ParseClass(string(p.Class))
	_, dscpErr := policy.ParseDSCP(string(p.DSCP))
	return p.Weight <= policy.MaxWeight &&
		p.Priority <= policy.MaxPriority &&
		p.MinBPS <= policy.MaxRateBPS && p.MaxBPS <= policy.MaxRateBPS &&
		(p.MaxBPS == 0 || p.MinBPS <= p.MaxBPS) &&
		p.LatencyMS >= 0 && p.LatencyMS <= 10_000 && (p.LatencyMS == 0 || p.MinBPS > 0) &&
		(p.Class == v1.ClassNone || classErr == nil) && (p.DSCP == v1.DSCPNone || dscpErr == nil) && validPart(p.EFMax) && validPart(p.AFMin) &&
		p.EFMax.Percent+p.AFMin.Percent <= 100
}

func validPart(p v1.Part) bool {
	return p.BPS <= policy.MaxRateBPS && p.Percent >= 0 && p.Percent <= 100 && (p.BPS == 0 || p.Percent == 0)
}

// usualParts is p with the parts of EF and AF that apply where none are asked for.
func usualParts(p v1.Policy) v1.Policy {
	if p.EFMax == (v1.Part{}) && p.AFMin == (v1.Part{}) {
		p.EFMax, p.AFMin = policy.Default().EFMax, policy.Default().AFMin
	}
	return p
}

// values are texts, good and bad, that labels are drawn from.
var values = rapid.OneOf(
	rapid.SampledFrom([]string{
		"", "none", "0", "1", "100", "1000", "10001", "-5", "30mbit", "10M", "20M", "30MB",
		"1s", "20ms", "11s", "ef", "auto", "BE", "gold", "40%", "80%", "101%", "trust", "both",
	}),
	rapid.String(),
)

// TestParseProperties: the policy is valid whatever is written, there is a problem
// for each value that was not taken, and no label changes another's value unless
// they are bound to each other.
func TestParseProperties(t *testing.T) {
	names := []string{
		policy.LabelWeight, policy.LabelMin, policy.LabelMax, policy.LabelPriority,
		policy.LabelLatency, policy.LabelClass, policy.LabelEFMax, policy.LabelAFMin, policy.LabelDSCP, policy.LabelKubernetesMax, "weir.mx", "other",
	}
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.MapOf(rapid.SampledFrom(names), values).Draw(t, "labels")
		p, problems := policy.Parse(labels)
		if !valid(p) {
			t.Fatalf("invalid policy %+v", p)
		}
		bad := map[string]bool{}
		for _, problem := range problems {
			if bad[problem.Name] || problem.Value != labels[problem.Name] || problem.Message == "" || problem.Effect == "" {
				t.Fatalf("problem %+v", problem)
			}
			bad[problem.Name] = true
		}
		// The labels without problems alone mean the same.
		good := map[string]string{}
		for name, value := range labels {
			if !bad[name] {
				good[name] = value
			}
		}
		if _, given := labels[policy.LabelMax]; given && bad[policy.LabelMax] {
			delete(good, policy.LabelKubernetesMax)
		}
		if again, left := policy.Parse(good); again != p || left != nil {
			t.Fatalf("without the bad labels: %+v, %v; with: %+v", again, left, p)
		}
	})
}

// TestCheckChangeAgreesWithParse: what a label accepts, `weir set` accepts and
// understands the same.
func TestCheckChangeAgreesWithParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.MapOf(rapid.SampledFrom(policy.Names()), values).Draw(t, "values")
		prefixed := map[string]string{}
		var change v1.PolicyChange
		fields := map[string]**string{
			"weight": &change.Weight, "min": &change.Min, "max": &change.Max,
			"priority": &change.Priority, "latency": &change.Latency, "class": &change.Class,
			"ef-max": &change.EFMax, "af-min": &change.AFMin, "dscp": &change.DSCP,
			"in.weight": &change.InWeight, "in.min": &change.InMin, "in.max": &change.InMax,
			"in.priority": &change.InPriority, "in.latency": &change.InLatency,
		}
		removed := false
		for name, value := range labels {
			prefixed[policy.Prefix+name] = value
			*fields[name] = &value
			removed = removed || value == "" || value == "none"
		}
		fromLabels, problems := policy.Parse(prefixed)
		set, err := policy.CheckChange(policy.Default(), policy.Default(), change)
		changed := changed(policy.Default(), set)
		if !valid(changed) {
			t.Fatalf("invalid policy %+v", changed)
		}
		if !removed && (err == nil) != (problems == nil) {
			t.Fatalf("labels: %v; change: %v", problems, err)
		}
		if problems == nil && changed != fromLabels {
			t.Fatalf("labels: %+v; change: %+v", fromLabels, changed)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("weir.min", "30mbit", "weir.latency", "20ms")
	f.Add("weir.weight", "0", "weir.clas", "ef")
	f.Add("kubernetes.io/egress-bandwidth", "10M", "weir.min", "20M")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		p, problems := policy.Parse(map[string]string{name1: value1, name2: value2})
		if !valid(p) {
			t.Errorf("invalid policy %+v", p)
		}
		for _, problem := range problems {
			if problem.Name != name1 && problem.Name != name2 {
				t.Errorf("problem with a label that is not there: %v", problem)
			}
		}
	})
}

func FuzzParseLatency(f *testing.F) {
	for _, seed := range []string{"20ms", "1.5s", "", "-1s", "20", "1h1m1s", "∞"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := policy.ParseLatency(text)
		if (err == nil) != (d > 0) || d > policy.MaxLatency {
			t.Errorf("ParseLatency(%q) = %v, %v", text, d, err)
		}
	})
}

func FuzzParseNumbersAndClass(f *testing.F) {
	for _, seed := range []string{"1", "0", "10000", "-1", "ef", "AUTO", "", "007"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if w, err := policy.ParseWeight(text); w > policy.MaxWeight || (err != nil && w != 0) {
			t.Errorf("ParseWeight(%q) = %d, %v", text, w, err)
		}
		if p, err := policy.ParsePriority(text); p > policy.MaxPriority || (err != nil && p != 0) {
			t.Errorf("ParsePriority(%q) = %d, %v", text, p, err)
		}
		if c, err := policy.ParseClass(text); (err == nil) != (c != v1.ClassNone) {
			t.Errorf("ParseClass(%q) = %q, %v", text, c, err)
		}
	})
}
