package identity

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

func TestTunnelProblem(t *testing.T) {
	if err := TunnelProblem(nil); err != nil {
		t.Errorf("nothing stacked: %v", err)
	}
	err := TunnelProblem([]kernel.Stacked{{Name: "ppp0", Kind: "ppp", On: "eth0"}, {Name: "wg0", Kind: "wireguard", On: "eth1"}})
	for _, part := range []string{"ppp0 (ppp on eth0)", "wg0 (wireguard on eth1)", "an uplink of its own"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want it to say %q", err, part)
		}
	}
}
