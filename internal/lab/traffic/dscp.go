package traffic

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SetDSCP gives the datagrams of a flow a DSCP, 0 to 63.
func (t *Timed) SetDSCP(flow int, dscp uint8) error {
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if t.options.Targets[flow].Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	if err := unix.SetsockoptInt(t.fds[flow], level, option, int(dscp)<<2); err != nil {
		return fmt.Errorf("set the DSCP of what goes to %s: %w", t.options.Targets[flow], os.NewSyscallError("setsockopt", err))
	}
	return nil
}
