package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Filters of the clsact qdisc, which are one way to attach programs to a Hook.

// filter is a filter of a clsact qdisc.
type filter struct {
	filterKey
	kind     string
	protocol uint16
	name     string // of one of the kind bpf
}

// Places of filters (include/uapi/linux/pkt_sched.h).
const (
	handleMinIngress Handle = 0xfffffff2
	handleMinEgress  Handle = 0xfffffff3
)

// clsact returns the parent of the hook's filters.
func (h Hook) clsact() Handle {
	if h.Egress {
		return handleMinEgress
	}
	return handleMinIngress
}

// filterPreference is the first preference, before those of other filters: the kernel numbers them
// from 49152 downwards, and tools use 1 and up. Of filters with the same preference the last one
// added comes first, so there are two handles: adding the filter under the other handle puts it
// first again.
const (
	filterPreference  = 1
	filterHandle      = 0x7e11
	filterOtherHandle = 0x7e12
)

// filters lists the filters of the clsact qdisc; none without such a qdisc.
func (h Hook) filters() (list []attached, err error) {
	err = h.withSocket(func(socket *routeSocket) error {
		list, err = consistently(func() (list []attached, err error) {
			err = socket.dumpDevice(getFilter, h.Ifindex, h.clsact(), func(o object) {
				attrs := o.attrs()
				options := attribute(attrs, unix.TCA_OPTIONS)
				if options == nil {
					return // it is about a priority, and those of its filters follow
				}
				a := attached{filter: &filter{
					filterKey: filterKey{priority: uint16(o.info() >> 16), handle: uint32(o.handle())},
					kind:      unix.ByteSliceToString(attribute(attrs, unix.TCA_KIND)),
					protocol:  bits.ReverseBytes16(uint16(o.info())),
				}}
				if chain := attribute(attrs, unix.TCA_CHAIN); len(chain) == 4 {
					a.filter.chain = binary.NativeEndian.Uint32(chain)
				}
				if a.filter.kind == "bpf" {
					a.filter.name = unix.ByteSliceToString(attribute(options, nl.TCA_BPF_NAME))
					if id := attribute(options, nl.TCA_BPF_ID); len(id) == 4 {
						a.id = ebpf.ProgramID(binary.NativeEndian.Uint32(id))
					}
				}
				list = append(list, a)
			})
			return list, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list filters of device %d: %w", h.Ifindex, err)
	}
	return list, nil
}

// message returns a request about the filter, with its options if it is made.
func (f filter) message(h Hook, kind uint16, flags netlink.HeaderFlags, options []byte) (m netlink.Message, err error) {
	data := tcmsg(h.Ifindex, Handle(f.handle), h.clsact())
	binary.NativeEndian.PutUint32(data[16:], uint32(f.priority)<<16|uint32(bits.ReverseBytes16(f.protocol)))
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(unix.TCA_CHAIN, f.chain)
	ae.String(unix.TCA_KIND, f.kind)
	if options != nil {
		ae.Bytes(unix.TCA_OPTIONS|unix.NLA_F_NESTED, options)
	}
	attrs, err := ae.Encode()
	m.Header = netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}
	m.Data = slices.Concat(data, attrs)
	return m, err
}

// attachFilter attaches the program as a filter with that handle, in place of one that has it.
func (h Hook) attachFilter(program *ebpf.Program, handle uint32) error {
	facts, err := factsOf(program)
	if err != nil {
		return err
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(nl.TCA_BPF_FD, uint32(program.FD()))
	ae.String(nl.TCA_BPF_NAME, facts.name)
	ae.Uint32(nl.TCA_BPF_FLAGS, nl.TCA_BPF_FLAG_ACT_DIRECT)
	options, err := ae.Encode()
	if err != nil {
		return fmt.Errorf("encode a filter: %w", err)
	}
	f := filter{filterKey: filterKey{priority: filterPreference, handle: handle}, kind: "bpf", protocol: unix.ETH_P_ALL}
	qdisc, err := h.clsactQdisc(Add).message(h.Ifindex)
	if err != nil {
		return err
	}
	put, err := f.message(h, unix.RTM_NEWTFILTER, netlink.Create, options)
	if err != nil {
		return fmt.Errorf("encode a filter: %w", err)
	}
	return h.withSocket(func(socket *routeSocket) error {
		refused, err := socket.change([]netlink.Message{qdisc, put})
		if err != nil {
			return fmt.Errorf("attach filter to device %d: %w", h.Ifindex, err)
		}
		if err := refused[0]; err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add clsact to device %d: %w", h.Ifindex, err)
		}
		if err := refused[1]; err != nil {
			return fmt.Errorf("attach filter to device %d: %w", h.Ifindex, h.withFirst(err))
		}
		return nil
	})
}

// withFirst returns err, with the filter of another kind that has the first preference, if there is one: all of
// one preference have to be of one kind and protocol.
func (h Hook) withFirst(err error) error {
	all, failed := h.filters()
	if failed != nil {
		return err
	}
	for _, a := range all {
		if f := a.filter; f.priority == filterPreference && (f.kind != "bpf" || f.protocol != unix.ETH_P_ALL) {
			return fmt.Errorf("%w: a %s filter has preference %d, which Weir needs to come first: give it a larger one (tc filter add ... pref 10)",
				err, f.kind, filterPreference)
		}
	}
	return err
}

// clsactQdisc returns a change of the clsact qdisc, which holds filters of both directions.
func (h Hook) clsactQdisc(verb Verb) Op {
	return Op{Verb: verb, Qdisc: &Qdisc{Handle: NewHandle(0xffff, 0), Parent: HandleIngress, Options: Unknown{Name: "clsact"}}}
}

// addClsact adds the clsact qdisc unless the device has it.
func (h Hook) addClsact() error {
	m, err := h.clsactQdisc(Add).message(h.Ifindex)
	if err != nil {
		return err
	}
	if err := h.change(m); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to device %d: %w", h.Ifindex, err)
	}
	return nil
}

// change makes one change.
func (h Hook) change(m netlink.Message) error {
	return h.withSocket(func(socket *routeSocket) error {
		refused, err := socket.change([]netlink.Message{m})
		return cmp.Or(err, refused[0])
	})
}

// removeFilter removes a filter, and the clsact qdisc after the last one. A missing filter or device is no error.
func (h Hook) removeFilter(f *filter) error {
	m, err := f.message(h, unix.RTM_DELTFILTER, 0, nil)
	if err != nil {
		return fmt.Errorf("encode a filter: %w", err)
	}
	if err := h.change(m); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove a filter from device %d: %w", h.Ifindex, err)
	}
	// A clsact qdisc without filters has no effect; one with filters belongs to another program.
	for _, egress := range []bool{false, true} {
		h.Egress = egress
		rest, err := h.filters()
		if err != nil || len(rest) > 0 {
			return err
		}
	}
	if m, err = h.clsactQdisc(Delete).message(h.Ifindex); err != nil {
		return err
	}
	if err := h.change(m); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove clsact from device %d: %w", h.Ifindex, err)
	}
	return nil
}
