//go:build netns

package meter_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

const basePort = 5200

type bed struct {
	host      *testbed.Host
	container *testbed.NetContainer
	meter     *meter.Meter
	sink      *traffic.Sink
}

func newBed(t *testing.T, mode testbed.Mode) *bed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	host, err := testbed.NewHost(ctx, testbed.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bed{host: host}
	if b.container, err = host.AddContainerMode(ctx, "one", mode); err != nil {
		t.Fatal(err)
	}
	b.awaitPeer(t)
	err = testbed.InNetNS(host.PeerNetNSPath(), func() (err error) {
		b.meter, err = meter.New(meter.Options{
			Interface: host.PeerInterface, BasePort: basePort, Slots: 3,
			BinWidth: time.Millisecond, Bins: 3000,
		})
		if err != nil {
			return err
		}
		b.sink, err = traffic.NewSink(basePort, 3)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.sink.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := testbed.InNetNS(host.PeerNetNSPath(), b.meter.Close); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

// awaitPeer waits until the peer refuses connections. The first ARP request may be lost while
// devices come up, and the next one comes a second later.
func (b *bed) awaitPeer(t *testing.T) {
	t.Helper()
	closed := netip.AddrPortFrom(b.container.PeerAddr, 1).String()
	var err error
	for end := time.Now().Add(10 * time.Second); !errors.Is(err, unix.ECONNREFUSED); {
		if time.Now().After(end) {
			t.Fatalf("the peer cannot be reached: %v", err)
		}
		err = b.container.Enter(func() error {
			_, err := net.DialTimeout("tcp4", closed, 100*time.Millisecond)
			return err
		})
	}
}

// send sends for a while from the container and returns the payload sent.
func (b *bed) send(t *testing.T, options traffic.SenderOptions, duration time.Duration) uint64 {
	t.Helper()
	var sender *traffic.Sender
	err := b.container.Enter(func() (err error) {
		sender, err = traffic.NewSender(t.Context(), options)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sender.Start(0)
	time.Sleep(duration)
	sender.Stop()
	if err := sender.Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // until the last packet has arrived
	return sender.SentBytes()
}

// vxlanBytes is what VXLAN over IPv4 puts before a frame: Ethernet, IPv4, UDP
// and its own header.
const vxlanBytes = 14 + 20 + 8 + 8

func TestMeterCountsUDPToTheByte(t *testing.T) {
	for _, mode := range []struct {
		mode       testbed.Mode
		extraBytes int // in every packet on the wire
	}{{testbed.ModeBridge, 0}, {testbed.ModeOverlay, vxlanBytes}} {
		b := newBed(t, mode.mode)
		for i, test := range []struct {
			name    string
			target  netip.Addr
			payload int
			batch   int
		}{
			{"IPv4", b.container.PeerAddr, 64, 1},
			{"IPv6", b.container.PeerAddr6, 1200, 1},
			{"GSO", b.container.PeerAddr, 1400, 20},
		} {
			t.Run(test.name+" "+string(mode.mode), func(t *testing.T) {
				if _, err := b.meter.StartSeries(); err != nil {
					t.Fatal(err)
				}
				sent := b.send(t, traffic.SenderOptions{
					Target: netip.AddrPortFrom(test.target, basePort+uint16(i)), Protocol: traffic.UDP,
					PayloadBytes: test.payload, SegmentsPerSend: test.batch, RateBPS: 20e6,
				}, 200*time.Millisecond)
				snapshot, err := b.meter.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				datagrams := sent / uint64(test.payload)
				want := meter.Counter{
					Bytes:   datagrams * uint64(traffic.WireBytesUDP(test.target, test.payload)+mode.extraBytes),
					Packets: datagrams,
				}
				if got := snapshot.Slots[i]; got != want || sent == 0 {
					t.Errorf("counted %+v, sent %+v", got, want)
				}
				series, err := b.meter.Series()
				if err != nil {
					t.Fatal(err)
				}
				if sum := total(series.Bytes[i]); sum != want.Bytes {
					t.Errorf("the series holds %d bytes, want %d", sum, want.Bytes)
				}
			})
		}
	}
}

// The series of what is for no slot has every byte, too.
func TestMeterSeriesOfOtherPorts(t *testing.T) {
	b := newBed(t, testbed.ModeBridge)
	if _, err := b.meter.StartSeries(); err != nil {
		t.Fatal(err)
	}
	const payload = 1200
	sent := b.send(t, traffic.SenderOptions{
		Target: netip.AddrPortFrom(b.container.PeerAddr, basePort-1), Protocol: traffic.UDP, PayloadBytes: payload, RateBPS: 20e6,
	}, 200*time.Millisecond)
	series, err := b.meter.Series()
	if err != nil {
		t.Fatal(err)
	}
	want := sent / payload * uint64(traffic.WireBytesUDP(b.container.PeerAddr, payload))
	// ARP and neighbour discovery are small, and not of the test.
	if got := total(series.Other); sent == 0 || got < want || got > want+2000 || total(series.Bytes[0]) > 0 {
		t.Errorf("the series holds %d bytes of other ports and %d of the slot, want %d and 0", got, total(series.Bytes[0]), want)
	}
}

// What the meter adds to the bytes that arrived are the headers that each
// segment of a GSO packet gets, but for the first: no more and no less.
func TestMeterCountsHeadersOfGSOPackets(t *testing.T) {
	// Ethernet, IPv4, and TCP with timestamps, which every segment of a
	// connection carries once it is set up; one that is set up sends no GSO.
	const headerBytes = 14 + 20 + 32
	for _, test := range []struct {
		mode        testbed.Mode
		headerBytes uint64
	}{{testbed.ModeBridge, headerBytes}, {testbed.ModeOverlay, vxlanBytes + headerBytes}} {
		t.Run(string(test.mode), func(t *testing.T) {
			b := newBed(t, test.mode)
			before, arrivedBefore := b.seen(t)
			b.send(t, traffic.SenderOptions{
				Target: netip.AddrPortFrom(b.container.PeerAddr, basePort), Protocol: traffic.TCP, Connections: 2,
			}, 300*time.Millisecond)
			got, arrived := b.seen(t)
			got.Bytes -= before.Bytes
			got.Packets -= before.Packets
			arrived.Bytes -= arrivedBefore.Bytes
			arrived.Packets -= arrivedBefore.Packets
			if got.Packets < 2*arrived.Packets {
				t.Fatalf("%d packets arrived, %d counted: there was no GSO", arrived.Packets, got.Packets)
			}
			if want := arrived.Bytes + (got.Packets-arrived.Packets)*test.headerBytes; got.Bytes != want {
				t.Errorf("counted %+v, want %d bytes of what arrived, %+v", got, want, arrived)
			}
		})
	}
}

// seen is what the meter has counted, and what has arrived, at one moment: the
// kernel sends packets of its own, such as reports of multicast groups, at any
// time.
func (b *bed) seen(t *testing.T) (counted, arrived meter.Counter) {
	t.Helper()
	arrived = b.arrived(t)
	for range 100 {
		time.Sleep(10 * time.Millisecond) // what has arrived is counted by then
		counted = b.counted(t)
		before := arrived
		if arrived = b.arrived(t); arrived == before {
			return counted, arrived
		}
	}
	t.Fatal("packets never cease to arrive")
	return counted, arrived
}

// counted is the sum over all slots.
func (b *bed) counted(t *testing.T) (sum meter.Counter) {
	t.Helper()
	snapshot, err := b.meter.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range append(snapshot.Slots, snapshot.Other) {
		sum.Bytes += slot.Bytes
		sum.Packets += slot.Packets
	}
	return sum
}

// arrived is what the neighbour's end of the link counted.
func (b *bed) arrived(t *testing.T) (arrived meter.Counter) {
	t.Helper()
	err := testbed.InNetNS(b.host.PeerNetNSPath(), func() error {
		link, err := netlink.LinkByName(b.host.PeerInterface)
		if err != nil {
			return err
		}
		statistics := link.Attrs().Statistics
		arrived = meter.Counter{Bytes: statistics.RxBytes, Packets: statistics.RxPackets}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return arrived
}

func total(values []uint64) (sum uint64) {
	for _, value := range values {
		sum += value
	}
	return sum
}
