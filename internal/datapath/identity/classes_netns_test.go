//go:build netns

package identity

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// sentByMinor is what each class of the tree's inner HTB has sent.
func (b *bed) sentByMinor() map[uint16]uint64 {
	b.t.Helper()
	out, err := exec.Command("tc", "-n", b.hostNS(), "-s", "class", "show", "dev", b.host.UplinkName).Output()
	must.Succeed(b.t, err)
	sent := map[uint16]uint64{}
	for _, class := range strings.Split(string(out), "class htb ")[1:] {
		var major, minor uint16
		var bytes uint64
		_, at, _ := strings.Cut(class, "Sent ")
		if _, err := fmt.Sscanf(class, "%x:%x", &major, &minor); err != nil {
			b.t.Fatalf("%v: %s", err, class)
		}
		if _, err := fmt.Sscanf(at, "%d bytes", &bytes); err != nil {
			b.t.Fatalf("%v: %s", err, class)
		}
		if major == majors.Classes {
			sent[minor] = bytes
		}
	}
	return sent
}

// The packets of a container go into the class of the scheduler that is its number,
// the one it was given, or that of their traffic class.
func TestMinors(t *testing.T) {
	b := newBed(t)
	ns := b.bridgeContainer("one")
	b.assign(ns, v1.ModeBridge, NumberFirst)
	const plain, ef, be = 0x300, 0x301, 0x303
	b.tree("1gbit", 1<<20, NumberHost, NumberControl, NumberFirst, plain, ef, be)
	target := b.targets()[0]
	want := frameBytes(target)
	for _, step := range []struct {
		what   string
		minors [4]uint16
		class  sched.TrafficClass
		minor  uint16
	}{
		{"nothing said", [4]uint16{}, sched.Unclassified, NumberFirst},
		{"a minor of its own", [4]uint16{plain}, sched.Unclassified, plain},
		{"a class", [4]uint16{plain, ef, 0, be}, sched.EF, ef},
		{"a class without a minor", [4]uint16{plain, ef, 0, be}, sched.AF, plain},
		{"only classes", [4]uint16{0, ef, 0, be}, sched.AF, NumberFirst},
		{"no verdict", [4]uint16{plain, ef, 0, be}, ClassAuto, plain},
	} {
		must.Succeed(t, b.uplink.SetMinors(NumberFirst, step.minors))
		table := Table{Numbers: []Assignment{{Number: NumberFirst, Class: step.class}}}
		for range 2 {
			if refused := b.uplink.Apply(table); len(refused.Numbers) > 0 || refused.Published != nil || refused.Index != nil || refused.Unknown != nil {
				t.Fatalf("refused: %+v", refused)
			}
		}
		b.open() // another agent changes nothing
		before := b.sentByMinor()
		b.expect(step.what, NumberFirst, want, func() { b.sendIn(ns, target, 0) })
		for minor, sent := range b.sentByMinor() {
			got := sent - before[minor]
			if minor == step.minor && got < want || minor != step.minor && minor >= NumberFirst && got > slackBytes {
				t.Errorf("%s: class %x sent %d bytes, want all %d in %x", step.what, minor, got, want, step.minor)
			}
		}
	}
	offered, err := b.uplink.ClassOffered(NumberFirst)
	if err != nil || offered.Bytes[sched.EF] != want || offered.Packets[sched.EF] != packets || offered.Bytes[sched.BE] != 0 {
		t.Errorf("offered %+v, %v: want %d bytes of EF", offered, err, want)
	}
	must.Succeed(t, b.uplink.ForgetClasses(NumberFirst))
	if offered, err = b.uplink.ClassOffered(NumberFirst); err != nil || offered != (ClassOffered{}) {
		t.Errorf("after forgetting: %+v, %v", offered, err)
	}
	var left uplinkWeirClassActivity
	if err := b.uplink.classes.activities.Lookup(uint32(NumberFirst), &left); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("after forgetting there still is an entry, which takes memory: %v", err)
	}
}

