package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/weir-project/weir/internal/kernel"
)

func TestConfiguredRoot(t *testing.T) {
	h := kernel.NewHandle
	ingress := kernel.Qdisc{Handle: h(0xffff, 0), Parent: kernel.HandleIngress, Options: kernel.Unknown{Name: "clsact"}}
	byDefault := kernel.Qdisc{Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "mq"}}
	theirs := kernel.Qdisc{Handle: h(1, 0), Parent: kernel.HandleRoot, Options: kernel.HTB{}}
	below := kernel.Qdisc{Handle: h(2, 0), Parent: h(1, 1), Options: kernel.BFIFO{}}
	ours := kernel.Qdisc{Handle: h(0x7e10, 0), Parent: kernel.HandleRoot, Options: kernel.TBF{}}
	for _, tc := range []struct {
		name   string
		qdiscs []kernel.Qdisc
		want   kernel.Handle // 0: none
	}{
		{"nothing", nil, 0},
		{"the kernel's default", []kernel.Qdisc{ingress, byDefault}, 0},
		{"somebody's", []kernel.Qdisc{below, ingress, theirs}, h(1, 0)},
		{"ours", []kernel.Qdisc{ingress, ours, below}, 0},
	} {
		got := configuredRoot(tc.qdiscs)
		if (got != nil) != (tc.want != 0) || got != nil && got.Handle != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// A device that goes and comes back may have the index that it had: nothing of
// the old claim may be left.
func TestLoseGivesUpTheClaim(t *testing.T) {
	name := fmt.Sprintf("@weir/test/%d", os.Getpid())
	claim := func() net.Listener {
		t.Helper()
		lock, err := net.Listen("unix", name)
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		return lock
	}
	u := &uplink{ifindex: 3, classifier: &fakeClassifier{}, lock: claim()}
	gone := errors.New("up0 is gone")
	for range 2 {
		u.lose(gone)
		if !u.lost() || !errors.Is(u.reason, gone) || u.classifier != nil {
			t.Errorf("lost: %+v", u)
		}
	}
	claim().Close()
}
