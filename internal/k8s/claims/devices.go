package claims

import (
	"fmt"
	"hash/fnv"
	"regexp"

	v1 "github.com/weir-project/weir/api/v1"
)

// EgressBandwidth and IngressBandwidth are the names of a device's capacities, in bits per second.
const (
	EgressBandwidth  = "egressBandwidth"
	IngressBandwidth = "ingressBandwidth"
)

// Device is an uplink as the scheduler sees it.
type Device struct {
	Name, Uplink string
	// Default marks the first uplink of the agent.
	Default bool
	// Capacity is what claims have of the uplink and what is left for further ones.
	Capacity Rates
	// Receives says that what the uplink receives is shared, too.
	Receives bool
}

// Devices returns the uplinks of the agent. What claims have is part of the capacity, also where the
// uplink has become slower. What pods request of the extended resource is not: the scheduler counts that elsewhere.
func (l Ledger) Devices(v *View) []Device {
	prepared, _ := l.Split()
	list := make([]Device, 0, len(v.Uplinks))
	for i := range v.Uplinks {
		u := &v.Uplinks[i]
		list = append(list, Device{
			Name: DeviceName(u.Name), Uplink: u.Name, Default: i == 0,
			Capacity: l.capacity(prepared, u, v), Receives: u.In != nil,
		})
	}
	return list
}

// RequestableBPS returns the amount of the extended resource: what pods request of it, and what is left of the first
// uplink; 0 if the agent has none.
func (l Ledger) RequestableBPS(v *View) uint64 {
	if len(v.Uplinks) == 0 {
		return 0
	}
	_, requests := l.Split()
	return l.capacity(requests, &v.Uplinks[0], v).EgressBPS
}

// capacity returns what a part of the ledger has of an uplink and what the whole ledger leaves.
func (l Ledger) capacity(part Ledger, u *v1.MeasuredUplink, v *View) Rates {
	has, _ := part.promised(u, v)
	_, due := l.promised(u, v)
	return has.plus(free(u).minus(due))
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// DeviceName returns a DNS label for an uplink: its name if that is one, otherwise a hash of it.
func DeviceName(uplink string) string {
	if len(uplink) <= 15 && label.MatchString(uplink) {
		return uplink
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(uplink))
	return fmt.Sprintf("uplink-%016x", h.Sum64())
}
