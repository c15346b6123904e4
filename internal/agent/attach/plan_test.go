package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
)

// What is seen of a container's network decides whether it is controlled, and what is kept.
func TestPlan(t *testing.T) {
	netns := kernel.NetNSID{Inode: 7}
	bridge := identity.Attachment{Mode: v1.ModeBridge, Interface: "eth0", GSOMaxBytes: 65536, Tap: nowhere(0)}
	macvlan := identity.Attachment{Mode: v1.ModeMacvlan, Interface: "eth1", GSOMaxBytes: 65536, Tap: nowhere(1)}
	lost := identity.Attachment{Mode: v1.ModeOverlay, Interface: "eth2", Obstacle: "its other end cannot be found"}
	attached := Container{Number: 20, Mode: v1.ModeBridge, NetNS: netns, Devices: []Device{{Attachment: bridge}}}
	with := func(c Container, change func(*Container)) Container { change(&c); return c }
	const lostObstacle = "traffic through eth2 (overlay) is not controlled: its other end cannot be found"
	const written = "what it writes to /data (nfs4), /films (cifs) is sent by the host, as the host's: bound that by host: max"
	for _, tc := range []struct {
		name string
		c    Container
		seen Observation
		want Decision
		// interfaces are those of the devices.
		interfaces []string
	}{
		{"one device", Container{}, Observation{NetNS: netns, Found: []identity.Attachment{bridge}, TapNumber: 33},
			Decision{Mode: v1.ModeBridge, NetNS: netns, Controlled: true, Preferred: 33}, []string{"eth0"}},
		{"two modes", Container{}, Observation{NetNS: netns, Found: []identity.Attachment{macvlan, bridge}},
			Decision{Mode: v1.ModeMacvlan, NetNS: netns, Controlled: true}, []string{"eth1", "eth0"}},
		{"none yet", attached, Observation{NetNS: netns}, Decision{Mode: v1.ModeNone, NetNS: netns, Release: true, Unattached: true}, nil},
		{"one that cannot be assigned", attached, Observation{NetNS: netns, Found: []identity.Attachment{lost}},
			Decision{Mode: v1.ModeOverlay, NetNS: netns, Release: true, Obstacle: lostObstacle}, nil},
		{"one that can and one that cannot", Container{}, Observation{NetNS: netns, Found: []identity.Attachment{lost, bridge}},
			Decision{Mode: v1.ModeBridge, NetNS: netns, Controlled: true, Obstacle: lostObstacle}, []string{"eth0"}},
		{"a volume of the network's", Container{}, Observation{NetNS: netns, Found: []identity.Attachment{bridge}, NetworkMounts: []string{"/data (nfs4)", "/films (cifs)"}},
			Decision{Mode: v1.ModeBridge, NetNS: netns, Controlled: true, Obstacle: written}, []string{"eth0"}},
		{"a volume of the network's, and a device that cannot be assigned", attached, Observation{NetNS: netns, Found: []identity.Attachment{lost}, NetworkMounts: []string{"/data (nfs4)", "/films (cifs)"}},
			Decision{Mode: v1.ModeOverlay, NetNS: netns, Release: true, Obstacle: lostObstacle + "; " + written}, nil},
		{"no network", with(attached, func(c *Container) { c.Seen.NoNetwork = true }), Observation{},
			Decision{Mode: v1.ModeNone, NetNS: netns, Release: true}, nil},
		{"the host's network", Container{Seen: discovery.Container{CgroupPath: "/c"}}, Observation{InHost: true},
			Decision{Mode: v1.ModeHost, Controlled: true}, nil},
		{"the host's network, after a bridge", with(attached, func(c *Container) { c.Seen.CgroupPath = "/c" }), Observation{InHost: true},
			Decision{Mode: v1.ModeHost, Controlled: true, Release: true}, nil},
		{"the host's network, without a cgroup", Container{}, Observation{InHost: true}, Decision{Mode: v1.ModeHost, Release: true,
			Obstacle: "it uses the host's network, where it is known by its cgroup, and no cgroup v2 of it was found; it is counted in the host class"}, nil},
		{"processes elsewhere", Container{Seen: discovery.Container{CgroupPath: "/c"}}, Observation{InHost: true, Elsewhere: true}, Decision{Mode: v1.ModeHost, Controlled: true,
			Obstacle: "its processes are in another network namespace, and only what its cgroup sends in the host's is controlled: name their netns in the config file"}, nil},
		{"being changed", attached, Observation{NetNS: netns, Err: fmt.Errorf("eth0: %w", identity.ErrInFlux)},
			Decision{Mode: v1.ModeBridge, NetNS: netns, Obstacle: "its network is being changed", Unattached: true, Soon: true}, []string{"eth0"}},
		{"in another's network", attached, Observation{NetNS: netns, Owner: &Container{Seen: discovery.Container{Name: "infra"}, Mode: v1.ModeOverlay}},
			Decision{Mode: v1.ModeOverlay, NetNS: netns, Release: true}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Plan(&tc.c, tc.seen)
			var interfaces []string
			for _, d := range got.Devices {
				interfaces = append(interfaces, d.Interface)
			}
			devices := got.Devices
			got.Devices = nil
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) || !slices.Equal(interfaces, tc.interfaces) {
				t.Errorf("got  %+v, %v\nwant %+v, %v", got, interfaces, tc.want, tc.interfaces)
			}
			for _, d := range devices {
				if d.GSOBefore != 65536 && tc.c.Number == 0 {
					t.Errorf("the limit before is not known: %+v", d)
				}
			}
		})
	}
}

