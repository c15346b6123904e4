package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/kernel"
)

// TestDoctorTellsOfProxies: ports that docker-proxy serves are named, with what to do.
func TestDoctorTellsOfProxies(t *testing.T) {
	if err := proxied(nil); err != nil {
		t.Errorf("none: %v", err)
	}
	err := proxied([]kernel.ProxiedPort{
		{Host: netip.MustParseAddrPort("[fd00::1]:80"), Container: netip.MustParseAddrPort("172.17.0.2:8080")},
		{Host: netip.MustParseAddrPort("[fd00::1]:443"), Container: netip.MustParseAddrPort("172.17.0.3:8443")},
	})
	for _, part := range []string{"[fd00::1]:80 of 172.17.0.2:8080, [fd00::1]:443 of 172.17.0.3:8443", `"userland-proxy": false`, "give the network IPv6"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want it to say %q", err, part)
		}
	}
}
