package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Which filters of others may take a packet's number away. Filters and actions that are not listed
// here may, as may BPF programs.

// effect is what a filter may do to what a packet carries: any of these together.
type effect uint8

const (
	// indexes: its class, or having none, overwrites tc_index (net/core/dev.c, tc_run).
	indexes effect = 1 << iota
	// diverts: it may redirect the packet, or change its priority or queue.
	diverts
	// keeps: the packet goes on as it is, or is dropped, or copied.
	keeps effect = 0
	// unclear: it may do anything.
	unclear = indexes | diverts
)

// filterKinds are kinds of filters, with the numbers of their attributes (linux/pkt_cls.h): class,
// actions, a policer as old tools attach it, a BPF program, and flags that say whether a card has it. 0: it has none.
var filterKinds = map[string]struct{ class, actions, police, program, flags uint16 }{
	"basic":    {class: 1, actions: 3, police: 4},
	"bpf":      {class: 3, actions: 1, police: 2, program: 11, flags: 9},
	"flower":   {class: 1, actions: 3, flags: 22},
	"fw":       {class: 1, actions: 4, police: 2},
	"matchall": {class: 1, actions: 2, flags: 3},
	"u32":      {class: 1, actions: 7, police: 6, flags: 11},
}

// actionKinds are kinds of actions that neither redirect a packet nor change its priority or queue,
// mirred by its parameters, with the number of their attribute that contains the verdict
// (linux/tc_act/*.h).
var actionKinds = map[string]uint16{"connmark": 1, "csum": 1, "gact": 2, "mirred": 2, "police": 1, "sample": 2, "simple": 2}

// Attributes of an action (linux/pkt_cls.h), and the largest verdict that lets a packet go on with the
// class of the filter: TC_ACT_OK is 0, TC_ACT_RECLASSIFY 1.
const (
	actionKind       = 1
	actionOptions    = 2
	mostClassVerdict = 1
)

// filterKey identifies a filter of a hook.
type filterKey struct {
	priority      uint16
	handle, chain uint32
}

// effects returns what the filters of the clsact qdisc may do.
func (h Hook) effects() (map[filterKey]effect, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open traffic control: %w", err)
	}
	defer conn.Close()
	return h.readEffects(conn)
}

func (h Hook) readEffects(conn *netlink.Conn) (map[filterKey]effect, error) {
	effects := map[filterKey]effect{}
	err := h.eachFilter(conn, func(key filterKey, kind string, options []byte) (err error) {
		effects[key], err = filterEffect(kind, options)
		return err
	})
	return effects, err
}

// eachFilter calls fn for every filter of the hook's clsact or ingress qdisc, if it has one.
func (h Hook) eachFilter(conn *netlink.Conn, fn func(key filterKey, kind string, options []byte) error) error {
	messages, err := requestList(conn, getFilter, tcmsg(h.Ifindex, 0, h.clsact()))
	if err != nil {
		return fmt.Errorf("list filters of device %d: %w", h.Ifindex, err)
	}
	for _, m := range messages {
		if len(m.Data) < sizeofTcmsg {
			return errShort
		}
		key := filterKey{
			handle:   binary.NativeEndian.Uint32(m.Data[8:]),
			priority: uint16(binary.NativeEndian.Uint32(m.Data[16:]) >> 16),
		}
		var kind string
		var options []byte
		err := eachAttribute(m.Data[sizeofTcmsg:], func(ad *netlink.AttributeDecoder) error {
			switch ad.Type() {
			case unix.TCA_KIND:
				kind = ad.String()
			case unix.TCA_OPTIONS:
				options = ad.Bytes()
			case unix.TCA_CHAIN:
				key.chain = ad.Uint32()
			}
			return nil
		})
		if err == nil {
			err = fn(key, kind, options)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// filterEffect returns what a filter with these options may do.
func filterEffect(kind string, options []byte) (effect, error) {
	at, known := filterKinds[kind]
	if !known {
		return unclear, nil
	}
	found, acts := keeps, false
	add := func(more effect, err error) error {
		found |= more
		return err
	}
	err := eachAttribute(options, func(ad *netlink.AttributeDecoder) error {
		switch attribute := ad.Type(); {
		case attribute == at.class && ad.Uint32() != 0:
			return add(indexes, nil)
		case attribute == at.program && at.program != 0:
			return add(unclear, nil)
		case attribute == at.police && at.police != 0:
			acts = true
			return add(actionEffect("police", ad.Bytes()))
		case attribute == at.actions:
			acts = true
			return eachAttribute(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
				var kind string
				var options []byte
				err := eachAttribute(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
					switch ad.Type() {
					case actionKind:
						kind = ad.String()
					case actionOptions:
						options = ad.Bytes()
					}
					return nil
				})
				if err != nil {
					return err
				}
				return add(actionEffect(kind, options))
			})
		}
		return nil
	})
	if !acts && kind != "u32" { // it matches, and the packet goes on; u32 takes the next filter
		found |= indexes
	}
	return found, err
}

// actionEffect returns what an action with these options may do.
func actionEffect(kind string, options []byte) (effect, error) {
	parameters, known := actionKinds[kind]
	if !known {
		return unclear, nil
	}
	const probability, result = 3, 5 // attributes with another verdict: of gact, of police
	found := keeps
	verdict := func(at []byte) {
		if len(at) < 4 || binary.NativeEndian.Uint32(at) <= mostClassVerdict {
			found |= indexes
		}
	}
	conforms := false
	err := eachAttribute(options, func(ad *netlink.AttributeDecoder) error {
		switch attribute, value := ad.Type(), ad.Bytes(); {
		case kind == "police" && attribute == parameters, kind == "gact" && attribute == probability:
			verdict(value[min(4, len(value)):])
		case kind == "police" && attribute == result:
			conforms = true
			verdict(value)
		case attribute == parameters:
			verdict(value[min(8, len(value)):])
			if kind == "mirred" && (len(value) < 24 || isRedirect(binary.NativeEndian.Uint32(value[20:]))) {
				found |= diverts
			}
		}
		return nil
	})
	if kind == "police" && !conforms { // what conforms goes on
		verdict(nil)
	}
	return found, err
}

// isRedirect reports whether an action of mirred is no copy.
func isRedirect(action uint32) bool {
	const egressMirror, ingressMirror = 2, 4 // linux/tc_act/tc_mirred.h
	return action != egressMirror && action != ingressMirror
}
