//go:build netns

package identity

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
)

// byPriority and byVLANTag are offsets in struct __sk_buff.
const (
	byPriority = offsetPriority
	byVLANTag  = 24 // vlan_tci
)

// tally counts the packets that leave through a device of the host's by a field,
// after all other programs there.
func (b *bed) tally(ifindex int, offset int16) *ebpf.Map {
	b.t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 64})
	must.Succeed(b.t, err)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "tally", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, offset, asm.Word),
			asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R3, 1), asm.StoreMem(asm.RFP, -16, asm.R3, asm.DWord),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -16),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnMapUpdateElem.Call(),
			asm.Mov.Imm(asm.R0, -1), // TC_ACT_UNSPEC
			asm.Return(),
		},
	})
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { program.Close(); counts.Close() })
	b.inHost(func() error {
		return link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: ifindex, Program: program, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	})
	return counts
}

// seen says whether tally saw a value.
func (b *bed) seen(counts *ebpf.Map, value uint32) bool {
	var count uint64
	return counts.Lookup(value, &count) == nil
}

// onTop puts the classifier on a device on top of the host's uplink that takes over
// its addresses, with args of ip-link, instead of on that.
func (b *bed) onTop(args ...string) {
	b.t.Helper()
	b.uplink.Close()
	host := b.hostNS()
	b.inHost(func() error { return DetachUplink(b.ifindex) })
	b.run("ip", append([]string{"-n", host, "link", "add", "link", b.host.UplinkName, "name", "top0", "type"}, args...)...)
	addr4, addr6 := b.host.PeerAddr.As4(), b.host.PeerAddr6.As16()
	addr4[3], addr6[15] = 101, 101
	b.run("ip", "-n", host, "addr", "flush", "dev", b.host.UplinkName)
	b.run("ip", "-n", host, "addr", "add", netip.AddrFrom4(addr4).String()+"/22", "dev", "top0")
	b.run("ip", "-n", host, "-6", "addr", "add", netip.AddrFrom16(addr6).String()+"/64", "dev", "top0", "nodad")
	b.run("ip", "-n", host, "link", "set", "top0", "up")
	b.inHost(func() error {
		l, err := kernel.LinkByName("top0")
		b.ifindex = l.Index
		return err
	})
	b.uplink = nil
	b.open()
}

// What is below an uplink sees the packet's own priority, not its class.
func TestPriorityBelow(t *testing.T) {
	if err := kernel.ProbeTCX(); err != nil {
		t.Skipf("nothing can be counted after the classifier here: %v", err)
	}
	b := newBed(t)
	lower := b.ifindex
	b.onTop("macvlan", "mode", "bridge")
	b.meet(b.hostNS())
	counts := b.tally(lower, byPriority)
	for _, target := range b.targets() {
		b.expect(fmt.Sprint("to ", target), NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 5) })
	}
	if !b.seen(counts, 5) {
		t.Error("no packet below the uplink has the priority that its socket gave it")
	}
	if class := uint32(majors.Classes)<<16 | uint32(NumberHost); b.seen(counts, class) {
		t.Errorf("a packet below the uplink has its class, %#x, as its priority", class)
	}
	b.inHost(func() error { return DetachUplink(b.ifindex) })
	b.inHost(func() error {
		if program, err := (kernel.Hook{Ifindex: lower, Egress: true}).Find(belowProgWeirBelow); program != nil || err != nil {
			return fmt.Errorf("the device below still has its program %v, %w", program, err)
		}
		return nil
	})
}

// Frames of a VLAN have the priority in their tag that its egress map says.
func TestPriorityOfVLAN(t *testing.T) {
	if err := kernel.ProbeTCX(); err != nil {
		t.Skipf("nothing can be counted after the classifier here: %v", err)
	}
	if err := kernel.ProbeLink("vlan"); err != nil {
		t.Skipf("this kernel has no vlan: %v", err)
	}
	b := newBed(t)
	lower := b.ifindex
	b.onTop("vlan", "id", "7", "egress-qos-map", "5:3")
	b.run("ip", "-n", b.hostNS(), "neigh", "add", b.host.PeerAddr.String(), "dev", "top0", "lladdr", "02:00:00:00:00:99")
	counts := b.tally(lower, byVLANTag)
	target := b.targets()[0]
	b.expect("from the VLAN", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 5) })
	if !b.seen(counts, 3<<13|7) {
		t.Error("no frame has the priority in its tag that the egress map says")
	}
}

// What two uplinks have below them gives packets their priority back for as long as
// one of them is classified, and it is noticed when it does not.
func TestSharedBelow(t *testing.T) {
	b := newBed(t)
	lower, host := b.ifindex, b.hostNS()
	b.onTop("macvlan", "mode", "bridge")
	b.run("ip", "-n", host, "link", "add", "link", b.host.UplinkName, "name", "top1", "type", "macvlan", "mode", "bridge")
	b.run("ip", "-n", host, "link", "set", "top1", "up")
	attached := func(what string, want bool) {
		t.Helper()
		b.inHost(func() error {
			program, err := (kernel.Hook{Ifindex: lower, Egress: true}).Find(belowProgWeirBelow)
			if program != nil {
				defer program.Close()
			}
			if err == nil && (program != nil) != want {
				t.Errorf("%s: that the device below has its program is %v, want %v", what, program != nil, want)
			}
			return err
		})
	}
	complete := func(ifindex int, want bool) {
		t.Helper()
		b.inHost(func() error {
			got, err := UplinkAttached(ifindex)
			if err == nil && got != want {
				t.Errorf("that device %d is classified as a whole is %v, want %v", ifindex, got, want)
			}
			return err
		})
	}
	first, second := b.ifindex, 0
	b.inHost(func() error {
		l, err := kernel.LinkByName("top1")
		second = l.Index
		return err
	})
	b.inHost(func() error {
		origins, err := NewOrigins()
		if err != nil {
			return err
		}
		defer origins.Close()
		other, err := OpenUplink(second, majors, origins)
		if err != nil {
			return err
		}
		return other.Close()
	})
	b.inHost(func() error { return DetachUplink(second) })
	attached("one is given back", true)
	complete(first, true)
	b.inHost(func() error { return kernel.Hook{Ifindex: lower, Egress: true}.Detach(belowProgWeirBelow) })
	complete(first, false)
	b.uplink.Close()
	b.uplink = nil
	b.open()
	complete(first, true)
	b.inHost(func() error { return DetachUplink(first) })
	attached("both are", false)
}
