//go:build netns

package identity

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// bypass makes a packet socket, waits for standard input to end, and prints what options it may set.
func bypass() error {
	packet, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	xdp, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without has no way past, either
		return err
	}
	for _, o := range []struct {
		what string
		err  error
	}{
		{"bypass", unix.SetsockoptInt(packet, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)},
		{"statistics", unix.SetsockoptInt(packet, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)},
		{"longer than a page", unix.SetsockoptString(packet, unix.SOL_SOCKET, unix.SO_RCVBUF, strings.Repeat("\x01", 10000))},
		{"XDP sends", unix.SetsockoptInt(xdp, unix.SOL_XDP, unix.XDP_TX_RING, 64)},
		{"XDP receives", unix.SetsockoptInt(xdp, unix.SOL_XDP, unix.XDP_RX_RING, 64)},
	} {
		if xdp >= 0 || !strings.HasPrefix(o.what, "XDP") {
			fmt.Println(o.what+":", o.err)
		}
	}
	return nil
}

// Sockets of the cgroup are kept from going past the queues, and from nothing else.
func TestForbidBypass(t *testing.T) {
	var bypass Bypass
	b := newBed(t)
	outer := b.cgroup("container")
	inner := b.cgroup("container", "nested")
	try := func(what string, meanwhile func(), refused bool) {
		t.Helper()
		cmd := b.helper("bypass", b.hostNS(), inner, b.targets()[0])
		out, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		in, err := cmd.StdinPipe()
		must.Succeed(t, errors.Join(err, cmd.Start()))
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatalf("%s: no packet socket: %v", what, cmd.Wait())
		}
		meanwhile()
		must.Succeed(t, in.Close())
		for lines.Scan() {
			forbidden := strings.HasPrefix(lines.Text(), "bypass") || strings.HasPrefix(lines.Text(), "XDP sends")
			if got := strings.Contains(lines.Text(), unix.EPERM.Error()); got != (refused && forbidden) {
				t.Errorf("%s: %s", what, lines.Text())
			}
		}
		must.Succeed(t, cmd.Wait())
	}
	try("not attached", func() {}, false)
	try("attached later than the socket was made", func() {
		if err := bypass.Forbid(outer); !errors.Is(err, ErrOlderSockets) {
			t.Errorf("beside an older socket: %v", err)
		}
		if err := bypass.Forbid(outer); !errors.Is(err, ErrOlderSockets) {
			t.Errorf("asked again: %v", err)
		}
	}, true)
	if err := bypass.Forbid(outer); !errors.Is(err, ErrOlderSockets) {
		t.Errorf("when the older sockets are gone: %v", err)
	}
	must.Succeed(t, errors.Join(bypass.Allow(outer), bypass.Allow(outer)))
	try("detached", func() { must.Succeed(t, bypass.Forbid(b.cgroup("other"))) }, false)
	must.Succeed(t, errors.Join(bypass.Forbid(outer), bypass.Forbid(outer)))
	try("attached", func() {}, true)
	if err := bypass.Forbid(outer + "/none"); err == nil {
		t.Error("attached to a cgroup that is not there")
	}
}
