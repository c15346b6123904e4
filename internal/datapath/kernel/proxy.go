package kernel

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ProxiedPort is a published port that a host process serves for a container (Docker's
// docker-proxy): the answers come from that process, not from the container.
type ProxiedPort struct {
	Host      netip.AddrPort
	Container netip.AddrPort
}

// ProxiedPorts lists the published ports, by the processes below proc, that are bound to a single
// IPv6 address and lead to an IPv4 address. The kernel cannot translate these by a rule, so a
// process passes all of their traffic. For other ports such a process also exists, but at most the
// host itself uses it. A port published at all addresses belongs to its container alone and is
// identified by its number (identity.Published).
func ProxiedPorts(proc string) []ProxiedPort {
	var ports []ProxiedPort
	names, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(comm)) != "docker-proxy" {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		port, ok := proxiedPort(strings.Split(string(cmdline), "\x00"))
		if ok && port.Host.Addr().Is6() && !port.Host.Addr().IsUnspecified() && port.Container.Addr().Is4() {
			ports = append(ports, port)
		}
	}
	return ports
}

// proxiedPort parses the arguments of docker-proxy.
func proxiedPort(args []string) (ProxiedPort, bool) {
	value := map[string]string{}
	for i := 0; i+1 < len(args); i++ {
		if name, is := strings.CutPrefix(args[i], "-"); is {
			value[name] = args[i+1]
		}
	}
	host, hostOK := addrPort(value["host-ip"], value["host-port"])
	container, containerOK := addrPort(value["container-ip"], value["container-port"])
	return ProxiedPort{Host: host, Container: container}, hostOK && containerOK
}

func addrPort(ip, port string) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.AddrPort{}, false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), true
}
