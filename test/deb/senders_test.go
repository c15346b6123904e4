//go:build docker || release

package deb

import (
	"fmt"
	"net/netip"
)

const (
	// tolerance is for shares of TCP through an engine, on a busy machine.
	tolerance = 0.05
	rateBPS   = 20e6
)

// names are those of two containers that send.
var names = []string{"heavy", "light"}

// sending is a container's command that sends some 50 Mbit/s, if it can: more than it
// gets, and little enough for a small machine while nothing holds it back.
func sending(target netip.AddrPort) []string {
	return []string{"/bin/busybox", "sh", "-c", fmt.Sprintf(
		"while :; do while /bin/busybox dd if=/dev/zero bs=32k count=2 2>/dev/null && /bin/busybox usleep 8000; do :; done |"+
			" /bin/busybox nc %s %d >/dev/null; /bin/busybox sleep 1; done", target.Addr(), target.Port())}
}
