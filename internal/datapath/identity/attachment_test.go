package identity

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// What cannot be made here is told by its kind.
func TestDevicesOutOfReach(t *testing.T) {
	inspector := NewInspector()
	for _, test := range []struct {
		link kernel.Link
		says string // empty: nothing is lost there
	}{
		{kernel.Link{Name: "eth0", Kind: "device", Up: true, PeerNetNSID: kernel.SameNetNS}, "eth0 is a network card of its own"},
		{kernel.Link{Name: "eth0", Kind: "netkit", Up: true, PeerNetNSID: 4}, "let the network plugin make veths"},
		{kernel.Link{Name: "eth0.7", Kind: "vlan", Up: true, PeerNetNSID: 4}, "eth0.7 (vlan) was made in another network namespace"},
		{kernel.Link{Name: "x0", Kind: "strange", Up: true, PeerNetNSID: kernel.SameNetNS}, "kind strange, which Weir does not know"},
		{kernel.Link{Name: "eth0", Kind: "device", PeerNetNSID: kernel.SameNetNS}, ""}, // down
		{kernel.Link{Name: "lo", Kind: "device", Up: true, Loopback: true, PeerNetNSID: kernel.SameNetNS}, ""},
		{kernel.Link{Name: "eth0.7", Kind: "vlan", Up: true, PeerNetNSID: kernel.SameNetNS}, ""},
		{kernel.Link{Name: "dummy0", Kind: "dummy", Up: true, PeerNetNSID: kernel.SameNetNS}, ""},
		{kernel.Link{Name: "tun0", Kind: "tuntap", Up: true, PeerNetNSID: kernel.SameNetNS}, ""}, // by itself
	} {
		a, found, err := inspector.attachment(container{}, test.link)
		if err != nil || found != (test.says != "") || !strings.Contains(a.Obstacle, test.says) {
			t.Errorf("%+v: %v, %q, %v, want %q", test.link, found, a.Obstacle, err, test.says)
		}
	}
}
