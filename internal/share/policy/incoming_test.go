package policy_test

import (
	"slices"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

func ptr[T any](v T) *T { return &v }

// TestResolveIncoming: received traffic has values of its own, and where it has none the weight and the
// classes of what goes out.
func TestResolveIncoming(t *testing.T) {
	const mbit = 1_000_000
	for _, tc := range []struct {
		name     string
		in       policy.Inputs
		want     v1.Policy
		from     v1.PolicyFrom
		problems []string // names
	}{
		{
			name: "none", in: policy.Inputs{Labels: map[string]string{"weir.weight": "300", "weir.class": "auto", "weir.min": "5mbit", "weir.priority": "7"}},
			want: v1.Policy{Weight: 300, Class: v1.ClassAuto},
			from: v1.PolicyFrom{Weight: v1.LayerLabels, Class: v1.LayerLabels},
		},
		{
			name: "labels", in: policy.Inputs{Labels: map[string]string{
				"weir.weight": "300", "weir.max": "1mbit", "weir.in.weight": "50", "weir.in.min": "5mbit", "weir.in.max": "20mbit", "weir.in.priority": "3", "weir.in.latency": "20ms",
			}},
			want: v1.Policy{Weight: 50, MinBPS: 5 * mbit, MaxBPS: 20 * mbit, Priority: 3, LatencyMS: 20},
			from: v1.PolicyFrom{Weight: v1.LayerLabels, Min: v1.LayerLabels, Max: v1.LayerLabels, Priority: v1.LayerLabels, Latency: v1.LayerLabels},
		},
		{
			name: "Kubernetes", in: policy.Inputs{Labels: map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "1M"}},
			want: v1.Policy{Weight: 100, MaxBPS: 10 * mbit}, from: v1.PolicyFrom{Max: v1.LayerLabels},
		},
		{
			name: "docker-tc", in: policy.Inputs{Labels: map[string]string{"com.docker-tc.limit": "8mbit"}},
			want: v1.Policy{Weight: 100, MaxBPS: 8 * mbit}, from: v1.PolicyFrom{Max: v1.LayerLabels},
		},
		{
			name: "the own name wins", in: policy.Inputs{Labels: map[string]string{"com.docker-tc.limit": "8mbit", "weir.in.max": "9mbit"}},
			want: v1.Policy{Weight: 100, MaxBPS: 9 * mbit}, from: v1.PolicyFrom{Max: v1.LayerLabels},
		},
		{
			name: "bytes", in: policy.Inputs{Labels: map[string]string{"com.docker-tc.limit": "8MBps", "weir.in.min": "x", "weir.in.class": "ef"}},
			want: v1.Policy{Weight: 100}, problems: []string{"com.docker-tc.limit", "weir.in.class", "weir.in.min"},
		},
		{
			name: "of the image", in: policy.Inputs{
				Labels:      map[string]string{"weir.in.min": "5mbit"},
				ImageLabels: map[string]string{"weir.in.min": "5mbit"},
			},
			want: v1.Policy{Weight: 100}, problems: []string{"weir.in.min"},
		},
		{
			name: "layers", in: policy.Inputs{
				Defaults: policy.Values{InMaxBPS: ptr(uint64(30 * mbit)), MaxBPS: ptr(uint64(1 * mbit))},
				Labels:   map[string]string{"weir.in.weight": "700", "weir.in.max": "90mbit"},
				Limits:   []policy.Limits{{Weight: ptr(uint32(500)), MaxBPS: ptr(uint64(2 * mbit)), InMaxBPS: ptr(uint64(50 * mbit))}},
				Policies: selected(policy.Values{InMinBPS: ptr(uint64(4 * mbit))}),
				Set:      policy.Values{InPriority: ptr(uint32(9))},
			},
			want:     v1.Policy{Weight: 500, MinBPS: 4 * mbit, MaxBPS: 50 * mbit, Priority: 9},
			from:     v1.PolicyFrom{Weight: v1.LayerLimits, Min: v1.LayerPolicies, Max: v1.LayerLimits, Priority: v1.LayerSet},
			problems: []string{"weir.in.max", "weir.in.weight"},
		},
		{
			name: "contradiction", in: policy.Inputs{Set: policy.Values{InMinBPS: ptr(uint64(4 * mbit))}, Policies: selected(policy.Values{InMaxBPS: ptr(uint64(1 * mbit))})},
			want: v1.Policy{Weight: 100, MinBPS: 4 * mbit, MaxBPS: 4 * mbit},
			from: v1.PolicyFrom{Min: v1.LayerSet, Max: v1.LayerSet}, problems: nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := policy.Resolve(tc.in)
			built := policy.Default()
			tc.want.EFMax, tc.want.AFMin = built.EFMax, built.AFMin
			if r.In != tc.want {
				t.Errorf("policy %+v\nwant   %+v", r.In, tc.want)
			}
			for _, layer := range []*v1.Layer{&tc.from.Weight, &tc.from.Min, &tc.from.Max, &tc.from.Priority, &tc.from.Latency, &tc.from.Class, &tc.from.EFMax, &tc.from.AFMin, &tc.from.DSCP} {
				if *layer == "" {
					*layer = v1.LayerBuiltIn
				}
			}
			if r.InFrom != tc.from {
				t.Errorf("from %+v\nwant %+v", r.InFrom, tc.from)
			}
			var problems []string
			for _, p := range r.Problems {
				problems = append(problems, p.Name)
			}
			if !slices.Equal(problems, tc.problems) {
				t.Errorf("problems %v, want %q", r.Problems, tc.problems)
			}
		})
	}
}

// TestHasIncoming: values for sent traffic are no values for received traffic.
func TestHasIncoming(t *testing.T) {
	for label, want := range map[string]bool{"weir.weight": false, "weir.in.weight": true, "com.docker-tc.limit": false} {
		text := "100"
		if got := policy.Resolve(policy.Inputs{Labels: map[string]string{label: text}}).HasIncoming(); got != want {
			t.Errorf("%s: %v", label, got)
		}
	}
}
