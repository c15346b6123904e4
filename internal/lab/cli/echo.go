package cli

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// echoInterval is the time between two echo requests.
const echoInterval = 50 * time.Millisecond

// echoes measures round trips until ctx ends, and returns their median; 0 without an answer. It
// needs CAP_NET_RAW, or a group that may send echo requests (net.ipv4.ping_group_range).
func echoes(ctx context.Context, target netip.Addr) (time.Duration, error) {
	request, reply := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if target.Is6() {
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, to, err := kernel.ListenEcho(target)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var (
		trips  []time.Duration
		sent   = map[int]time.Time{}
		id     = os.Getpid() & 0xffff
		buffer = make([]byte, 2048)
	)
	for seq := 0; ctx.Err() == nil; seq = (seq + 1) & 0xffff {
		packet, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: seq, Data: make([]byte, 56)}}).Marshal(nil)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		// One that finds no room in a queue is lost like others.
		if _, err := conn.WriteTo(packet, to); err == nil {
			sent[seq] = now
		}
		if err := conn.SetReadDeadline(now.Add(echoInterval)); err != nil {
			return 0, err
		}
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break
			}
			answer, err := icmp.ParseMessage(reply.Protocol(), buffer[:n])
			if err != nil || answer.Type != reply {
				continue
			}
			// An unprivileged socket has its own identifier, and gets its own answers only.
			if echo, is := answer.Body.(*icmp.Echo); is && (to.Network() == "udp" || echo.ID == id) {
				if at, asked := sent[echo.Seq]; asked {
					trips = append(trips, time.Since(at))
					delete(sent, echo.Seq)
				}
			}
		}
	}
	if len(trips) == 0 {
		return 0, nil
	}
	slices.Sort(trips)
	return trips[len(trips)/2], nil
}
