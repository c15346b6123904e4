package attach

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// maxPublished bounds the published ports of one container that classifiers remember, so that no
// container uses up the table of some thousand entries.
const maxPublished = 256

// ports are the published ports of a container at which a host proxy may answer.
type ports struct {
	told  []identity.Published // sent to the classifiers
	count int
}

// publishedPorts returns the ports that a container publishes at all addresses of the host.
func publishedPorts(list []discovery.Port) (p ports) {
	inOrder := slices.SortedFunc(slices.Values(list), func(a, b discovery.Port) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, port := range inOrder {
		protocol, known := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[port.Protocol]
		if !known || !port.AnyIPv4 && !port.AnyIPv6 {
			continue
		}
		if p.count++; p.count > maxPublished {
			continue
		}
		if port.AnyIPv4 {
			p.told = append(p.told, identity.Published{Protocol: protocol, Port: port.Host})
		}
		if port.AnyIPv6 {
			p.told = append(p.told, identity.Published{IPv6: true, Protocol: protocol, Port: port.Host})
		}
	}
	return p
}

// publishedBy returns the container number of each published port. A container whose network has
// not been inspected yet keeps the ports that an earlier agent recorded.
func publishedBy(list []*Container) map[identity.Published]uint16 {
	numbers := map[identity.Published]uint16{}
	for _, c := range list {
		if c.isRouted() || c.Mode == "" {
			for _, port := range c.ports.told {
				numbers[port] = c.Number
			}
		}
	}
	return numbers
}

// publishedComplaint lists the published ports whose traffic may count as the host's and says what
// to do; "" if there are none.
func (u *Uplink) publishedComplaint(c *Container) string {
	const counts = "what a proxy of the host's (docker-proxy) answers for it there counts as the host's"
	if !c.isRouted() {
		return ""
	}
	refused := u.refusals.Numbers[c.Number].Published
	if refused == nil && len(c.ports.told) > 0 {
		refused = u.refusals.Published
	}
	switch count := c.ports.count; {
	case refused != nil:
		return fmt.Sprintf("not all of its %d published ports are known to be its own, and %s: publish fewer (%v)", count, counts, refused)
	case count > maxPublished:
		return fmt.Sprintf("it publishes %d ports, of which the first %d are known to be its own, and at the others %s: publish fewer, or divide it into several containers", count, maxPublished, counts)
	}
	return ""
}
