package attach

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Sockets of host-mode containers, and of no others, are kept from sending past the queues; where
// they cannot be, those are told that may make packet sockets.
func TestBypass(t *testing.T) {
	b := newBed()
	var asked []string
	var refused error
	b.ForbidBypass = func(path string) error {
		asked = append(asked, path)
		return refused
	}
	host, bridged := b.start("host", v1.ModeHost, 0), b.start("bridged", v1.ModeBridge, 1)
	host.Seen.CgroupPath, bridged.Seen.CgroupPath, host.Devices = "/h", "/b", nil
	for _, tc := range []struct {
		refused error
		set     func()
		want    string
	}{
		{identity.ErrOlderSockets, func() {}, "restart it"},
		{errors.New("no memory"), func() {}, "no memory"},
		{errors.New("no memory"), func() { host.Seen.Configured = true }, ""},
		{errors.New("no memory"), func() { host.Seen.Configured, host.Seen.Lacks.NetRaw = false, true }, ""},
		{nil, func() { host.Seen.Lacks.NetRaw = false }, ""},
	} {
		refused = tc.refused
		tc.set()
		b.apply()
		if got := strings.Join(host.Complaints(), ";"); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.refused, got, tc.want)
		}
	}
	b.apply() // in force
	if want := slices.Repeat([]string{"/h"}, 5); !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	b.uplink.below = []string{"eth0", "eth1"}
	if got := strings.Join(b.uplink.Complaints(host), ""); !strings.Contains(got, "may send through eth0, eth1, below") {
		t.Errorf("host mode above other devices: %q", got)
	}
	if got := b.uplink.Complaints(bridged); len(got) > 0 {
		t.Errorf("bridge mode above other devices: %q", got)
	}
}