// TestClassWithoutCounters: packets go into the minor of their class also while it has no counters, as after an
// upgrade that made their map anew. The container's number is no class of the scheduler then.
func TestClassWithoutCounters(t *testing.T) {
	b := newBed(t)
	ns := b.bridgeContainer("one")
	b.assign(ns, v1.ModeBridge, NumberFirst)
	const ef, af, be = 0x301, 0x302, 0x303
	b.tree("1gbit", 1<<20, NumberHost, NumberControl, ef, af, be)
	must.Succeed(t, b.uplink.SetMinors(NumberFirst, sched.Minors{be, ef, af, be}))
	target := b.targets()[0]
	want := frameBytes(target)
	for _, step := range []struct {
		what  string
		class sched.TrafficClass
		efBPS uint64
		minor uint16
	}{
		{"AF", sched.AF, 10e6, af},
		{"EF", sched.EF, 0, ef},
		{"EF that cannot be held to its rate", sched.EF, 10e6, be},
	} {
		must.Succeed(t, errors.Join(b.uplink.SetTrafficClass(NumberFirst, step.class), b.uplink.SetEFRate(NumberFirst, step.efBPS)))
		must.Succeed(t, b.uplink.classes.activities.Delete(uint32(NumberFirst)))
		before := b.sentByMinor()
		b.expect(step.what, NumberFirst, want, func() { b.sendIn(ns, target, 0) })
		if sent := b.sentByMinor()[step.minor] - before[step.minor]; sent < want {
			t.Errorf("%s: class %x sent %d bytes, want all %d", step.what, step.minor, sent, want)
		}
	}
	must.Succeed(t, b.uplink.SetTrafficClass(NumberFirst, sched.EF))
	must.Succeed(t, b.uplink.SetEFRate(NumberFirst, 0))
	b.expect("with counters", NumberFirst, want, func() { b.sendIn(ns, target, 0) })
	if offered, err := b.uplink.ClassOffered(NumberFirst); err != nil || offered.Bytes[sched.EF] != want {
		t.Errorf("with counters again: %+v, %v, want %d bytes of EF", offered, err, want)
	}
}

// TestMapsOfAnotherVersion: an agent keeps the maps of the one before that fit, and makes the others anew.
func TestMapsOfAnotherVersion(t *testing.T) {
	b := newBed(t)
	spec, err := readUplink()
	must.Succeed(t, err)
	spec.Maps[uplinkMapClassActivity].Type, spec.Maps[uplinkMapClassActivity].Flags = ebpf.Array, 0
	const cgroup = uint64(0x600d)
	b.inHost(func() error {
		old, err := loadUplinkProgram(spec, b.origins.shared())
		if err != nil {
			return err
		}
		hook := kernel.Hook{Ifindex: b.ifindex, Egress: true}
		now, err := hook.Find(uplinkProgWeirUplink)
		if err != nil {
			return err
		}
		return errors.Join(old.Cgroups.Put(cgroup, uplinkWeirCgroup{Number: uint32(NumberFirst)}), hook.Attach(old.Program, now))
	})
	b.open()
	var kept uplinkWeirCgroup
	if err := b.uplink.cgroups.entries.Lookup(cgroup, &kept); err != nil || kept.Number != uint32(NumberFirst) {
		t.Errorf("a map that fits is not kept: %+v, %v", kept, err)
	}
	must.Succeed(t, b.uplink.SetTrafficClass(NumberFirst, sched.EF))
	if kind := b.uplink.classes.activities.Type(); kind != ebpf.Hash {
		t.Errorf("a map that does not fit is kept, of type %s", kind)
	}
}

// What a container sends as EF above its rate is served as BE.
func TestEFRate(t *testing.T) {
	b := newBed(t)
	ns := b.bridgeContainer("one")
	b.assign(ns, v1.ModeBridge, NumberFirst)
	b.tree("1gbit", 1<<20, NumberHost, NumberControl, NumberFirst)
	target := b.targets()[0]
	must.Succeed(t, b.uplink.SetTrafficClass(NumberFirst, sched.EF))
	// 20 ms of it are 25 packets.
	must.Succeed(t, b.uplink.SetEFRate(NumberFirst, 10e6))
	want := frameBytes(target)
	b.expect("too much EF", NumberFirst, want, func() { b.sendIn(ns, target, 0) })
	offered, err := b.uplink.ClassOffered(NumberFirst)
	must.Succeed(t, err)
	if offered.Bytes[sched.EF]+offered.Bytes[sched.BE] != want || offered.EFExcessBytes != offered.Bytes[sched.BE] {
		t.Errorf("offered %+v: want %d bytes in all", offered, want)
	}
	if ef := offered.Packets[sched.EF]; ef < 20 || ef > packets/2 {
		t.Errorf("%d of %d packets were EF, want some 25", ef, packets)
	}
	must.Succeed(t, b.uplink.SetEFRate(NumberFirst, 0))
	b.expect("no limit", NumberFirst, want, func() { b.sendIn(ns, target, 0) })
	again, err := b.uplink.ClassOffered(NumberFirst)
	if err != nil || again.Bytes[sched.EF] != offered.Bytes[sched.EF]+want {
		t.Errorf("offered %+v, %v: want %d bytes more of EF than %+v", again, err, want, offered)
	}
}
