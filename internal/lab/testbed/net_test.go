//go:build netns

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestHostCarriesTraffic(t *testing.T) {
	for _, test := range []struct {
		name       string
		attachment Attachment
		sourceSeen func(h *Host, c *NetContainer) string
	}{
		{"nat", AttachNAT, func(h *Host, _ *NetContainer) string { return h.addresses.host4.Addr().String() }},
		{"nat, bridged uplink", AttachNATBridged, func(h *Host, _ *NetContainer) string { return h.addresses.host4.Addr().String() }},
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
	return dial(t, h.PeerNetNSPath(), c, peer)
}

// dial connects from a container to an address in another namespace.
func dial(t *testing.T, netNSPath string, c *NetContainer, to string) string {
	t.Helper()
	var listener net.Listener
	err := InNetNS(netNSPath, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(to, "5200"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = c.Enter(func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(to, "5200"), 5*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("connect from %s container to %s: %v", c.Mode(), to, err)
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

// TestModes: containers of every mode reach each other and, through the
// uplink, the neighbour, under their own addresses.
func TestModes(t *testing.T) {
	for _, mode := range Modes {
		t.Run(string(mode), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			h, err := NewHost(ctx, HostOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer checkClosed(t, h)
			c, err := h.AddContainerMode(ctx, "one", mode)
			if errors.Is(err, ErrNoIPvlan) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			other, err := h.AddContainerMode(ctx, "other", mode)
			if err != nil {
				t.Fatal(err)
			}
			before := sentPackets(t, h, uplinkName)
			for peer, own := range map[string]string{c.PeerAddr.String(): c.Addr.String(), c.PeerAddr6.String(): c.Addr6.String()} {
				if seen := dialThrough(t, h, c, peer); seen != own && mode != ModeBridge { // NAT
					t.Errorf("the neighbour sees %s, want %s", seen, own)
				}
			}
			if sent := sentPackets(t, h, uplinkName) - before; sent < 6 { // two connections
				t.Errorf("the uplink sent %d packets: traffic goes elsewhere", sent)
			}
			if mode != ModeMacvlanPrivate && mode != ModeHost {
				dial(t, other.NetNSPath(), c, other.Addr.String())
			}
			hasCgroup := mode != ModeBridge && mode != ModeOverlay
			if c.Addr == other.Addr != (mode == ModeHost) || (c.CgroupPath() != "") != hasCgroup {
				t.Errorf("got %+v and %+v", c, other)
			}
		})
	}
}

// sentPackets is what an interface of the host has sent.
func sentPackets(t *testing.T, h *Host, name string) (packets uint64) {
	t.Helper()
	err := InNetNS(h.NetNSPath(), func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			packets = link.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packets
}

// TestAttach: a container reaches the neighbour through each of its networks.
func TestAttach(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h, err := NewHost(ctx, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer checkClosed(t, h)
	c, err := h.AddContainerMode(ctx, "one", ModeOverlay)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{ModeBridge, ModeMacvlan} {
		second, err := h.Attach(ctx, c, mode)
		if err != nil {
			t.Fatal(err)
		}
		if second.NetNSPath() != c.NetNSPath() || second.Interface() == c.Interface() {
			t.Errorf("attached %+v as %+v", c, second)
		}
		dialThrough(t, h, second, second.PeerAddr.String())
		dialThrough(t, h, second, second.PeerAddr6.String())
		if err := runIP(ctx, c.namespace(), "link del "+second.Interface()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Attach(ctx, c, ModeHost); err == nil {
		t.Error("attached a container to the host's network and another")
	}
}

// TestEnterMovesBack: the process is where it was after Enter, also when what
// it did failed, and a socket made inside stays the container's.
func TestEnterMovesBack(t *testing.T) {
	ctx := context.Background()
	h, err := NewHost(ctx, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer checkClosed(t, h)
	c, err := h.AddContainerMode(ctx, "one", ModeHost)
	if err != nil {
		t.Fatal(err)
	}
	nested, err := h.Nested(c, "nested")
	if err != nil {
		t.Fatal(err)
	}
	home, err := ownCgroup()
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("failed")
	for _, inside := range []*NetContainer{c, nested} {
		err := inside.Enter(func() error {
			if now, err := ownCgroup(); err != nil || now != inside.CgroupPath() {
				t.Errorf("inside %s: in %s, %v", inside.CgroupPath(), now, err)
			}
			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("Enter = %v, want the error of what it called", err)
		}
		if now, err := ownCgroup(); err != nil || now != home {
			t.Errorf("after Enter in %s, %v; before it in %s", now, err, home)
		}
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
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", sleeper.Process.Pid))
		if err != nil || string(name) == "sleep\n" { // nsenter enters, then executes
			break
		}
	}
	if err := h.Close(); err == nil || !strings.Contains(err.Error(), "still used by processes") {
		t.Errorf("Close with a process inside = %v, want it named", err)
	}
	checkClosed(t, h)
}
