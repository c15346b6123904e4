package explain

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/weir-project/weir/api/v1"
)

// What is previewed for a policy that stays is what is; and a change gives the container
// what it would have had from the start.
func TestPreview(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(0, 60e6)
		draw := func(name string) sender {
			p := v1.Policy{Weight: rapid.Uint32Range(1, 500).Draw(t, "weight"), Priority: rapid.Uint32Range(0, 2).Draw(t, "priority")}
			if rapid.Bool().Draw(t, "capped") {
				p.MaxBPS = rapid.Uint64Range(1e6, 90e6).Draw(t, "max")
			}
			return sender{name, p, rate.Draw(t, "demand")}
		}
		senders := []sender{draw("a"), draw("b"), draw("c")}
		host := rapid.SampledFrom([]uint64{0, 500e3, 30e6, wantsMore}).Draw(t, "host")
		seen := snapshot(host, senders...)
		same := Preview(seen, 0, senders[0].policy)
		for i, s := range same.Uplinks[0].Shares {
			c := seen.Containers[i].Shares[0]
			if s.EntitledBeforeBPS != c.EntitledBPS || s.EntitledAfterBPS != c.EntitledBPS || s.AllocatedAfterBPS != s.AllocatedBeforeBPS ||
				s.Name != "host" && s.AllocatedBeforeBPS != c.AllocatedBPS {
				t.Fatalf("nothing changes for %s: %+v, is %+v", s.Name, s, c)
			}
		}
		after := draw("a").policy
		shown := Preview(seen, 0, after)
		senders[0].policy = after
		want := snapshot(host, senders...)
		for i, s := range shown.Uplinks[0].Shares {
			c := want.Containers[i].Shares[0]
			if s.EntitledAfterBPS != c.EntitledBPS || s.Name != "host" && s.AllocatedAfterBPS != c.AllocatedBPS {
				t.Fatalf("%s would have %+v, has %+v", s.Name, s, c)
			}
		}
	})
}

// What cannot be put into force is said, and what others have stays theirs.
func TestPreviewRefuses(t *testing.T) {
	seen := snapshot(0, sender{"a", v1.Policy{Weight: 100, MinBPS: 60e6}, wantsMore}, sender{"b", v1.Policy{Weight: 100}, wantsMore})
	shown := Preview(seen, 1, v1.Policy{Weight: 100, MinBPS: 50e6}).Uplinks[0]
	if !strings.Contains(shown.Refused, "at most 35mbit") || shown.Shares[0].AdmittedBPS != 60e6 || shown.Shares[1].AdmittedBPS != 0 {
		t.Errorf("%+v", shown)
	}
	shown = Preview(seen, 1, v1.Policy{Weight: 100, MinBPS: 1e6, LatencyMS: 0.0001}).Uplinks[0]
	if shown.Refused == "" || shown.Shares[1].AdmittedBPS != 1e6 {
		t.Errorf("a bound that no link can keep: %+v", shown)
	}
	seen.Containers[1].Shares[0].Controlled = false
	if shown := Preview(seen, 1, v1.Policy{Weight: 1}); len(shown.Uplinks) != 0 || shown.After.Weight != 1 {
		t.Errorf("not controlled: %+v", shown)
	}
}
