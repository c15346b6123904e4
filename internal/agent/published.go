package agent

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/identity"
)

// Whose the ports are at which a proxy of the host's may answer for containers.

// mostPublished is of how many ports of one container the classifiers are told: they
// remember some thousands, and no container is to use up the room of others.
const mostPublished = 256

// assignPublished makes the classifier of an uplink know whose published ports are. What
// it does not take is shown, and tried again with the next reconciliation.
func (a *Agent) assignPublished(u *link) {
	if !u.installed() {
		return
	}
	ports := map[identity.Published]uint16{}
	for _, s := range u.controlled {
		if s.isRouted() {
			for _, port := range s.published {
				ports[port] = s.number
			}
		}
	}
	refused, err := u.classifier.SetPublished(ports)
	for _, s := range u.controlled {
		before := s.publishedRefused
		s.publishedRefused = refused[s.number]
		if err != nil && s.isRouted() && len(s.published) > 0 {
			s.publishedRefused = err
		}
		if s.publishedRefused != nil && before == nil {
			a.log.Warn("assign published ports", "name", s.Name, "uplink", u.name, "error", s.publishedRefused)
		}
	}
}

// published are those ports of a container that it has at all addresses of the host's,
// as far as classifiers are told of them, and how many there are.
func published(ports []discovery.Port) (told []identity.Published, count int) {
	inOrder := slices.SortedFunc(slices.Values(ports), func(a, b discovery.Port) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, p := range inOrder {
		protocol, known := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[p.Protocol]
		if !known || !p.AnyIPv4 && !p.AnyIPv6 {
			continue
		}
		if count++; count > mostPublished {
			continue
		}
		if p.AnyIPv4 {
			told = append(told, identity.Published{Protocol: protocol, Port: p.Host})
		}
		if p.AnyIPv6 {
			told = append(told, identity.Published{IPv6: true, Protocol: protocol, Port: p.Host})
		}
	}
	return told, count
}

// publishedComplaint says of which published ports packets may count as the host's, and
// what to do; "" if of none.
func (s *share) publishedComplaint() string {
	const counts = "what a proxy of the host's (docker-proxy) answers for it there counts as the host's"
	count := s.publishedCount
	switch {
	case s.number == 0 || !s.isRouted():
		return ""
	case s.publishedRefused != nil:
		return fmt.Sprintf("not all of its %d published ports are known to be its own, and %s: publish fewer (%v)", count, counts, s.publishedRefused)
	case count > mostPublished:
		return fmt.Sprintf("it publishes %d ports, of which the first %d are known to be its own, and at the others %s: publish fewer, or divide it into several containers", count, mostPublished, counts)
	}
	return ""
}
