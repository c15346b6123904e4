//go:build netns

package identity

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// dscpPacket is an Ethernet frame with a packet of IPv4, with a right checksum, or of
// IPv6; fragment puts the bits of one into IPv4's.
func dscpPacket(version int, tos, options byte, fragment bool) []byte {
	b := make([]byte, 14, 200)
	if version == 6 {
		binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IPV6)
		b = append(b, 0x60|tos>>4, tos<<4|0x5, 0x12, 0x34, 0, 100, 17, 64)
		return append(b, make([]byte, 32+100)...)
	}
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	header := append([]byte{0x45 + options, tos, 0, 120 + 4*options, 1, 2, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2}, bytes.Repeat([]byte{1}, 4*int(options))...)
	if fragment {
		header[6], header[7] = 0x20, 0x10
	}
	binary.BigEndian.PutUint16(header[10:], ^sum(header))
	return append(append(b, header...), make([]byte, 100)...)
}

// sum is the Internet checksum's sum (RFC 1071).
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func tosOf(packet []byte) byte {
	if packet[14]>>4 == 6 {
		return packet[14]<<4 | packet[15]>>4
	}
	return packet[15]
}

// The packets of a container that is marked say as which class they were served,
// with ECN as it was and a right checksum; nothing else of them changes, and nothing
// of others.
func TestMarkDSCP(t *testing.T) {
	b := newBed(t)
	number := NumberFirst + 3
	var program *ebpf.Program
	b.inHost(func() (err error) {
		program, err = kernel.Hook{Ifindex: b.ifindex, Egress: true}.Find(uplinkProgWeirUplink)
		return err
	})
	defer program.Close()
	type skb struct {
		Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTci, VlanProto, Priority uint32
		_                                                                                     [160]byte
	}
	tag := uint32(number) << uplinkWeirPriorityWEIR_PRIORITY_TAG_SHIFT
	in := skb{Priority: uint32(uplinkWeirPriorityWEIR_PRIORITY_MAGIC)<<uplinkWeirPriorityWEIR_PRIORITY_MAGIC_SHIFT | tag}
	run := func(packet []byte) []byte {
		out := make([]byte, len(packet)+256)
		options := ebpf.RunOptions{Data: packet, DataOut: out, Context: in, ContextOut: &skb{}}
		b.inHost(func() error {
			_, err := program.Run(&options)
			return err
		})
		return options.DataOut
	}
	packets := map[string][]byte{}
	for _, tos := range []byte{0, 2, 46 << 2, 10<<2 | 1, 0xff} {
		packets[fmt.Sprint("IPv4 ", tos)] = dscpPacket(4, tos, 0, false)
		packets[fmt.Sprint("IPv4 fragment ", tos)] = dscpPacket(4, tos, 0, true)
		packets[fmt.Sprint("IPv4 options ", tos)] = dscpPacket(4, tos, 10, false)
		packets[fmt.Sprint("IPv6 ", tos)] = dscpPacket(6, tos, 0, false)
	}
	arp := append(make([]byte, 12), 8, 6, 0x45, 0xff)
	packets["ARP"] = append(arp, make([]byte, 60)...)
	for class, dscp := range map[sched.TrafficClass]int{sched.EF: 46, sched.AF: 26, sched.BE: 0, sched.Unclassified: -1} {
		must.Succeed(t, b.uplink.SetTrafficClass(number, class))
		for _, marked := range []bool{false, true} {
			must.Succeed(t, b.uplink.SetMarkDSCP(number, marked))
			for name, packet := range packets {
				want := bytes.Clone(packet)
				if name != "ARP" && marked && dscp >= 0 {
					tos := byte(dscp<<2) | tosOf(packet)&3
					if packet[14]>>4 == 6 {
						want[14], want[15] = 0x60|tos>>4, tos<<4|packet[15]&15
					} else {
						header := want[14 : 14+4*int(want[14]&15)]
						header[1], header[10], header[11] = tos, 0, 0
						binary.BigEndian.PutUint16(header[10:], ^sum(header))
					}
				}
				if got := run(packet); !bytes.Equal(got, want) {
					t.Errorf("%s, class %d, marked %v:\n%x, want\n%x", name, class, marked, got[:40], want[:40])
				}
			}
		}
	}
	must.Succeed(t, b.uplink.ForgetClasses(number))
	must.Succeed(t, b.uplink.SetTrafficClass(number, sched.EF))
	if packet := packets["IPv4 0"]; !bytes.Equal(run(packet), packet) {
		t.Error("the next holder of the number is marked")
	}
}
