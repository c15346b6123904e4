//go:build netns

package testbed

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestHostCarriesTraffic(t *testing.T) {
	for _, test := range []struct {
		name       string
		attachment Attachment
		sourceSeen func(h *Host, c *NetContainer) string
	}{
		{"nat", AttachNAT, func(h *Host, _ *NetContainer) string { return h.addresses.host4.Addr().String() }},
		{"routed", AttachRouted, func(_ *Host, c *NetContainer) string { return c.Addr.String() }},
		{"bridged", AttachBridged, func(_ *Host, c *NetContainer) string { return c.Addr.String() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			h, err := NewHost(ctx, HostOptions{Attachment: test.attachment})
			if err != nil {
				t.Fatal(err)
			}
			defer checkClosed(t, h)
			c, err := h.AddContainer(ctx, "one")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.AddContainer(ctx, "two"); err != nil {
				t.Fatal(err)
			}
			if seen := dialThrough(t, h, c, h.PeerAddr.String()); seen != test.sourceSeen(h, c) {
				t.Errorf("the neighbour sees %s, want %s", seen, test.sourceSeen(h, c))
			}
			dialThrough(t, h, c, h.PeerAddr6.String())
		})
	}
}

// dialThrough connects from a container to its neighbour and returns the
// address the neighbour sees.
func dialThrough(t *testing.T, h *Host, c *NetContainer, peer string) string {
	t.Helper()
	var listener net.Listener
	err := InNetNS(h.PeerNetNSPath(), func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(peer, "5200"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = InNetNS(c.NetNSPath(), func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(peer, "5200"), 5*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("connect to the neighbour: %v", err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.RemoteAddr().(*net.TCPAddr).IP.String()
}

func checkClosed(t *testing.T, h *Host) {
	t.Helper()
	for range 2 {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	leaked, err := h.Leaked()
	if err != nil || len(leaked) > 0 {
		t.Errorf("left behind: %v, %v", leaked, err)
	}
}

func TestCloseAfterPartialFailure(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		h, err := planHost(HostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), after)
		if err := h.build(ctx); err != nil {
			t.Logf("interrupted after %v: %v", after, err)
		}
		cancel()
		checkClosed(t, h)
	}
}

func TestCloseReportsProcesses(t *testing.T) {
	ctx := context.Background()
	h, err := NewHost(ctx, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sleeper := h.Command(ctx, "sleep", "30")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	time.Sleep(200 * time.Millisecond) // nsenter enters, then executes
	if err := h.Close(); err == nil || !strings.Contains(err.Error(), "still used by processes") {
		t.Errorf("Close with a process inside = %v, want it named", err)
	}
	checkClosed(t, h)
}
