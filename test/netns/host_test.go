//go:build netns

package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// sendsAbout waits until a row of `weir ps` shows a rate.
func sendsAbout(bps float64) func(v1.Container) bool {
	return func(c v1.Container) bool {
		return float64(c.RateBPS) > 0.95*bps && float64(c.RateBPS) < 1.05*bps
	}
}

// TestHostClass: what the host itself sends, and containers that no source told
// the agent of, is shown as one class, which has its policy from the config
// file.
func TestHostClass(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := b.Add("one", nil)
	unknown := b.AddUnknown("unknown")
	agent := b.StartAgent(harness.AgentOptions{Settings: map[string]any{
		"host": map[string]any{"weight": "300", "max": "70mbit"},
	}})
	const rateBPS = 4 * mbit
	paced := harness.Load{Protocol: traffic.UDP, RateBPS: rateBPS}
	fromHost := b.SendFrom(b.Host.NetNSPath(), harness.HostSlot, paced)
	agent.AwaitContainer("host", "sends what the host does", 3*time.Second, sendsAbout(rateBPS))
	b.Send(unknown, paced)
	row, _ := agent.AwaitContainer("host", "sends what the unknown container does as well", 3*time.Second, sendsAbout(2*rateBPS))
	if row.ID != "host" || row.Runtime != "host" || row.Mode != v1.ModeHost || row.State != v1.StateOK ||
		row.Policy.Weight != 300 || row.Policy.MaxBPS != 70*mbit || row.SentBytes == 0 {
		t.Errorf("got %+v", row)
	}
	fromHost.Stop()
	// One class, with any number of senders: 3 to 1 against the container.
	b.SendFrom(b.Host.NetNSPath(), harness.HostSlot, harness.Flood)
	b.Send(one, harness.TCP)
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		m.Move(1, harness.HostSlot, harness.UnknownSlot)
		return harness.CheckShares(100*mbit, m, []uint64{30 * mbit, 70 * mbit})
	})
	if result := b.Weir("set", "host", "--weight", "5"); result.Code != 1 {
		t.Errorf("weir set host: %+v", result)
	}
}

// TestControlTrafficSurvives: while the host class is flooded, neighbours are
// still found: address resolution does not wait behind data.
func TestControlTrafficSurvives(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.StartAgent(harness.AgentOptions{})
	startEcho(t, b)
	for _, v6 := range []bool{false, true} {
		target := netip.AddrPortFrom(b.Target(0, v6).Addr(), echoPort)
		t.Run(map[bool]string{false: "ARP", true: "neighbour discovery"}[v6], func(t *testing.T) {
			flood := harness.Flood
			flood.V6 = v6
			b.SendFrom(b.Host.NetNSPath(), harness.HostSlot, flood)
			time.Sleep(300 * time.Millisecond)
			before := queueing(t, b)[controlClass].packets
			findNeighbour(t, b, target)
			if found := queueing(t, b)[controlClass].packets - before; found < 3 {
				t.Errorf("%d packets went through the control class: the neighbour was found in another way", found)
			}
		})
	}
}

// TestControlFloodOfOneContainer: a container that floods the uplink with
// neighbour solicitations does not keep others from finding theirs.
func TestControlFloodOfOneContainer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		attachment   testbed.Attachment
		payloadBytes int
	}{
		{"NAT", testbed.AttachNAT, 1400},
		{"NAT, small", testbed.AttachNAT, 40},
		{"bridged", testbed.AttachBridged, 1400},
		{"bridged, small", testbed.AttachBridged, 40},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{Attachment: test.attachment})
			one := b.Add("one", nil)
			b.StartAgent(harness.AgentOptions{})
			startEcho(t, b)
			// The way that the flood takes is known before: the kernel does not
			// look for a neighbour on behalf of such packets.
			must.Succeed(t, answered(b, netip.AddrPortFrom(b.Host.PeerAddr6, echoPort), time.Second))
			disguised(t, b, one, true, unix.IPPROTO_ICMPV6, 135, test.payloadBytes)
			if m := b.MeasureFor(300 * time.Millisecond); m.SumBPS() < mbit {
				t.Errorf("only %.2f Mbit/s arrived: this proves nothing", m.SumBPS()/mbit)
			}
			findNeighbour(t, b, netip.AddrPortFrom(b.Host.PeerAddr, echoPort))
		})
	}
}

// controlClass is that of address resolution and the like; echoPort is where
// the neighbour answers.
const (
	controlClass = "class htb 7e11:2"
	echoPort     = 5100
)

func startEcho(t *testing.T, b *harness.Bed) {
	t.Helper()
	var echo *traffic.Echo
	err := testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		echo, err = traffic.NewEcho(echoPort)
		return err
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = echo.Close() })
}

