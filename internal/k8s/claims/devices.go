package claims

import (
	"fmt"
	"hash/fnv"
	"regexp"
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
// uplink has become slower.
func (l Ledger) Devices(v *View) []Device {
	list := make([]Device, 0, len(v.Uplinks))
	for i := range v.Uplinks {
		u := &v.Uplinks[i]
		all, due := l.promised(u, v)
		list = append(list, Device{
			Name: DeviceName(u.Name), Uplink: u.Name, Default: i == 0,
			Capacity: all.plus(free(u).minus(due)), Receives: u.In != nil,
		})
	}
	return list
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
