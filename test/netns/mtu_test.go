//go:build netns

package netns

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const jumboMTU = 9000

// setMTU changes the MTU of both ends of the link.
func setMTU(b *harness.Bed, mtuBytes int) {
	b.RunPeer("ip", "link", "set", b.Host.PeerInterface, "mtu", fmt.Sprint(mtuBytes))
	b.Run("ip", "link", "set", b.Host.UplinkName, "mtu", fmt.Sprint(mtuBytes))
}

// jumboFrames counts, for every call of send, how many of 20 UDP datagrams reach the
// neighbour, each in a frame of 7100 bytes.
func jumboFrames(t *testing.T, b *harness.Bed) (send func() int) {
	t.Helper()
	const (
		frames       = 20
		payloadBytes = 7100 - 28 - 14
		port         = 4999
	)
	var in, out *net.UDPConn
	to := net.UDPAddrFromAddrPort(b.Target(0, false))
	to.Port = port
	for _, end := range []struct {
		netNSPath string
		open      func() error
	}{
		{b.Host.PeerNetNSPath(), func() (err error) { in, err = net.ListenUDP("udp4", to); return err }},
		{b.Host.NetNSPath(), func() (err error) { out, err = net.DialUDP("udp4", nil, to); return err }},
	} {
		must.Succeed(t, testbed.InNetNS(end.netNSPath, end.open))
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	return func() int {
		for range frames {
			if _, err := out.Write(make([]byte, payloadBytes)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // no more than the queue of the host holds
		}
		must.Succeed(t, in.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
		for arrived := range frames {
			if n, err := in.Read(make([]byte, payloadBytes)); err != nil || n != payloadBytes {
				return arrived
			}
		}
		return frames
	}
}

// TestJumboFrames: full frames of a link with a large MTU arrive, and shares hold,
// also when the MTU changes while the agent runs.
func TestJumboFrames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, three := b.Add("one", labels("weight", "100")), b.Add("three", labels("weight", "300"))
	setMTU(b, jumboMTU)
	options := harness.AgentOptions{Rate: "40mbit"}
	agent := b.StartAgent(options)
	send := jumboFrames(t, b)
	if arrived := send(); arrived != 20 {
		t.Errorf("%d of 20 frames arrived", arrived)
	}
	agent.Stop()
	b.MustWeir("down", "--state-dir", b.Files.StateDir())

	setMTU(b, 1500)
	agent = b.StartAgent(options)
	setMTU(b, jumboMTU)
	b.Await("frames of the new MTU to arrive", 3*time.Second, func() (bool, string) {
		arrived := send()
		return arrived == 20, fmt.Sprintf("%d of 20 frames arrived", arrived)
	})
	for _, c := range []*harness.Container{one, three} {
		b.Run("ip", "link", "set", c.HostInterface, "mtu", fmt.Sprint(jumboMTU))
		b.Run("ip", "netns", "exec", netNSName(c), "ip", "link", "set", c.Interface(), "mtu", fmt.Sprint(jumboMTU))
		b.Send(c, harness.TCP)
	}
	b.CheckShares(40*mbit, []harness.Claim{
		{Labels: one.Labels, DemandBPS: harness.Unlimited}, {Labels: three.Labels, DemandBPS: harness.Unlimited},
	})
	if sent := queueing(t, b)["qdisc tbf 7e10:"]; sent.bytes < jumboMTU/2*sent.packets {
		t.Errorf("%d bytes in %d packets: they were no jumbo frames", sent.bytes, sent.packets)
	}
	setMTU(b, 1500)
	if got := agent.Container("one"); got.State != "ok" {
		t.Errorf("after the MTU became small again: %+v", got)
	}
}
