package identity

import (
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// DefaultRouteProblem returns an error with instructions about the default routes, IPv4 or IPv6, that
// lead through these devices, past the uplinks (kernel.StackedOn); nil without such devices.
func DefaultRouteProblem(devices []string) error {
	if len(devices) == 0 {
		return nil
	}
	return fmt.Errorf("the default route leads through %s, which is no uplink: what is sent there is not controlled; make it one in the configuration file, follow the route with uplink: auto, or write ignore_default_route: true there if that is on purpose",
		strings.Join(devices, ", "))
}

// TunnelProblem returns an error with instructions about devices on top of an uplink that routes
// lead through (kernel.StackedOn); nil without such devices. Packets that a container sends through
// one reach the uplink inside packets of the host. A tunnel's choice of a queue overwrites the
// container's number, and encryption removes it.
func TunnelProblem(stacked []kernel.Stacked) error {
	if len(stacked) == 0 {
		return nil
	}
	var names []string
	for _, s := range stacked {
		names = append(names, fmt.Sprintf("%s (%s on %s)", s.Name, s.Kind, s.On))
	}
	return fmt.Errorf("routes lead through %s; if containers send through it, make it an uplink of its own in the configuration file, with its rate",
		strings.Join(names, ", "))
}
