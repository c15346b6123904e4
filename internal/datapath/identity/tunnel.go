package identity

import (
	"fmt"
	"strings"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

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
	return fmt.Errorf("routes lead through %s; name what containers send through as an uplink of its own in the configuration file, with its rate",
		strings.Join(names, ", "))
}
