package traffic

import (
	"net/netip"
	"testing"
	"time"
)

func here(fn func() error) error { return fn() }

// TestDownload: what a server sends is counted as the client's application gets it, in all and in bins.
func TestDownload(t *testing.T) {
	for _, protocol := range []Protocol{TCP, UDP} {
		t.Run(string(protocol), func(t *testing.T) {
			before := openFiles(t)
			options := DownloadOptions{
				SenderOptions: SenderOptions{
					Target: netip.MustParseAddrPort("127.0.0.1:0"), Protocol: protocol, Connections: 2, RateBPS: 20e6,
				},
				InServer: here, InClient: here, BinWidth: time.Millisecond, Bins: 60_000,
			}
			sender, download, err := NewDownload(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			download.StartSeries(MonotonicNS())
			if bytes, _ := download.Received(); bytes > 0 {
				t.Errorf("%d bytes before the start", bytes)
			}
			sender.Start(MonotonicNS())
			const enough = 500_000
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				if bytes, _ := download.Received(); bytes > enough {
					break
				}
				if time.Since(began) > 30*time.Second {
					t.Fatalf("%d bytes within 30 s", download.bytes.Load())
				}
			}
			sender.Stop()
			if err := download.Close(); err != nil {
				t.Error(err)
			}
			bytes, datagrams := download.Received()
			if sent := sender.SentBytes(); bytes > sent {
				t.Errorf("received %d of %d bytes", bytes, sent)
			}
			if protocol == UDP && bytes != datagrams*DefaultPayloadBytes {
				t.Errorf("%d datagrams of %d bytes in all", datagrams, bytes)
			}
			var sum uint64
			for _, one := range download.Series() {
				sum += one
			}
			if sum != bytes {
				t.Errorf("%d bytes in the series, %d in all", sum, bytes)
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d files open before, %d after", before, after)
			}
		})
	}
}

func TestDownloadFromNowhere(t *testing.T) {
	options := DownloadOptions{
		SenderOptions: SenderOptions{Target: netip.MustParseAddrPort("198.18.255.254:0"), Protocol: TCP},
		InServer:      here, InClient: here,
	}
	for _, protocol := range []Protocol{TCP, UDP} {
		options.Protocol = protocol
		if _, _, err := NewDownload(t.Context(), options); err == nil {
			t.Errorf("%s: a server with an address that is not this machine's", protocol)
		}
	}
}
