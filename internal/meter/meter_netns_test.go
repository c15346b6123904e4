//go:build netns

package meter_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/meter"
	"github.com/weir-project/weir/internal/testbed"
	"github.com/weir-project/weir/internal/traffic"
)

const basePort = 5200

type bed struct {
	host      *testbed.Host
	container *testbed.NetContainer
	meter     *meter.Meter
	sink      *traffic.Sink
}

func newBed(t *testing.T) *bed {
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
	if b.container, err = host.AddContainer(ctx, "one"); err != nil {
		t.Fatal(err)
	}
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

// send sends for a while from the container and returns the payload sent.
func (b *bed) send(t *testing.T, options traffic.SenderOptions, duration time.Duration) uint64 {
	t.Helper()
	var sender *traffic.Sender
	err := testbed.InNetNS(b.container.NetNSPath(), func() (err error) {
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

func TestMeterCountsUDPToTheByte(t *testing.T) {
	b := newBed(t)
	for i, test := range []struct {
		name    string
		target  netip.Addr
		payload int
		batch   int
	}{
		{"IPv4", b.host.PeerAddr, 64, 1},
		{"IPv6", b.host.PeerAddr6, 1200, 1},
		{"GSO", b.host.PeerAddr, 1400, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
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
				Bytes:   datagrams * uint64(traffic.WireBytesUDP(test.target, test.payload)),
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

func TestMeterCountsHeadersOfGSOPackets(t *testing.T) {
	b := newBed(t)
	b.send(t, traffic.SenderOptions{
		Target: netip.AddrPortFrom(b.host.PeerAddr, basePort), Protocol: traffic.TCP, Connections: 2,
	}, 300*time.Millisecond)
	snapshot, err := b.meter.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	counter := snapshot.Slots[0]
	// Bulk TCP over an MTU of 1500 fills its frames, however large the GSO
	// packets were that carried them.
	if mean := float64(counter.Bytes) / float64(counter.Packets); counter.Packets < 1000 || mean < 1450 || mean > 1514 {
		t.Errorf("counted %+v: %.0f bytes per packet, want nearly 1514", counter, mean)
	}
}

func total(values []uint64) (sum uint64) {
	for _, value := range values {
		sum += value
	}
	return sum
}
