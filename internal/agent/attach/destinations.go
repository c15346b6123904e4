package attach

import (
	"fmt"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// maxDestinations bounds the devices of one container that classifiers know received packets of, so
// that no container uses up the table of some thousand entries.
const maxDestinations = 16

// listAbove looks for the host's devices above the uplinks whose received traffic is shared, unless it
// knows them.
func (a *Attacher) listAbove(uplinks []*Uplink) {
	receiving := []int{}
	for _, u := range uplinks {
		if u.NoteSenders && u.Ifindex() != 0 {
			receiving = append(receiving, u.Ifindex())
		}
	}
	if a.aboveOf != nil && slices.Equal(a.aboveOf, receiving) {
		return
	}
	var links []kernel.Link
	if len(receiving) > 0 {
		var err error
		if links, err = kernel.Links(); err != nil {
			a.log.Warn("cannot look for the host's devices above the uplinks: what they receive for containers may count as the host's", "error", err)
			return
		}
	}
	a.above, a.aboveOf, a.routing = kernel.AllAbove(receiving, links), receiving, map[int]map[[6]byte]int{}
	for _, index := range receiving {
		a.routing[index] = kernel.UntaggedAbove(index, links)
	}
	a.receiving = slices.DeleteFunc(links, func(l kernel.Link) bool { return !slices.Contains(receiving, l.Index) })
}

// destinationsOf returns the number of each device that received packets name: the container's, or the
// host's for uplinks that receive and devices above them. It returns nil while the network of a container has not been
// inspected. An address that two containers have in one network is of neither, as one of them may have
// taken it; one that the host has is the host's.
func destinationsOf(list []*Container, receiving, above []kernel.Link) map[identity.Destination]uint16 {
	numbers, first := map[identity.Destination]uint16{}, map[identity.Destination]*Device{}
	bridges := map[int]bool{0: true} // no bridge between
	for _, l := range above {
		bridges[l.Index] = true
	}
	for _, l := range slices.Concat(receiving, above) {
		if l.Ethernet {
			numbers[identity.Destination{MAC: l.MAC}] = identity.NumberHost
		}
	}
	for _, c := range list {
		if c.Mode == "" {
			return nil
		}
		named := 0
		for i := range c.Devices {
			d := &c.Devices[i]
			d.isNamed, d.unknown = d.Destination != identity.Destination{} && bridges[d.BridgeIndex], ""
			if d.isNamed {
				named++
			}
			switch holder := first[d.Destination]; {
			case !d.isNamed:
			case named > maxDestinations:
				d.unknown = fmt.Sprintf("only %d devices of a container are known: connect it to fewer networks", maxDestinations)
			case numbers[d.Destination] == identity.NumberHost:
				d.unknown = addressTaken
			case holder == nil:
				numbers[d.Destination], first[d.Destination] = c.Number, d
			case numbers[d.Destination] != c.Number: // of another container, or of neither already
				holder.unknown, d.unknown = addressTaken, addressTaken
				delete(numbers, d.Destination)
			}
		}
	}
	return numbers
}

// addressTaken is why received packets for a device count as the host's that has an address of another.
const addressTaken = "another container, or the host, has its MAC address: give it one of its own"

// receiver is the classifier of an uplink's received traffic. Implementation: *identity.Incoming.
type receiver interface {
	// From returns the index of the uplink.
	From() int
}

// incomingComplaints lists the networks of the container whose received packets count as the host's, or are not shared.
func (u *Uplink) incomingComplaints(c *Container) (reasons []string) {
	if c.Number == 0 {
		return nil
	}
	if r, is := u.Classifier().(receiver); is && slices.Contains(c.bridged.entrances, r.From()) {
		reasons = append(reasons, "what other ports of its bridge send to it is not shared, as it does not pass the bridge itself: name each port that leads out as an uplink instead of the bridge")
	}
	refused := u.Refusal(c).Destinations
	if refused == nil {
		refused = u.refusals.Destinations
	}
	for _, d := range c.Devices {
		inOverlay := d.Mode == v1.ModeOverlay
		counts := fmt.Sprintf("packets that its %s network has not requested count as the host's: ", d.Mode)
		if inOverlay {
			counts = "packets of its overlay network count as the host's: "
		}
		switch {
		case inOverlay && d.Destination == (identity.Destination{}):
			counts += "it is no VXLAN with an identifier of its own, as Docker's are"
		case d.unknown != "":
			counts += d.unknown
		case d.isNamed && refused != nil:
			counts += refused.Error()
		case inOverlay && c.Seen.Encrypted:
			counts += "encryption hides the container's address: make the network without --opt encrypted"
		default:
			continue
		}
		if !slices.Contains(reasons, counts) {
			reasons = append(reasons, counts)
		}
	}
	return reasons
}