// What was done to a device is remembered when it is found again, also under another name; a
// device that went is forgotten.
func TestPlanFoundAgain(t *testing.T) {
	bridge := identity.Attachment{Mode: v1.ModeBridge, Interface: "eth0", GSOMaxBytes: 65536, Tap: nowhere(0)}
	other := identity.Attachment{Mode: v1.ModeMacvlan, Interface: "eth1", GSOMaxBytes: 65536, Tap: nowhere(1)}
	b := newBed()
	c := b.start("c", v1.ModeBridge, 1)
	c.Devices = Plan(c, Observation{Found: []identity.Attachment{bridge, other}}).Devices
	b.apply()
	c.Devices[0].GSOBefore, bridge.GSOMaxBytes = 12345, 3028
	devices := Plan(c, Observation{Found: []identity.Attachment{bridge}}).Devices
	if len(devices) != 1 || !devices[0].tap.InForce(tapping{bridge.Tap, c.Number, false}) || devices[0].GSOBefore != 12345 || devices[0].GSOMaxBytes != 3028 {
		t.Errorf("found again: %+v", devices)
	}
}

// TestObserveMounts: the mounts of a process of the container are looked at; those of the host are not.
func TestObserveMounts(t *testing.T) {
	process := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(process, "mountinfo"), []byte("90 28 0:50 / /data rw - nfs4 nas:/x rw\n"), 0o600))
	b := newBed()
	for seen, want := range map[*discovery.Container]int{
		{NetNSPath: process + "/ns/net"}: 1, {NetNSPath: process + "/ns/net", Configured: true}: 0, {NetNSPath: "/run/netns/one"}: 0, {}: 0,
	} {
		seen.NoNetwork = true
		got, look := b.Observe(&Container{Seen: *seen}, nil)
		if look != nil {
			got = look()
		}
		if len(got.NetworkMounts) != want {
			t.Errorf("%+v: %q", *seen, got.NetworkMounts)
		}
	}
}

// A container that cannot be looked at for now keeps what it has, and is looked at again; one
// whose network is gone does not, nor does a new one.
func TestPlanLostDevices(t *testing.T) {
	for _, tc := range []struct {
		err   error
		keeps bool
	}{
		{fmt.Errorf("open: %w", unix.EMFILE), true},
		{fmt.Errorf("list: %w", unix.ENOMEM), true},
		{fmt.Errorf("list: %w", unix.ENOBUFS), true},
		{kernel.ErrNoNetNS, false},
		{kernel.ErrNoLink, false},
		{fmt.Errorf("open: %w", unix.ENOENT), false},
		{fmt.Errorf("list: %w", unix.ENODEV), false},
		{fmt.Errorf("open: %w", unix.ESRCH), false},
	} {
		for number, keeps := range map[uint16]bool{20: tc.keeps, 0: false} {
			got := Plan(&Container{Number: number, Mode: v1.ModeBridge, Devices: make([]Device, 1)}, Observation{Err: tc.err})
			if got.Release == keeps || (len(got.Devices) == 1) != keeps || (got.Mode == v1.ModeBridge) != keeps || !got.Unattached ||
				got.Obstacle != "its network cannot be inspected: "+tc.err.Error() {
				t.Errorf("%v, number %d: %+v", tc.err, number, got)
			}
		}
	}
}