// findNeighbour makes both ends of the link forget each other, three times,
// and wants an answer within a second each time.
func findNeighbour(t *testing.T, b *harness.Bed, target netip.AddrPort) {
	t.Helper()
	device := b.Host.UplinkName
	if strings.Contains(b.Run("ip", "-o", "link", "show", device), "master") {
		device = "containers" // the bridge has the address
	}
	family := "-4"
	if target.Addr().Is6() {
		family = "-6"
	}
	for range 3 {
		// Not "flush" here: it wants to see no neighbour left, which a flood that
		// asks for it again at once may keep it from.
		b.Run("ip", "neigh", "replace", target.Addr().String(), "dev", device, "nud", "failed")
		b.RunPeer("ip", family, "neigh", "flush", "dev", b.Host.PeerInterface)
		began := time.Now()
		if err := answered(b, target, time.Second); err != nil {
			t.Error(err)
			return
		}
		t.Logf("an answer %v after the neighbour was forgotten", time.Since(began).Round(time.Millisecond))
	}
}

// answered pings from the host, whose class is flooded, until an answer comes.
func answered(b *harness.Bed, target netip.AddrPort, timeout time.Duration) error {
	var conn net.Conn
	err := testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline := time.Now().Add(timeout)
	answer := make([]byte, 64)
	for time.Now().Before(deadline) {
		// Among the flood some pings are dropped, as all of its packets may.
		_, _ = conn.Write([]byte("ping"))
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := conn.Read(answer); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no answer from %s within %v", target, timeout)
}

// TestControlClassIsNoWayAround: a container that dresses its data as control
// traffic does not get it past its share.
func TestControlClassIsNoWayAround(t *testing.T) {
	t.Parallel()
	const maxBPS = 10.0 * mbit
	for _, attachment := range []testbed.Attachment{testbed.AttachNAT, testbed.AttachBridged} {
		b := harness.NewBed(t, testbed.HostOptions{Attachment: attachment})
		one := b.Add("one", labels("max", "10mbit"))
		b.StartAgent(harness.AgentOptions{})
		name := map[testbed.Attachment]string{testbed.AttachNAT: "NAT", testbed.AttachBridged: "bridged"}[attachment]
		for _, disguise := range []struct {
			name     string
			v6       bool
			protocol int
			first    byte // of the payload: the type of an ICMPv6 message
		}{
			{"DHCP", false, unix.IPPROTO_UDP, 0},
			{"OSPF", false, 89, 0},
			{"VRRP", false, 112, 0},
			{"IGMP", false, unix.IPPROTO_IGMP, 0x16},
			{"OSPF over IPv6", true, 89, 0},
			{"multicast listener report", true, unix.IPPROTO_ICMPV6, 143},
			{"neighbour solicitation", true, unix.IPPROTO_ICMPV6, 135},
		} {
			t.Run(name+"/"+disguise.name, func(t *testing.T) {
				control := queueing(t, b)[controlClass].bytes
				stop := disguised(t, b, one, disguise.v6, disguise.protocol, disguise.first, 1400)
				time.Sleep(200 * time.Millisecond)
				b.Check(500*time.Millisecond, func(m harness.Measurement) error {
					if m.SumBPS() < mbit {
						return fmt.Errorf("only %.2f Mbit/s arrived: this proves nothing; CPU: %s", m.SumBPS()/mbit, m.CPU)
					}
					if m.SumBPS() > maxBPS*(1+harness.ShareTolerance+m.Slack) {
						return fmt.Errorf("%.2f Mbit/s arrived, the maximum is %.0f; CPU: %s", m.SumBPS()/mbit, maxBPS/mbit, m.CPU)
					}
					return nil
				})
				stop()
				control = queueing(t, b)[controlClass].bytes - control
				const fewBytes = 20_000 // true neighbour discovery and reports
				if control > fewBytes {
					t.Errorf("%d bytes went through the control class", control)
				}
			})
		}
	}
}

// disguised sends packets of a protocol from a container, at about 50 Mbit/s,
// until stop.
func disguised(t *testing.T, b *harness.Bed, c *harness.Container, v6 bool, protocol int, first byte, payloadBytes int) (stop func()) {
	t.Helper()
	const interval, headerBytes = 2 * time.Millisecond, 54
	batch := 50 * mbit / 8 / 500 / (payloadBytes + headerBytes)
	target := b.Target(0, v6).Addr()
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if v6 {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Addr: target.As16()}
	} else {
		to = &unix.SockaddrInet4{Addr: target.As4()}
	}
	kind := unix.SOCK_RAW
	if protocol == unix.IPPROTO_UDP {
		kind = unix.SOCK_DGRAM
		to.(*unix.SockaddrInet4).Port = 67
	}
	fd := -1
	err := testbed.InNetNS(c.NetNSPath(), func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err == nil && v6 {
		// As a router would see it from a neighbour.
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255)
	}
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, payloadBytes)
		packet[0] = first
		for ctx.Err() == nil {
			for range batch {
				_ = unix.Sendto(fd, packet, unix.MSG_DONTWAIT, to) // a full buffer is as good
			}
			time.Sleep(interval)
		}
	}()
	stop = func() {
		cancel()
		<-done
		if fd >= 0 {
			unix.Close(fd)
			fd = -1
		}
	}
	t.Cleanup(stop)
	return stop
}
