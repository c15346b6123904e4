package agent

import (
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/identity"
)

// assignPublished makes the classifier of an uplink know whose the ports are at which
// a proxy of the host's may answer for containers.
func (a *Agent) assignPublished(u *link) {
	if !u.installed() {
		return
	}
	ports := map[identity.Published]uint16{}
	for _, s := range u.controlled {
		if !s.isRouted() {
			continue
		}
		for _, port := range published(s.container) {
			ports[port] = s.number
		}
	}
	if err := u.classifier.SetPublished(ports); err != nil {
		a.log.Warn("what proxies answer for containers counts as the host's", "uplink", u.name, "error", err)
	}
}

// published are the ports that a container has at all addresses of the host's.
func published(c *container) (ports []identity.Published) {
	for _, p := range c.Ports {
		protocol, known := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[p.Protocol]
		if !known {
			continue
		}
		if p.AnyIPv4 {
			ports = append(ports, identity.Published{Protocol: protocol, Port: p.Host})
		}
		if p.AnyIPv6 {
			ports = append(ports, identity.Published{IPv6: true, Protocol: protocol, Port: p.Host})
		}
	}
	return ports
}
