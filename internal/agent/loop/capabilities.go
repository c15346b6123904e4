package loop

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// requireCapabilities returns an error that names the missing privileges.
func requireCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("ask for the process's capabilities: %w", err)
	}
	has := func(capability int) bool {
		return data[capability/32].Effective&(1<<(capability%32)) != 0
	}
	var missing []string
	for _, c := range []struct {
		number int
		name   string
	}{
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN (queueing of the uplink)"},
		// CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON (bpf_capable of
		// include/linux/capability.h), which older container engines cannot grant.
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN (network namespaces of containers, and programs that tell them apart)"},
	} {
		if !has(c.number) {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("not allowed to control the network: run as root (sudo), or add " + strings.Join(missing, ", "))
}
