//go:build netns

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// inVethNetNS calls fn in a new namespace with the indexes of both ends of a veth.
func inVethNetNS(t *testing.T, fn func(va, vb int)) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	must.Succeed(t, exec.Command("ip", "-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb").Run())
	must.Succeed(t, InNetNS("/run/netns/"+name, func() error {
		va, err := LinkByName("va")
		must.Succeed(t, err)
		vb, err := LinkByName("vb")
		must.Succeed(t, err)
		fn(va.Index, vb.Index)
		return nil
	}))
}

// randomOps returns changes below one root, of which the kernel refuses some: a parent or the object is missing, the
// object exists, a class is in use, a parameter is out of range, a kind is unknown.
func randomOps(r *rand.Rand) []Op {
	root := NewHandle(0x7e11, 0)
	class := func() Handle { return NewHandle(0x7e11, uint16(1+r.IntN(8))) }
	ops := make([]Op, 1+r.IntN(3*batchOps))
	for i := range ops {
		op := &ops[i]
		op.Verb = []Verb{Add, Add, Add, Change, Delete}[r.IntN(5)]
		rate := uint64(r.IntN(20)) * 1e5
		switch kind := r.IntN(40); {
		case kind == 0 || i == 0 && r.IntN(4) > 0:
			op.Qdisc = &Qdisc{Handle: root, Parent: HandleRoot, Options: HTB{DefaultMinor: 1, DirectPackets: uint32(i)}}
		case kind < 10:
			options := []Options{BFIFO{LimitBytes: 1e4 + uint32(i)}, Unknown{Name: "no-such"}}[r.IntN(8)/7]
			op.Qdisc = &Qdisc{Handle: NewHandle(uint16(0x10+r.IntN(4)), 0), Parent: class(), Options: options}
		default:
			op.Class = &Class{Handle: class(), Parent: root, Options: HTBClass{
				RateBytesPerSec: rate, CeilBytesPerSec: rate + uint64(i), Burst: 1e4, CeilBurst: 1e4, QuantumBytes: 1514, Prio: uint32(r.IntN(4))}}
			if r.IntN(3) == 0 {
				op.Class.Parent = class()
			}
		}
	}
	return ops
}

// applyOne makes one change with an acknowledgement of its own, through another implementation of netlink.
func applyOne(conn *netlink.Conn, ifindex int, op Op) error {
	m, err := op.message(ifindex)
	if err != nil {
		return err
	}
	m.Header.Flags |= netlink.Acknowledge
	_, err = conn.Execute(m)
	return err
}

// queueing returns what is at a device, in one order.
func queueing(t *testing.T, tc *TC, ifindex int) (qdiscs []Qdisc, classes []Class) {
	qdiscs, err := tc.Qdiscs(ifindex)
	must.Succeed(t, err)
	classes, err = tc.Classes(ifindex)
	must.Succeed(t, err)
	slices.SortFunc(qdiscs, func(a, b Qdisc) int { return cmp.Compare(a.Handle, b.Handle) })
	slices.SortFunc(classes, func(a, b Class) int { return cmp.Compare(a.Handle, b.Handle) })
	return qdiscs, classes
}

// TestApplyWorlds: changes in batches, of which the kernel refuses some in any place, have the errors, with the kernel's
// texts, and the results that they have one by one with an acknowledgement each.
func TestApplyWorlds(t *testing.T) {
	const worlds = 100
	inVethNetNS(t, func(va, vb int) {
		tc, err := OpenTC()
		must.Succeed(t, err)
		defer tc.Close()
		conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
		must.Succeed(t, err)
		defer conn.Close()
		must.Succeed(t, conn.SetOption(netlink.ExtendedAcknowledge, true))
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		made, refused, texts, lasts, unheard := 0, 0, 0, 0, 0
		for world := range worlds {
			ops := randomOps(r)
			var got []*OpError
			if err := tc.Apply(va, ops); err != nil {
				joined, is := err.(interface{ Unwrap() []error })
				if !is {
					t.Fatalf("seed %d, world %d: %v", seed, world, err)
				}
				for _, one := range joined.Unwrap() {
					var of *OpError
					if !errors.As(one, &of) {
						t.Fatalf("seed %d, world %d: %v", seed, world, one)
					}
					got = append(got, of)
				}
			}
			for i, op := range ops {
				var want *netlink.OpError
				if !errors.As(applyOne(conn, vb, op), &want) {
					made++
					if len(got) > 0 && got[0].Op == op {
						t.Fatalf("seed %d, world %d, change %d is refused only in a batch: %v", seed, world, i, got[0])
					}
					continue
				}
				text := want.Err.Error()
				if want.Message != "" {
					text += ": " + want.Message
					texts++
				}
				if len(got) == 0 || got[0].Op != op || !errors.Is(got[0].Err, want.Err) || got[0].Err.Error() != text {
					t.Fatalf("seed %d, world %d, change %d of %d: refused as %q, in a batch the next refusal is %v", seed, world, i, len(ops), text, got)
				}
				got = got[1:]
				if refused++; i == len(ops)-1 {
					lasts++
				} else if (i+1)%batchOps != 0 {
					unheard++
				}
			}
			if len(got) > 0 {
				t.Fatalf("seed %d, world %d: refused only in a batch: %v", seed, world, got)
			}
			qdiscs, classes := queueing(t, tc, va)
			wantQdiscs, wantClasses := queueing(t, tc, vb)
			if !slices.Equal(qdiscs, wantQdiscs) || !slices.Equal(classes, wantClasses) {
				t.Fatalf("seed %d, world %d: in batches\n%v %v\none by one\n%v %v", seed, world, qdiscs, classes, wantQdiscs, wantClasses)
			}
			for _, ifindex := range []int{va, vb} {
				_ = tc.Apply(ifindex, []Op{{Verb: Delete, Qdisc: &Qdisc{Handle: NewHandle(0x7e11, 0), Parent: HandleRoot}}}) // some worlds have none
			}
		}
		t.Logf("%d changes made, %d refused, %d with a text, %d at the end, %d without an acknowledgement", made, refused, texts, lasts, unheard)
		if made == 0 || texts == 0 || texts == refused || lasts == 0 || unheard == 0 {
			t.Error("these worlds do not have all cases")
		}
	})
}

// TestApplyLostAnswers: answers that the socket has no room for are an error of no change, and leave nothing for the
// next changes and lists.
func TestApplyLostAnswers(t *testing.T) {
	inVethNetNS(t, func(va, _ int) {
		tc, err := OpenTC()
		must.Succeed(t, err)
		defer tc.Close()
		must.Succeed(t, unix.SetsockoptInt(tc.stats.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1)) // the least that there is
		root := NewHandle(0x7e11, 0)
		class := Op{Verb: Add, Class: &Class{Handle: NewHandle(0x7e11, 1), Parent: root, Options: HTBClass{
			RateBytesPerSec: 1e6, CeilBytesPerSec: 1e6, Burst: 1e4, CeilBurst: 1e4, QuantumBytes: 1514}}}
		var refused *OpError
		if err := tc.Apply(va, slices.Repeat([]Op{class}, batchOps)); !errors.Is(err, unix.ENOBUFS) || errors.As(err, &refused) {
			t.Errorf("%d answers: %v", batchOps, err)
		}
		must.Succeed(t, tc.Apply(va, []Op{{Verb: Add, Qdisc: &Qdisc{Handle: root, Parent: HandleRoot, Options: HTB{DirectPackets: 1}}}, class}))
		if list, err := tc.Classes(va); err != nil || len(list) != 1 {
			t.Errorf("then %d classes, %v", len(list), err)
		}
	})
}
