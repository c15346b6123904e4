//go:build netns

package identity

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
)

// passer is a program that lets every packet pass without any other seeing it.
func (b *bed) passer(name string) *ebpf.Program {
	b.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, // TC_ACT_OK
	})
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { program.Close() })
	return program
}

// byTCX attaches a program before all others that are there by tcx.
func byTCX(program *ebpf.Program, ifindex int, where ebpf.AttachType) error {
	return link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: ifindex, Program: program, Attach: where, Anchor: link.Head()})
}

// A tap that programs of others have got before is put first again when it is
// verified, and keeps its number.
func TestTapComesFirst(t *testing.T) {
	for _, name := range []string{"tcx", "filter"} {
		t.Run(name, func(t *testing.T) {
			if err := kernel.ProbeTCX(); name == "tcx" && err != nil {
				t.Skipf("this kernel has no tcx: %v", err)
			}
			b := newBed(t)
			attach := func(tap Tap) {
				if name == "tcx" {
					pass := b.passer("pass")
					b.inHost(func() error { return byTCX(pass, tap.Ifindex, ebpf.AttachTCXIngress) })
					return
				}
				l := ""
				b.inHost(func() error {
					veth, err := kernel.LinkByIndex(tap.Ifindex)
					l = veth.Name
					return err
				})
				// Of filters with one preference the last one
				// that was added comes first.
				b.run("tc", "-n", b.hostNS(), "filter", "add", "dev", l, "ingress", "pref", "1", "handle", "1",
					"bpf", "direct-action", "bytecode", "1,6 0 0 0,") // TC_ACT_OK
			}
			one := b.bridgeContainer("one")
			tap := b.assign(one, v1.ModeBridge, NumberFirst)
			b.meet(one)
			target := b.targets()[0]
			var taps *Taps
			b.inHost(func() (err error) { taps, err = NewTaps(); return err })
			defer taps.Close()
			only := func() (id uint32) {
				b.inHost(func() (err error) { id, err = taps.SoleProgram(tap); return err })
				return id
			}
			if only() == 0 {
				t.Error("Weir's program is not known to be alone at the tap")
			}
			attach(tap)
			if id := only(); id != 0 {
				t.Errorf("program %d counts as alone at the tap, beside another", id)
			}
			b.inHost(func() error {
				closed, err := NewTaps()
				if err != nil {
					return err
				}
				closed.Close()
				if _, err := closed.SoleProgram(tap); err == nil {
					t.Error("a look opens a socket of its own, which takes longer than the look")
				}
				return nil
			})
			b.expect("bypassed", NumberHost, frameBytes(target), func() { b.sendIn(one, target, 0) })
			for range 2 {
				b.inHost(func() error { _, err := taps.Attach(tap, NumberFirst); return err })
				b.expect("first again", NumberFirst, frameBytes(target), func() { b.sendIn(one, target, 0) })
			}
			b.inHost(func() error {
				number, err := TapNumber(tap)
				if err == nil && number != NumberFirst {
					err = errors.New("the tap has lost its number")
				}
				return errors.Join(err, DetachTap(tap))
			})
			b.expect("detached", NumberHost, frameBytes(target), func() { b.sendIn(one, target, 0) })
		})
	}
}

// Taps of another version, whose constants cannot be read, are detached by name.
func TestDetachTapsOfAnotherVersion(t *testing.T) {
	b := newBed(t)
	one := b.bridgeContainer("one")
	tap := b.inspect(one)[0].Tap
	b.inHost(func() error { return tap.hook().Attach(b.passer(tapProgWeirTap), nil) })
	for _, want := range []int{1, 0} {
		b.inHost(func() error {
			count, err := DetachTaps()
			if count != want {
				t.Errorf("detached from %d taps, want %d", count, want)
			}
			return err
		})
	}
}

// What comes before the uplink's classifier is noticed, and the classifier put first again.
func TestUplinkComesFirst(t *testing.T) {
	if err := kernel.ProbeTCX(); err != nil {
		t.Skipf("this kernel has no tcx: %v", err)
	}
	b := newBed(t)
	target := b.targets()[0]
	attached := func(want bool) {
		t.Helper()
		b.inHost(func() error {
			got, err := UplinkAttached(b.ifindex)
			if err == nil && got != want {
				t.Errorf("that the classifier sees all packets is %v, want %v", got, want)
			}
			return err
		})
	}
	attached(true)
	pass := b.passer("pass")
	b.inHost(func() error { return byTCX(pass, b.ifindex, ebpf.AttachTCXEgress) })
	attached(false)
	b.inHost(func() error {
		has, err := HasUplink(b.ifindex)
		if !has {
			t.Error("a classifier that is not first is not found")
		}
		return err
	})
	b.open()
	attached(true)
	b.expect("first again", NumberHost, frameBytes(target), func() { b.sendIn(b.hostNS(), target, 0) })
}

// What comes after the classifier and may change packets is named: programs, and filters.
func TestFollowers(t *testing.T) {
	if err := kernel.ProbeTCX(); err != nil {
		t.Skipf("this kernel has no tcx: %v", err)
	}
	b := newBed(t)
	followers := func(what string, want ...string) {
		t.Helper()
		b.inHost(func() error {
			got, err := Followers(b.ifindex)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
			return err
		})
	}
	followers("nobody")
	b.tally(b.ifindex, byPriority)
	followers("a program", "tally")
	dev := []string{"-n", b.hostNS(), "filter", "add", "dev", b.host.UplinkName, "egress"}
	b.run("tc", "-n", b.hostNS(), "qdisc", "add", "dev", b.host.UplinkName, "clsact")
	followers("an empty clsact", "tally")
	b.run("tc", append(dev, "bpf", "direct-action", "bytecode", "1,6 0 0 0,")...)
	followers("and a filter that can change nothing", "tally")
	b.run("tc", append(dev, "u32", "match", "u32", "0", "0", "flowid", "1:7", "action", "mirred", "egress", "mirror", "dev", "lo")...)
	followers("and one that copies", "tally")
	b.run("tc", append(dev, "pref", "7", "u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "lo")...)
	followers("and one that redirects", "tally", "u32 filter")
	b.inHost(func() error { return DetachUplink(b.ifindex) })
	followers("without the classifier")
}
