package explain

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// TestIncoming: received traffic is explained in the words of sent traffic, with its own numbers.
func TestIncoming(t *testing.T) {
	sent := snapshot(0, sender{"a", v1.Policy{Weight: 100}, wantsMore}, sender{"b", v1.Policy{Weight: 300}, wantsMore})
	received := snapshot(0, sender{"a", v1.Policy{Weight: 200, MinBPS: 40e6}, wantsMore}, sender{"b", v1.Policy{Weight: 50, MaxBPS: 10e6}, wantsMore})
	both := sent
	up := received.Status.Uplinks[0]
	both.Status.Uplinks[0].In = &v1.UplinkIn{RateBPS: up.RateBPS, ReserveBPS: up.ReserveBPS, HostCompetes: up.HostCompetes}
	for i, c := range received.Containers {
		both.Containers[i].In = &v1.Direction{Policy: c.Policy, PolicyFrom: c.PolicyFrom, Shares: c.Shares}
	}
	for i := range both.Containers {
		got, want := Container(both, i), Container(received, i)
		want.Shares = explainShares(received, i, "receive")
		if !reflect.DeepEqual(got.InShares, want.Shares) {
			t.Errorf("%s: %+v\nwant %+v", both.Containers[i].Name, got.InShares, want.Shares)
		}
		if len(got.InPolicy) != 5 || !reflect.DeepEqual(got.InPolicy, want.Policy[:5]) {
			t.Errorf("%s: %+v\nwant %+v", both.Containers[i].Name, got.InPolicy, want.Policy)
		}
		if !reflect.DeepEqual(got.Shares, Container(sent, i).Shares) {
			t.Errorf("%s: what it sends is explained differently", both.Containers[i].Name)
		}
		if text := fmt.Sprint(got.InShares); strings.Contains(text, "send") {
			t.Errorf("%s: %s", both.Containers[i].Name, text)
		}
	}
	share := &both.Containers[0].In.Shares[0]
	share.HeldBackBPS = 18e6
	if text := fmt.Sprint(Container(both, 0).InShares[0].Allocated); !strings.Contains(text, "18mbit of it is held back") {
		t.Errorf("a container that is held back: %s", text)
	}
	if text := fmt.Sprint(Container(both, 1).InShares[0].Allocated); strings.Contains(text, "held back") {
		t.Errorf("one that is not: %s", text)
	}
	share.WantsMore, share.WantedBPS = false, 1e6
	if text := fmt.Sprint(Container(both, 0).InShares[0].Allocated); strings.Contains(text, "held back") {
		t.Errorf("one that wants less than what is left: %s", text)
	}
	both.Status.Uplinks[0].In.RateBPS = 9e6
	if got := Container(both, 1).InPolicy[2]; len(got.Notes) != 1 || got.Notes[0] != "up0: above the uplink's rate of 9mbit, so it limits nothing" {
		t.Errorf("a maximum above the rate: %+v", got)
	}
	without := snapshot(0, sender{"a", v1.Policy{Weight: 100}, wantsMore})
	if got := Container(without, 0); got.InPolicy != nil || got.InShares != nil {
		t.Errorf("what is not shared is explained: %+v", got)
	}
}
