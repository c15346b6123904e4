package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// delayedPackets is how many packets are under way at most: two seconds of full frames at 100
	// Mbit/s, where the kernel hands over single ones.
	delayedPackets = 1 << 14
	// maxTunPacketBytes is an IP packet of the largest size, behind struct virtio_net_hdr.
	maxTunPacketBytes = 1<<16 + tunHeaderBytes
	tunHeaderBytes    = 10
	tunName           = "beyond"
)

// DelayLine is a server's namespace beyond a Host's neighbour, and the way there, on which every
// packet takes the same time in each direction; none is overtaken, and none lost while fewer than
// delayedPackets are under way. It stands for netem, which kernels may lack. Packets pass through this
// process, with their segments together as the kernel has them (IFF_VNET_HDR).
type DelayLine struct {
	// NetNSPath is the server's namespace, Addr its address.
	NetNSPath string
	Addr      netip.Addr

	delayNS atomic.Int64 // each way
	ends    [2]*os.File
	wait    sync.WaitGroup
}

// AddDelayLine makes the way to a server, without delay at first. Close it before the host.
func (h *Host) AddDelayLine(ctx context.Context) (line *DelayLine, err error) {
	far, near, plan := h.name+"-beyond", h.peerNS(), h.addresses
	line = &DelayLine{NetNSPath: filepath.Join(NetNSDir, far), Addr: plan.beyond4.Addr()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a delay line: %w", err), line.Close())
		}
	}()
	if err := h.addNamespace(ctx, far); err != nil {
		return line, err
	}
	for i, path := range []string{h.PeerNetNSPath(), line.NetNSPath} {
		err := InNetNS(path, func() (err error) {
			line.ends[i], err = openTun(tunName)
			return err
		})
		if err != nil {
			return line, err
		}
	}
	for _, args := range [][]string{
		{"-n", near, "addr", "add", plan.nearBeyond4.String(), "dev", tunName},
		{"-n", near, "link", "set", tunName, "up"},
		{"-n", far, "addr", "add", plan.beyond4.String(), "dev", tunName},
		{"-n", far, "link", "set", tunName, "up"},
		{"-n", far, "route", "add", "default", "via", plan.nearBeyond4.Addr().String()},
	} {
		if err := runTool(ctx, "ip", args...); err != nil {
			return line, err
		}
	}
	if err := runTool(ctx, "nsenter", "--net="+h.PeerNetNSPath(), "--", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"); err != nil {
		return line, err
	}
	line.carry(line.ends[0], line.ends[1])
	line.carry(line.ends[1], line.ends[0])
	return line, nil
}

// SetRoundTrip sets what the line adds to a round trip, for packets that come from now on.
func (l *DelayLine) SetRoundTrip(roundTrip time.Duration) { l.delayNS.Store(int64(roundTrip / 2)) }

// openTun makes a tun device in the calling thread's network namespace that takes and gives packets
// with many segments.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun (modprobe tun makes it): %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = os.NewSyscallError("TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	}
	if err == nil {
		err = os.NewSyscallError("TUNSETOFFLOAD", unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6))
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make tun device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// delayed is a packet under way.
type delayed struct {
	packet []byte
	due    time.Time
}

func (l *DelayLine) carry(from, to *os.File) {
	underWay := make(chan delayed, delayedPackets)
	l.wait.Go(func() {
		defer close(underWay)
		buffer := make([]byte, maxTunPacketBytes)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return // closed
			}
			underWay <- delayed{bytes.Clone(buffer[:n]), time.Now().Add(time.Duration(l.delayNS.Load()))}
		}
	})
	l.wait.Go(func() {
		for one := range underWay {
			time.Sleep(time.Until(one.due))
			_, _ = to.Write(one.packet) // closed: the packet is lost
		}
	})
}

// Close ends the line. Closing twice is allowed.
func (l *DelayLine) Close() error {
	var problems []error
	for _, end := range l.ends {
		if end != nil {
			problems = append(problems, end.Close())
		}
	}
	l.ends = [2]*os.File{}
	l.wait.Wait()
	return errors.Join(problems...)
}
