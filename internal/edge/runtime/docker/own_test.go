package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
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

// TestReplace: a proxy can write into its folder, and does not make weir-edge write elsewhere. A write
// that fails leaves what was there, and several at once succeed.
func TestReplace(t *testing.T) {
	folder, other := filepath.Join(t.TempDir(), "proxy"), filepath.Join(t.TempDir(), "other")
	must.Succeed(t, os.Mkdir(folder, 0o700))
	must.Succeed(t, os.Symlink(other, filepath.Join(folder, "f")))
	var writers sync.WaitGroup
	for _, text := range []string{"text", "text", "other text"} {
		writers.Go(func() {
			for range 20 {
				if err := replace(folder, "f", []byte(text), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	must.Succeed(t, replace(folder, "f", []byte("text"), nil))
	if _, err := os.Stat(other); err == nil {
		t.Error("a link was followed")
	}
	if err := replace(folder, "f", []byte("more"), func(*os.File) error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("a file that cannot be prepared: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "f")); err != nil || string(text) != "text" {
		t.Errorf("got %q, %v", text, err)
	}
	must.Succeed(t, os.Mkdir(filepath.Join(folder, "folder"), 0o700))
	if err := replace(folder, "folder", nil, nil); err == nil {
		t.Error("a folder was replaced")
	}
	killed := filepath.Join(folder, "f.new-KILLED")
	must.Succeed(t, os.WriteFile(killed, nil, 0o600))
	must.Succeed(t, replace(folder, "f", []byte("text"), nil))
	if _, err := os.Stat(killed); err != nil {
		t.Errorf("a file that is written now: %v", err)
	}
	before := time.Now().Add(-2 * time.Minute)
	must.Succeed(t, os.Chtimes(killed, before, before))
	must.Succeed(t, replace(folder, "f", []byte("text"), nil))
	if left, _ := os.ReadDir(folder); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

// TestLockFolder: who waits for another weir-edge ends with its context, and gets the lock after that one.
func TestLockFolder(t *testing.T) {
	folder := t.TempDir()
	unlock, err := lockFolder(t.Context(), folder)
	must.Succeed(t, err)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lockFolder(short, folder); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, unlock)
	unlock, err = lockFolder(t.Context(), folder)
	must.Succeed(t, err)
	unlock()
}

// TestSaveFiles: a file that a power cut has left empty is written again, or, if its content is not
// known any more, missed.
func TestSaveFiles(t *testing.T) {
	const content = "open sesame"
	folder := filepath.Join(t.TempDir(), "home-db.files")
	file := spec.File{Target: "/run/secrets/a", Mode: 0o440, Digest: spec.Digest([]byte(content)), UID: fmt.Sprint(os.Getuid()), GID: fmt.Sprint(os.Getgid())}
	s := &runtime.Service{Name: "home-db", Container: &spec.Container{Files: []spec.File{file}}, Files: map[string][]byte{file.Digest: []byte(content)}}
	path := filepath.Join(folder, runtime.FileName(s.Name, &file))
	without := *s
	without.Files = nil
	if err := saveFiles(folder, &without); err == nil {
		t.Error("there was no file, and it is not missed")
	}
	for range 2 {
		must.Succeed(t, saveFiles(folder, s))
		must.Succeed(t, saveFiles(folder, &without))
		if text, err := os.ReadFile(path); err != nil || string(text) != content {
			t.Errorf("got %q, %v", text, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o440 {
			t.Errorf("got %v, %v", info, err)
		}
		must.Succeed(t, os.Truncate(path, 0))
		if err := saveFiles(folder, &without); err == nil || !strings.Contains(err.Error(), "is lost: deploy the service again") {
			t.Errorf("an empty file: %v", err)
		}
	}
	s.Container.Files[0].UID = "me"
	if err := saveFiles(folder, s); err == nil || !strings.Contains(err.Error(), "no number") {
		t.Errorf("no user: %v", err)
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
	port := must.FreePort(t)
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
