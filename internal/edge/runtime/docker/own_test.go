package docker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
)

// Labels may be an image's, which anybody writes: names have to go with them.
func TestWellNamed(t *testing.T) {
	proxy := map[string]string{runtime.LabelRole: runtime.RoleProxy, runtime.LabelService: "shop"}
	instance := map[string]string{runtime.LabelRole: runtime.RoleInstance, runtime.LabelService: "shop", runtime.LabelInstance: "shop.1"}
	ledger := func(version string) map[string]string {
		return map[string]string{runtime.LabelRole: runtime.RoleLedger, labelVersion: version, labelPromises: "x"}
	}
	for _, test := range []struct {
		name   string
		labels map[string]string
		want   bool
	}{
		{"/edgeproxy-shop", proxy, true},
		{"/edge-shop", proxy, false},
		{"/innocent", proxy, false},
		{"/edge-shop-1", instance, true},
		{"/edge-shop-2", instance, false},
		{"/edgeledger-7", ledger("7"), true},
		{"/innocent", ledger("7"), false},
		{"/edgeledger-18446744073709551615", ledger("18446744073709551615"), false},
		{"/edgeledger-0", ledger("0"), false},
		{"/edgeprofile-abc", map[string]string{runtime.LabelRole: roleTrial}, true},
		{"/innocent", map[string]string{runtime.LabelRole: roleTrial}, false},
		{"/edge-shop", nil, false},
	} {
		if got := wellNamed(container.Summary{Names: []string{test.name}, Labels: test.labels}); got != test.want {
			t.Errorf("%s with %v: got %v", test.name, test.labels, got)
		}
	}
	if odd := unreadable([]container.Summary{{Names: []string{"/edgeledger-7"}, Labels: ledger("7")}}); len(odd) != 1 || !strings.Contains(odd[0], "edgeledger-7") {
		t.Errorf("an unreadable ledger: %q", odd)
	}
	if err := checkImageLabels("a", proxy); err == nil {
		t.Error("an image with our labels was taken")
	}
	if err := checkImageLabels("a", map[string]string{"weir-edge.mode": "tcp", "weir.min": "1mbit"}); err != nil {
		t.Error(err)
	}
}

// A proxy can write into its folder, and must not make weir-edge write elsewhere.
func TestWriteInside(t *testing.T) {
	folder, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	for _, name := range []string{"f", "f.new"} {
		if err := os.Symlink(other, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := writeInside(folder, "f", "text"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a link was followed")
	}
	if text, err := os.ReadFile(filepath.Join(folder, "f")); err != nil || string(text) != "text" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Another weir-edge, with another folder, finds the proxies of the first.
func TestFolderOfAnother(t *testing.T) {
	r, err := New(Options{Socket: "/nonexistent", Dir: "/second"})
	if err != nil {
		t.Fatal(err)
	}
	r.learnFolders([]container.Summary{{
		Labels: map[string]string{runtime.LabelRole: runtime.RoleProxy, runtime.LabelService: "shop"},
		Mounts: []container.MountPoint{{Source: "/first/shop", Destination: proxy.Folder}},
	}})
	if shop, other := r.folder("shop"), r.folder("other"); shop != "/first/shop" || other != "/second/other" {
		t.Errorf("got %s and %s", shop, other)
	}
}

// A port that another program has is said before anything is made.
func TestPortsFree(t *testing.T) {
	// At all addresses: at one, the port may be that of a connection elsewhere that has just ended.
	both, err := net.Listen("tcp", ":0")
	must.Succeed(t, err)
	port := uint16(both.Addr().(*net.TCPAddr).Port)
	both.Close()
	for _, family := range []string{"tcp", "tcp4", "tcp6"} { // the proxy listens over both
		listener, err := net.Listen(family, fmt.Sprint(":", port))
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		must.Succeed(t, err)
		ports := []runtime.Port{{Host: port, Container: 80}}
		if err := portsFree(ports); err == nil || !strings.Contains(err.Error(), fmt.Sprint("port ", port)) {
			t.Errorf("it is taken: %v", err)
		}
		listener.Close()
		if err := portsFree(ports); err != nil {
			t.Error(err)
		}
	}
}

// TestAddressIn: users come over IPv4 where a container has it, else over IPv6.
func TestAddressIn(t *testing.T) {
	four, six := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("2001:db8::2")
	for name, c := range map[string]struct {
		networks map[string]*network.EndpointSettings
		want     netip.Addr
	}{
		"none":            {nil, netip.Addr{}},
		"no address yet":  {map[string]*network.EndpointSettings{"a": {}}, netip.Addr{}},
		"both":            {map[string]*network.EndpointSettings{"a": {IPAddress: four, GlobalIPv6Address: six}}, four},
		"IPv6 alone":      {map[string]*network.EndpointSettings{"a": {GlobalIPv6Address: six}}, six},
		"of two networks": {map[string]*network.EndpointSettings{"b": {IPAddress: four}, "a": {GlobalIPv6Address: six}}, six},
	} {
		if got := addressIn(c.networks); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
