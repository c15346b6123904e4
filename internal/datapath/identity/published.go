package identity

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Published is a port at which a host process may answer for a container, as docker-proxy does for
// IPv6.
type Published struct {
	IPv6     bool
	Protocol uint8 // unix.IPPROTO_TCP, unix.IPPROTO_UDP
	Port     uint16
}

func (p Published) key() uplinkWeirPublished {
	family := uint16(unix.AF_INET)
	if p.IPv6 {
		family = unix.AF_INET6
	}
	return uplinkWeirPublished{Family: family, Port: p.Port, Protocol: uint32(p.Protocol)}
}

// newPublished returns the published ports with known owners at an uplink's classifier.
func newPublished(entries *ebpf.Map) owners[uplinkWeirPublished, uint32] {
	return owners[uplinkWeirPublished, uint32]{entries: entries, number: func(number uint32) uint32 { return number }, compare: func(a, b uplinkWeirPublished) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Family, b.Family))
	}}
}

// SetPublished assigns packets that host sockets send from a published port to a container; they
// would be the host's otherwise. numbers replaces the whole table. A port must be bound at all
// addresses of its family, or it may have another owner at another address. It makes no system call
// if the table is unchanged.
//
// The kernel has room for some thousand ports. If there are more, the smallest numbers win, and
// refused has an error for each other number with missing ports; err means that any number may have
// missing ports. The next call retries them.
func (u *Uplink) SetPublished(numbers map[Published]uint16) (refused map[uint16]error, err error) {
	p := &u.published
	want := make(map[uplinkWeirPublished]uint32, len(numbers))
	for port, number := range numbers {
		want[port.key()] = uint32(number)
	}
	if maps.Equal(want, p.known) {
		return nil, nil
	}
	full, err := p.set(want)
	if err != nil {
		return nil, fmt.Errorf("assign published ports: %w", err)
	}
	for number, key := range full {
		if refused == nil {
			refused = map[uint16]error{}
		}
		refused[number] = fmt.Errorf("published port %d: %w", key.Port, ErrTooManyPublished)
	}
	return refused, u.countPublished()
}

// ErrTooManyPublished: the kernel's table of published ports is full.
var ErrTooManyPublished = errors.New("all containers together publish more ports than the classifier remembers")

// countPublished writes the number of published ports to the kernel.
func (u *Uplink) countPublished() error {
	return u.globals.set(uplinkVarPublishedPorts, binary.NativeEndian.AppendUint32(nil, uint32(len(u.published.known))))
}
