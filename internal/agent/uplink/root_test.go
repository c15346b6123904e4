package uplink

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/htb"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

func TestConfiguredRoot(t *testing.T) {
	h := kernel.NewHandle
	ingress := kernel.Qdisc{Handle: h(0xffff, 0), Parent: kernel.HandleIngress, Options: kernel.Unknown{Name: "clsact"}}
	byDefault := kernel.Qdisc{Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: "mq"}}
	theirs := kernel.Qdisc{Handle: h(1, 0), Parent: kernel.HandleRoot, Options: kernel.HTB{}}
	below := kernel.Qdisc{Handle: h(2, 0), Parent: h(1, 1), Options: kernel.BFIFO{}}
	ours := kernel.Qdisc{Handle: h(0x7e0f, 0), Parent: kernel.HandleRoot, Options: kernel.HTB{}}
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
		got := configuredRoot(htb.New(nil, 3), tc.qdiscs)
		if (got != nil) != (tc.want != 0) || got != nil && got.Handle != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestFind: a classifier counts that no longer works, a device that is gone since the list does not,
// and one that cannot be asked keeps no other from being found.
func TestFind(t *testing.T) {
	m := newMachine()
	m.add(3, "up0", 0).root = ourRoot
	m.add(4, "up1", 0).classifier = &fakeClassifier{}
	m.add(5, "lan0", 0)
	m.fail["Classified"] = errors.New("another program comes first")
	if found, err := Find(m); err != nil || len(found) != 2 || found["up0"].Index != 3 || found["up1"].Index != 4 {
		t.Errorf("found %v, %v", found, err)
	}
	m.fail["HasClassifier"] = kernel.ErrNoLink
	if found, err := Find(m); err != nil || len(found) != 1 || found["up0"].Index != 3 {
		t.Errorf("with devices gone: found %v, %v", found, err)
	}
	m.fail["HasClassifier"] = errors.New("no memory")
	if found, err := Find(m); err == nil || !strings.Contains(err.Error(), "lan0: no memory") || len(found) != 1 || found["up0"].Index != 3 {
		t.Errorf("with devices that cannot be asked: found %v, %v", found, err)
	}
}
