package uplink

import (
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
