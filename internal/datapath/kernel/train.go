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

// A train is so many echo requests at once, each a full frame of Ethernet. Its frames
// come back as far apart as the slowest link on the way put them (packet dispersion:
// Dovrolis et al., "What do packet dispersion techniques measure?", INFOCOM 2001). The
// median of several trains withstands one that other traffic has torn apart.
const (
	trains         = 5
	trainFrames    = 16
	echoBytes      = 1472 - 8 // in an IPv4 packet of 1500 bytes
	frameBits      = (1500 + 14) * 8
	trainTimeout   = 300 * time.Millisecond
	fewestAnswered = 4
)

// errNoAnswer is a router that does not answer echo requests.
var errNoAnswer = errors.New("no answer to echo requests")

// MeasureLinkBPS guesses what the link to a router of IPv4 can send, in bits per second,
// from the frames that come back from it: the slower of the two directions. It takes a
// second and a half at most and needs CAP_NET_RAW, or a group that may send echo requests
// (net.ipv4.ping_group_range). Errors: errNoAnswer.
func MeasureLinkBPS(ctx context.Context, router netip.Addr) (uint64, error) {
	conn, err := icmp.ListenPacket("udp4", "0.0.0.0")
	var target net.Addr = &net.UDPAddr{IP: router.AsSlice()}
	if err != nil {
		conn, err = icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		target = &net.IPAddr{IP: router.AsSlice()}
	}
	if err != nil {
		return 0, fmt.Errorf("open a socket for echo requests: %w", err)
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
			break // it does not answer: do not wait for it again
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

// sendTrain sends a train and is the rate at which it came back; 0 if too little did.
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
		// A socket of a group has an identifier of its own, and gets no others.
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
