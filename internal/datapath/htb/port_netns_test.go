//go:build netns

package htb

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// TestPortInKernel: the kernel tells of a port's queues what they were made with, so
// that nothing is made twice, and packets go where their priority says.
func TestPortInKernel(t *testing.T) {
	l := newLine(t)
	p := NewPort(l.tc, l.ifindex)
	owner := func(want PortOwner) {
		t.Helper()
		if got, what, err := p.Owner(); err != nil || got != want {
			t.Fatalf("owner %d (%s), %v; want %d", got, what, err, want)
		}
	}
	owner(PortFree)
	for i, changed := range []bool{true, false} {
		if did, err := p.Apply(threeQueues(100e6)); err != nil || did != changed {
			t.Fatalf("apply %d: changed %t, %v", i, did, err)
		}
	}
	p = NewPort(l.tc, l.ifindex)
	if did, err := p.Apply(threeQueues(100e6)); err != nil || did {
		t.Fatalf("by another controller: changed %t, %v", did, err)
	}
	owner(PortOurs)

	const packets = 20
	conn := l.dial(t, 9)
	raw, err := conn.SyscallConn()
	must.Succeed(t, err)
	for _, priority := range []int{int(portClass(2)), 0, int(portClass(6))} { // the last has no queue
		must.Succeed(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, priority) }))
		must.Succeed(t, err)
		for range packets {
			// Nobody listens: the answer to an earlier packet is told of here, and this
			// one is not sent.
			for _, err := conn.Write(make([]byte, 100)); err != nil; _, err = conn.Write(make([]byte, 100)) {
				if !errors.Is(err, unix.ECONNREFUSED) {
					t.Fatal(err)
				}
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got, err := p.Counters([]int{0, 1, 2})
		must.Succeed(t, err)
		// Queue 0 has the neighbour's addresses, too.
		if got[2].SentPackets == packets && got[0].SentPackets >= 2*packets {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("counted %+v", got)
		}
	}
	if did, err := p.Apply(threeQueues(20e6)); err != nil || !did {
		t.Errorf("another rate: changed %t, %v", did, err)
	}
	if did, err := p.Apply(threeQueues(20e6)); err != nil || did {
		t.Errorf("another rate, again: changed %t, %v", did, err)
	}
	if err := p.Clear(); err != nil {
		t.Error(err)
	}
	owner(PortFree)
}
