package attach

import (
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// maxDestinations bounds the devices of one container that classifiers know received packets of, so
// that no container uses up the table of some thousand entries.
const maxDestinations = 16

// destinationsOf returns the container number of each device that received packets name. It returns
// nil while the network of a container has not been inspected. Of two containers with one address in
// one network, the first keeps it.
func destinationsOf(list []*Container) map[identity.Destination]uint16 {
	numbers := map[identity.Destination]uint16{}
	for _, c := range list {
		if c.Mode == "" {
			return nil
		}
		for _, d := range c.Devices[:min(len(c.Devices), maxDestinations)] {
			if _, taken := numbers[d.Destination]; !taken && d.Destination != (identity.Destination{}) {
				numbers[d.Destination] = c.Number
			}
		}
	}
	return numbers
}

// incomingComplaints lists the networks of the container whose received packets count as the host's.
func (u *Uplink) incomingComplaints(c *Container) (reasons []string) {
	hidden := map[bool]bool{}
	for i, d := range c.Devices {
		if c.Number != 0 && d.Mode == v1.ModeOverlay {
			hidden[d.Destination == (identity.Destination{}) || i >= maxDestinations] = true
		}
	}
	refused := u.Refusal(c).Destinations
	if refused == nil {
		refused = u.refusals.Destinations
	}
	const counts = "packets of its overlay network count as the host's: "
	switch {
	case hidden[true]:
		reasons = append(reasons, counts+"it is no VXLAN with an identifier of its own")
	case hidden[false] && refused != nil:
		reasons = append(reasons, fmt.Sprintf("%s%v", counts, refused))
	case hidden[false] && c.Seen.Encrypted:
		reasons = append(reasons, counts+"encryption hides the address of the container")
	}
	return reasons
}
