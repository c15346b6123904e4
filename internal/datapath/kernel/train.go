package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// A train is a burst of echo requests, each a full Ethernet frame. The replies are spaced by the
// slowest link on the path (packet dispersion: Dovrolis et al., "What do packet dispersion
// techniques measure?", INFOCOM 2001). The median of several trains tolerates one that other
// traffic has disturbed.
const (
	trains         = 5
	trainFrames    = 16
	echoBytes      = 1472 - 8 // in an IPv4 packet of 1500 bytes
	frameBits      = (1500 + 14) * 8
	trainTimeout   = 300 * time.Millisecond
	fewestAnswered = 4
)

// errNoAnswer: the router does not answer echo requests.
var errNoAnswer = errors.New("no answer to echo requests")

// MeasureLinkBPS estimates the rate of the link to an IPv4 router, in bits per second, from the
// spacing of its echo replies: the slower of both directions. It takes at most 1.5 seconds and
// needs CAP_NET_RAW, or a group that may send echo requests (net.ipv4.ping_group_range). Errors:
// errNoAnswer.
func MeasureLinkBPS(ctx context.Context, router netip.Addr) (uint64, error) {
	conn, target, err := ListenEcho(router)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var rates []uint64
	for train := range trains {
		if ctx.Err() != nil {
			break
		}
		rate, err := sendTrain(conn, target, train)
		if err != nil {
			return 0, err
		}
		if rate == 0 && train == 0 {
			break // no answer: do not wait for it again
		}
		if rate != 0 {
			rates = append(rates, rate)
		}
	}
	if len(rates) == 0 {
		return 0, errNoAnswer
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// ListenEcho opens a socket for echo requests to an address, and returns how the socket names the address: a
// *net.UDPAddr if the kernel passes on only answers to this socket, as it does for an unprivileged one. It
// needs CAP_NET_RAW, or a group that may send echo requests (net.ipv4.ping_group_range).
func ListenEcho(target netip.Addr) (*icmp.PacketConn, net.Addr, error) {
	network, raw, unspecified := "udp4", "ip4:icmp", "0.0.0.0"
	if target.Is6() {
		network, raw, unspecified = "udp6", "ip6:ipv6-icmp", "::"
	}
	var to net.Addr = &net.UDPAddr{IP: target.AsSlice(), Zone: target.Zone()}
	conn, err := icmp.ListenPacket(network, unspecified)
	if err != nil {
		to = &net.IPAddr{IP: target.AsSlice(), Zone: target.Zone()}
		conn, err = icmp.ListenPacket(raw, unspecified)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open a socket for echo requests: %w", err)
	}
	return conn, to, nil
}

// sendTrain sends a train and returns the rate of the replies; 0 if there were too few.
func sendTrain(conn *icmp.PacketConn, target net.Addr, train int) (uint64, error) {
	id := os.Getpid() & 0xffff
	for frame := range trainFrames {
		message := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{
			ID: id, Seq: train*trainFrames + frame, Data: make([]byte, echoBytes),
		}}
		packet, err := message.Marshal(nil)
		if err == nil {
			_, err = conn.WriteTo(packet, target)
		}
		if err != nil {
			return 0, fmt.Errorf("send an echo request to %s: %w", target, err)
		}
	}
	var first, last time.Time
	answered := 0
	if err := conn.SetReadDeadline(time.Now().Add(trainTimeout)); err != nil {
		return 0, err
	}
	for buffer := make([]byte, 2048); answered < trainFrames; {
		n, _, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("wait for an echo from %s: %w", target, err)
		}
		reply, err := icmp.ParseMessage(ipv4.ICMPTypeEcho.Protocol(), buffer[:n])
		if err != nil || reply.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		// An unprivileged echo socket has its own identifier and gets only its own replies.
		if echo, is := reply.Body.(*icmp.Echo); !is || echo.Seq/trainFrames != train {
			continue
		}
		last = time.Now()
		if answered++; answered == 1 {
			first = last
		}
	}
	if answered < fewestAnswered || !last.After(first) {
		return 0, nil
	}
	return uint64(float64((answered-1)*frameBits) / last.Sub(first).Seconds()), nil
}
