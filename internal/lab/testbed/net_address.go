package testbed

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// The plan divides one /19 of benchmarkRange:
//
//	x.y.0.0/22    the link: .1 the host, .2 the neighbour
//	x.y.4.0/22    the host's bridge: .1 the host
//	x.y.8.0/22    the default bridge of a container engine
//	x.y.12.0/23   the overlay network: .2 the neighbour
//	x.y.14.0/24   containers that the host routes to (ipvlan's mode L3)
//	x.y.15.0/24   beyond the neighbour: .1 the neighbour, .2 a server
//	x.y.16.0/20   further networks of a container engine
const (
	planBits            = 19
	subnetBits          = 22
	halfSubnetBits      = 23
	quarterSubnetBits   = 24
	enginePoolBits      = 20
	firstContainerIndex = 3
)

// benchmarkRange is reserved for tests of network equipment (RFC 2544).
var benchmarkRange = netip.MustParsePrefix("198.18.0.0/15")

// addressPlan is every address of a host and its surroundings; each prefix
// holds an address together with the length of its subnet.
type addressPlan struct {
	host4, peer4, bridge4 netip.Prefix
	host6, peer6, bridge6 netip.Prefix
	engineBridge          netip.Prefix
	enginePool            netip.Prefix
	// overlay and routed have no host: they hold the network's own address.
	overlay4, overlayPeer4, routed4 netip.Prefix
	overlay6, overlayPeer6, routed6 netip.Prefix
	nearBeyond4, beyond4            netip.Prefix
	bridgeMAC                       string
}

// newAddressPlan picks a plan at random among those that overlap with no
// address of the machine.
func newAddressPlan() (addressPlan, error) {
	taken, err := machinePrefixes()
	if err != nil {
		return addressPlan{}, err
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return addressPlan{}, fmt.Errorf("pick test addresses: %w", err)
	}
	return planAddresses(random, taken)
}

// planAddresses is newAddressPlan without its inputs from the machine.
func planAddresses(random [8]byte, taken []netip.Prefix) (addressPlan, error) {
	count := uint32(1) << (planBits - benchmarkRange.Bits())
	first := binary.BigEndian.Uint32(random[:4]) % count
	for i := range count {
		block, err := nthSubnet(benchmarkRange, planBits, (first+i)%count)
		if err != nil {
			return addressPlan{}, err
		}
		if !overlapsAny(block, taken) {
			return fillPlan(block, random)
		}
	}
	return addressPlan{}, fmt.Errorf("pick test addresses: the machine uses all of %s", benchmarkRange)
}

func fillPlan(block netip.Prefix, random [8]byte) (addressPlan, error) {
	// RFC 4193: fd00::/8 and 40 random bits make a ULA prefix.
	ula := [16]byte{0: 0xfd}
	copy(ula[1:6], random[3:8])
	nth6 := func(n byte) netip.Prefix {
		ula[7] = n
		return netip.PrefixFrom(netip.AddrFrom16(ula), 64)
	}
	link6, inside6, overlay6, routed6 := nth6(0), nth6(1), nth6(2), nth6(3)

	subnets := make([]netip.Prefix, 3)
	for i := range subnets {
		var err error
		if subnets[i], err = nthSubnet(block, subnetBits, uint32(i)); err != nil {
			return addressPlan{}, err
		}
	}
	overlay4, errOverlay := nthSubnet(block, halfSubnetBits, 6)
	routed4, errRouted := nthSubnet(block, quarterSubnetBits, 14)
	beyond4, errBeyond := nthSubnet(block, quarterSubnetBits, 15)
	if err := errors.Join(errOverlay, errRouted, errBeyond); err != nil {
		return addressPlan{}, err
	}
	// The second bit of the first byte: locally administered.
	plan := addressPlan{bridgeMAC: net.HardwareAddr{2, random[3], random[4], random[5], random[6], random[7]}.String()}
	plan.overlay4, plan.routed4, plan.overlay6, plan.routed6 = overlay4, routed4, overlay6, routed6
	var problems []error
	for _, step := range []struct {
		into   *netip.Prefix
		subnet netip.Prefix
		index  uint32
	}{
		{&plan.host4, subnets[0], 1},
		{&plan.peer4, subnets[0], 2},
		{&plan.bridge4, subnets[1], 1},
		{&plan.engineBridge, subnets[2], 1},
		{&plan.host6, link6, 1},
		{&plan.peer6, link6, 2},
		{&plan.bridge6, inside6, 1},
		{&plan.overlayPeer4, overlay4, 2},
		{&plan.overlayPeer6, overlay6, 2},
		{&plan.nearBeyond4, beyond4, 1},
		{&plan.beyond4, beyond4, 2},
	} {
		address, err := nthAddress(step.subnet, step.index)
		*step.into = address
		problems = append(problems, err)
	}
	pool, err := nthSubnet(block, enginePoolBits, 1)
	plan.enginePool = pool
	return plan, errors.Join(append(problems, err)...)
}

// nthSubnet is the subnet number n of the given length within an IPv4 prefix.
func nthSubnet(prefix netip.Prefix, bits int, n uint32) (netip.Prefix, error) {
	if !prefix.Addr().Is4() || bits < prefix.Bits() || bits > 32 || n>>(bits-prefix.Bits()) != 0 {
		return netip.Prefix{}, fmt.Errorf("take subnet /%d number %d of %s: there is none", bits, n, prefix)
	}
	base := prefix.Masked().Addr().As4()
	value := binary.BigEndian.Uint32(base[:]) + n<<(32-bits)
	binary.BigEndian.PutUint32(base[:], value)
	return netip.PrefixFrom(netip.AddrFrom4(base), bits), nil
}

// nthAddress is address number n of a prefix, with the prefix's length.
func nthAddress(prefix netip.Prefix, n uint32) (netip.Prefix, error) {
	raw := prefix.Masked().Addr().AsSlice()
	tail := raw[len(raw)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+n)
	address, _ := netip.AddrFromSlice(raw)
	if !prefix.Contains(address) {
		return netip.Prefix{}, fmt.Errorf("take address %d of %s: the subnet is too small", n, prefix)
	}
	return netip.PrefixFrom(address, prefix.Bits()), nil
}

func overlapsAny(prefix netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if prefix.Overlaps(other) {
			return true
		}
	}
	return false
}

// machinePrefixes are the subnets of the machine's own interfaces.
func machinePrefixes() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	var prefixes []netip.Prefix
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil {
			return nil, fmt.Errorf("read the machine's address %s: %w", address, err)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}
