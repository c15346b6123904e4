//go:build docker

package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// frames are the frames of services that come in where users are, in bytes as an uplink counts them and by the
// kernel's clock: what an application reads of a second also depends on when lost segments come again.
type frames struct {
	began time.Time

	mu sync.Mutex
	// slots are bytes, by frameSlot since began.
	slots []uint64
}

const frameSlot = 10 * time.Millisecond

func newFrames() *frames { return &frames{began: time.Now().Round(0)} }

// watch counts frames of TCP from a port that come in at a device of a network namespace, until ctx ends. It returns
// once none is missed; count does the counting.
func (f *frames) watch(ctx context.Context, t *testing.T, netNSPath, device string, port uint16) (count func()) {
	t.Helper()
	var fd int
	must.Succeed(t, testbed.InNetNS(netNSPath, func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		const all = 0x0300 // ETH_P_ALL in the network's order: a bridge takes what is of one protocol
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		filter := []unix.SockFilter{ // TCP from the port
			{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9}, {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_TCP, Jf: 4},
			{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, {Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 0},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jf: 1}, {Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18}, {Code: unix.BPF_RET | unix.BPF_K, K: 0},
		}
		return errors.Join(
			unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	}))
	return func() {
		defer unix.Close(fd)
		buffer, control := make([]byte, 64), make([]byte, 64)
		for ctx.Err() == nil {
			n, length, _, _, err := unix.Recvmsg(fd, buffer, control, unix.MSG_TRUNC)
			if err != nil {
				continue
			}
			_, stamp, _, err := unix.ParseOneSocketControlMessage(control[:length])
			if err != nil || len(stamp) < 16 {
				continue // no time is no frame, and fails the test
			}
			at := time.Unix(int64(binary.NativeEndian.Uint64(stamp)), int64(binary.NativeEndian.Uint64(stamp[8:])))
			const headers, segment, ethernet = 52, 1448, 14
			segments := max(1, (n-headers+segment-1)/segment)
			f.add(at, uint64(n+(segments-1)*headers+segments*ethernet))
		}
	}
}

func (f *frames) add(at time.Time, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot := f.slot(at)
	for len(f.slots) <= slot {
		f.slots = append(f.slots, 0)
	}
	if slot >= 0 {
		f.slots[slot] += bytes
	}
}

func (f *frames) slot(at time.Time) int { return int(at.Round(0).Sub(f.began) / frameSlot) }

// bits returns how many came in the second after a moment, which is over.
func (f *frames) bits(from time.Time) (bits float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for slot := f.slot(from); slot < min(f.slot(from)+int(time.Second/frameSlot), len(f.slots)); slot++ {
		bits += float64(f.slots[slot]) * 8
	}
	return bits
}
