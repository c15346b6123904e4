package kernel

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func TestProxiedPorts(t *testing.T) {
	proc := t.TempDir()
	for pid, process := range map[string]struct{ comm, args string }{
		"10": {"docker-proxy", "/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 80 -container-ip 172.17.0.2 -container-port 8080"},
		"11": {"docker-proxy", "/usr/bin/docker-proxy -proto tcp -host-ip :: -host-port 80 -container-ip 172.17.0.2 -container-port 8080"},
		"16": {"docker-proxy", "/usr/bin/docker-proxy -proto tcp -host-ip fd00::1 -host-port 80 -container-ip 172.17.0.2 -container-port 8080"},
		"12": {"docker-proxy", "/usr/bin/docker-proxy -proto udp -host-ip :: -host-port 53 -container-ip fd00::2 -container-port 53"},
		"13": {"docker-proxy", "/usr/bin/docker-proxy -proto tcp -host-ip :: -host-port many -container-ip 172.17.0.2 -container-port 80"},
		"14": {"sleep", "sleep -host-ip :: -host-port 81 -container-ip 172.17.0.2 -container-port 80"},
		"15": {"docker-proxy", "/usr/bin/docker-proxy -host-ip"},
	} {
		dir := filepath.Join(proc, pid)
		must.Succeed(t, os.Mkdir(dir, 0o755))
		cmdline := strings.ReplaceAll(process.args, " ", "\x00") + "\x00"
		for name, content := range map[string]string{"comm": process.comm + "\n", "cmdline": cmdline} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		}
	}
	want := []ProxiedPort{{Host: netip.MustParseAddrPort("[fd00::1]:80"), Container: netip.MustParseAddrPort("172.17.0.2:8080")}}
	if got := ProxiedPorts(proc); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
