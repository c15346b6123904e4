package harness

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

// downloadFrameBytes is the frame of a download as tc counts it, with its UDP, IPv4 and Ethernet
// headers.
const (
	downloadFrameBytes   = 1200
	downloadHeaderBytes  = 14 + 20 + 8
	downloadPayloadBytes = downloadFrameBytes - downloadHeaderBytes
	// vxlanBytes is what a frame in an overlay network takes besides.
	vxlanBytes   = 14 + 20 + 8 + 8
	downloadTick = time.Millisecond
)

// Download is a flood by UDP that a container has asked the neighbour for. It is counted at the
// container's socket.
type Download struct {
	frames atomic.Uint64
	// frameBytes is what each takes at the uplink.
	frameBytes float64
}

// Downloads are the downloads of a bed.
type Downloads struct {
	Bed  *Bed
	list []*Download
}

// Start has the neighbour send bps, as tc counts, to a container, which asks for it, until the test
// ends.
func (ds *Downloads) Start(c *Container, bps float64) {
	b, d := ds.Bed, &Download{frameBytes: downloadFrameBytes}
	b.tb.Helper()
	if c.Mode() == testbed.ModeOverlay {
		d.frameBytes += vxlanBytes
	}
	ds.list = append(ds.list, d)
	var server, client *net.UDPConn
	must.Succeed(b.tb, testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.PeerAddr, 0)))
		return err
	}))
	must.Succeed(b.tb, c.Enter(func() (err error) {
		client, err = net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
		return err
	}))
	_ = client.SetReadBuffer(4 << 20)
	done := make(chan struct{})
	b.tb.Cleanup(func() {
		close(done)
		b.check(errors.Join(server.Close(), client.Close()))
	})
	if _, err := client.Write([]byte("go")); err != nil {
		b.tb.Fatal(err)
	}
	go d.receive(client, done)
	go flood(server, bps, done)
}

// receive counts frames, and asks again once in a while, as a client that acknowledges does.
func (d *Download) receive(client *net.UDPConn, done <-chan struct{}) {
	buffer := make([]byte, 2*downloadFrameBytes)
	for {
		select {
		case <-done:
			return
		default:
		}
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := client.Read(buffer); err == nil && n == downloadPayloadBytes {
			if d.frames.Add(1)%1000 != 0 {
				continue
			}
		}
		_, _ = client.Write([]byte("more"))
	}
}

// flood sends at a rate to the first client.
func flood(server *net.UDPConn, bps float64, done <-chan struct{}) {
	buffer := make([]byte, downloadFrameBytes)
	_, to, err := server.ReadFromUDPAddrPort(buffer)
	if err != nil {
		return
	}
	tick := time.NewTicker(downloadTick)
	defer tick.Stop()
	began, sent := time.Now(), 0.0
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			due := now.Sub(began).Seconds() * bps / 8 / downloadFrameBytes
			sent = max(sent, due-bps/8/downloadFrameBytes/10) // what was missed for long is not made up
			for ; sent < due; sent++ {
				_, _ = server.WriteToUDPAddrPort(buffer[:downloadPayloadBytes], to)
			}
		}
	}
}

// Measure measures downloads as MeasureFor measures what is sent: slot i is the download started i-th.
func (ds *Downloads) Measure(duration time.Duration) Measurement {
	before, began := ds.frames(), time.Now()
	m := ds.Bed.MeasureFor(duration)
	after, took := ds.frames(), time.Since(began)
	m.BPS, m.OtherBPS = [Slots]float64{}, 0
	for i, d := range ds.list {
		m.BPS[i] = float64(after[i]-before[i]) * d.frameBytes * 8 / took.Seconds()
	}
	return m
}

func (ds *Downloads) frames() []uint64 {
	frames := make([]uint64, len(ds.list))
	for i, d := range ds.list {
		frames[i] = d.frames.Load()
	}
	return frames
}
