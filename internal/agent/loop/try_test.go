package loop

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// Who only asks is answered by the snapshot, which says the same as the agent knows, and
// enters no loop: none runs here.
func TestTryBySnapshot(t *testing.T) {
	b := newBench(t, 100e6)
	weight, floorBPS := uint32(50), uint64(10e6)
	b.containers.rules = policy.Rules{Defaults: policy.Values{Weight: &weight}}
	db := b.start("db", "min=30mbit", "latency=20ms")
	web := b.start("web", "weight=200")
	web.container.set = policy.Values{MinBPS: &floorBPS}
	b.containers.resolve(web.container)
	db.container.NetNS = kernel.NetNSID{Inode: 7}
	side := b.start("side", "max=1mbit")
	side.container.NetNS = db.container.NetNS
	b.containers.free(side.container)
	b.reconcile()

	seen, err := b.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range append(b.containers.all(), b.containers.host) {
		if got, want := trialIn(seen, i), b.trialOf(c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s in the snapshot:\n%+v\nis\n%+v", c.Seen.Name, got, want)
		}
	}
	for name, says := range map[string]string{
		"web": "minimum 80mbit cannot be guaranteed", "side": "side shares the network of db", "host": "the host class has its policy in the config file",
	} {
		if _, err := b.Try(t.Context(), name, v1.PolicyChange{Min: ptr("80mbit")}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
	after, err := b.Try(t.Context(), "web", v1.PolicyChange{Weight: ptr("300")})
	if err != nil || after.Weight != 300 || after.MinBPS != 10e6 {
		t.Errorf("%+v, %v", after, err)
	}
	if _, err := b.Try(t.Context(), "nobody", v1.PolicyChange{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody: %v", err)
	}
	b.publish(time.Now())
	if now, err := b.Latest(t.Context()); err != nil || now.Containers[1].Policy.Weight != 200 {
		t.Errorf("it was changed: %+v, %v", now.Containers[1].Policy, err)
	}
}
