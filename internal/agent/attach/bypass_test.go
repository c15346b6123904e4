package attach

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Sockets of host-mode containers, and of no others, are kept from sending past the queues; where
// they cannot be, those are told that may make packet sockets.
func TestBypass(t *testing.T) {
	b := newBed()
	bypass := &fakeBypass{}
	b.Bypass = bypass
	host, bridged := b.start("host", v1.ModeHost, 0), b.start("bridged", v1.ModeBridge, 1)
	host.Seen.CgroupPath, bridged.Seen.CgroupPath, host.Devices = "/h", "/b", nil
	for _, tc := range []struct {
		refused error
		set     func()
		want    string
	}{
		{identity.ErrOlderSockets, func() {}, "restart it"},
		{errors.New("no memory"), func() {}, "no memory"},
		{errors.New("no memory"), func() { host.Seen.Configured = true }, "no memory"},
		{errors.New("no memory"), func() { host.Seen.Configured, host.Seen.Lacks.NetRaw = false, true }, ""},
		{nil, func() { host.Seen.Lacks.NetRaw = false }, ""},
	} {
		bypass.err = tc.refused
		tc.set()
		b.apply()
		if got := strings.Join(host.Complaints(), ";"); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.refused, got, tc.want)
		}
	}
	b.apply() // in force
	if want := slices.Repeat([]string{"/h"}, 5); !slices.Equal(bypass.asked, want) {
		t.Errorf("asked for %v, want %v", bypass.asked, want)
	}
	bypass.err = errors.New("no memory")
	if b.Recheck(host); strings.Join(host.Complaints(), "") != "" {
		t.Error("it is not known yet that the program is lost")
	}
	if b.apply(); !strings.Contains(strings.Join(host.Complaints(), ""), "no memory") {
		t.Error("the program is lost, and the container ok")
	}
	bypass.err = nil
	for _, now := range []time.Time{epoch, epoch.Add(verifyInterval)} {
		b.Verify(len(b.all), func(i int) *Container { return b.all[i] }, now)
	}
	if complaints := host.Complaints(); len(complaints) > 0 {
		t.Errorf("the program is back: %q", complaints)
	}
	b.uplink.below = []string{"eth0", "eth1"}
	if got := strings.Join(b.uplink.Complaints(host), ""); !strings.Contains(got, "may send through eth0, eth1, below") {
		t.Errorf("host mode above other devices: %q", got)
	}
	if got := b.uplink.Complaints(bridged); len(got) > 0 {
		t.Errorf("bridge mode above other devices: %q", got)
	}
	b.stop(host)
	b.stop(bridged)
	if want := []string{"/h"}; !slices.Equal(bypass.allowed, want) {
		t.Errorf("allowed %v, want %v", bypass.allowed, want)
	}
}

// fakeBypass remembers which cgroups it was asked for.
type fakeBypass struct {
	asked, allowed []string
	err            error
}

func (f *fakeBypass) Forbid(path string) error {
	f.asked = append(f.asked, path)
	return f.err
}

func (f *fakeBypass) Allow(path string) error {
	f.allowed = append(f.allowed, path)
	return nil
}
