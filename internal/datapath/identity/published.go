package identity

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

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

// published are the published ports with known owners at an uplink's classifier. The kernel keeps
// them with the program, so they outlive the agent.
type published struct {
	entries *ebpf.Map
	// setCount writes the number of entries to the kernel.
	setCount func(count uint32) error
	// numbers is a copy of entries.
	numbers map[uplinkWeirPublished]uint32
}

// read loads the kernel's entries.
func (p *published) read() error {
	p.numbers = map[uplinkWeirPublished]uint32{}
	var (
		key    uplinkWeirPublished
		number uint32
	)
	entries := p.entries.Iterate()
	for entries.Next(&key, &number) {
		p.numbers[key] = number
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the published ports: %w", err)
	}
	return p.setCount(uint32(len(p.numbers)))
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
	if maps.Equal(want, p.numbers) {
		return nil, nil
	}
	for key := range p.numbers {
		if _, wanted := want[key]; wanted {
			continue
		}
		if err := p.entries.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("forget published port %d: %w", key.Port, err)
		}
		delete(p.numbers, key)
	}
	for _, key := range inOrder(want) {
		number := want[key]
		if p.numbers[key] == number || refused[uint16(number)] != nil {
			continue
		}
		switch err := p.entries.Update(key, number, ebpf.UpdateAny); {
		case errors.Is(err, unix.E2BIG):
			if refused == nil {
				refused = map[uint16]error{}
			}
			refused[uint16(number)] = fmt.Errorf("published port %d: %w", key.Port, ErrTooManyPublished)
		case err != nil:
			return nil, fmt.Errorf("assign published port %d: %w", key.Port, err)
		default:
			p.numbers[key] = number
		}
	}
	return refused, p.setCount(uint32(len(p.numbers)))
}

// ErrTooManyPublished: the kernel's table of published ports is full.
var ErrTooManyPublished = errors.New("all containers together publish more ports than the classifier remembers")

// inOrder returns published ports sorted by the number of their owner.
func inOrder(ports map[uplinkWeirPublished]uint32) []uplinkWeirPublished {
	return slices.SortedFunc(maps.Keys(ports), func(a, b uplinkWeirPublished) int {
		return cmp.Or(cmp.Compare(ports[a], ports[b]), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Family, b.Family))
	})
}

func (u *Uplink) setPublishedPorts(count uint32) error {
	return u.globals.set(uplinkVarPublishedPorts, binary.NativeEndian.AppendUint32(nil, count))
}
