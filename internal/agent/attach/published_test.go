package attach

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Ports are a container's for the protocols and families at which they can be nobody
// else's.
func TestPublished(t *testing.T) {
	ports := []discovery.Port{
		{Container: 80, Host: 8080, Protocol: "tcp", AnyIPv4: true, AnyIPv6: true},
		{Container: 53, Host: 53, Protocol: "udp", AnyIPv6: true},
		{Container: 90, Host: 90, Protocol: "tcp"}, // at one address
		{Container: 91, Host: 91, Protocol: "sctp", AnyIPv4: true, AnyIPv6: true},
	}
	want := []identity.Published{
		{IPv6: true, Protocol: 17, Port: 53}, {Protocol: 6, Port: 8080}, {IPv6: true, Protocol: 6, Port: 8080},
	}
	if got := publishedPorts(ports); !slices.Equal(got.told, want) || got.count != 2 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestPublishedTwice: of containers that publish one port, the one with the largest number has
// it, in whatever order they come.
func TestPublishedTwice(t *testing.T) {
	port := identity.Published{Protocol: 6, Port: 8080}
	publisher := func(number uint16) *Container {
		return &Container{Number: number, Mode: v1.ModeBridge, ports: ports{told: []identity.Published{port}}}
	}
	low, high := publisher(identity.NumberFirst), publisher(identity.NumberFirst+1)
	high.Mode = "" // an earlier agent controlled it, and its network has not been inspected yet
	for _, all := range [][]*Container{{low, high}, {high, low}} {
		if got := publishedBy(controlled(all)); got[port] != high.Number {
			t.Errorf("container %d has the port, want %d", got[port], high.Number)
		}
	}
}

// What a container receives and answers through Swarm's routing mesh counts as the host's, and its reason says so.
func TestRoutingMesh(t *testing.T) {
	b := newBed()
	c := b.start("c", v1.ModeOverlay, 1)
	for _, mesh := range []bool{false, true} {
		c.Seen.RoutingMesh = mesh
		if got := strings.Join(c.Complaints(), ""); strings.Contains(got, "mode=host") != mesh {
			t.Errorf("routing mesh %t: %q", mesh, got)
		}
	}
}
