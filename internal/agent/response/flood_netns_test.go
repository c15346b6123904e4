//go:build netns

package response

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// floodVariable makes this program a flooder: "UID SOCKET".
const floodVariable = "WEIR_TEST_FLOOD"

// TestFlood: lines of proxies count while another process writes as fast as it can: of another user,
// which the kernel drops, or of root, which is named.
func TestFlood(t *testing.T) {
	if to := os.Getenv(floodVariable); to != "" {
		flood(t, to)
		return
	}
	for name, user := range map[string]int{"another user": 65534, "root": 0} {
		t.Run(name, func(t *testing.T) { testFlood(t, user) })
	}
}

func testFlood(t *testing.T, user int) {
	const service, requests = "shop", 100
	dir := t.TempDir() // this process is in the container of a proxy
	for path, text := range map[string]string{
		"self/mountinfo":                   "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		fmt.Sprint(os.Getpid(), "/cgroup"): "0::/proxy\n",
	} {
		must.Succeed(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	c := New(func(context.Context) ([]Proxy, error) { return []Proxy{{CgroupPath: "/sys/fs/cgroup/proxy"}}, nil }, slog.New(slog.NewTextHandler(t.Output(), nil)))
	c.name, c.senders.procDir = fmt.Sprint("weir-flood-", os.Getpid(), "-", user), dir
	go c.Run(t.Context())
	proxy, err := connect(t, c.name).SyscallConn()
	must.Succeed(t, err)

	flooder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFlood$")
	flooder.Env = append(os.Environ(), fmt.Sprint(floodVariable, "=", user, " ", c.name))
	must.Succeed(t, flooder.Start())
	defer func() {
		_ = flooder.Process.Kill()
		_ = flooder.Wait()
	}()
	time.Sleep(500 * time.Millisecond)
	for range requests {
		must.Succeed(t, proxy.Write(func(fd uintptr) (done bool) { // as HAProxy, which does not wait
			_, _ = unix.Write(int(fd), []byte(service+" edge-shop-1 192.0.2.1 4000 198.51.100.1 80 0 1 2 30 50 - --\n"))
			return true
		}))
		time.Sleep(10 * time.Millisecond)
	}
	list, err := c.Services()
	counted := 0
	for _, s := range list {
		if s.Service == service && s.Instance == "" {
			counted = s.Requests
		}
	}
	t.Logf("%d of %d requests count; %v", counted, requests, err)
	if user != 0 && (counted < requests*9/10 || err != nil) {
		t.Errorf("%d of %d requests count; %v", counted, requests, err)
	}
	if user != 0 {
		return
	}
	if named := fmt.Sprint("process ", flooder.Process.Pid); err == nil || !strings.Contains(err.Error(), named) {
		t.Errorf("%s is not named: %v", named, err)
	}
	must.Succeed(t, flooder.Process.Kill())
	await(t, "the flood to be forgotten", func() bool {
		_, err := c.Services()
		return err == nil
	})
}

// connect returns a socket that writes to another one as soon as that is there.
func connect(t *testing.T, name string) (conn *net.UnixConn) {
	address := &net.UnixAddr{Net: "unixgram", Name: "@" + name + strings.Repeat("\x00", len(unix.RawSockaddrUnix{}.Path)-len(name)-1)}
	await(t, "the socket", func() (is bool) {
		var err error
		conn, err = net.DialUnix("unixgram", nil, address)
		return err == nil
	})
	return conn
}

// flood writes to a socket as a user until it is killed.
func flood(t *testing.T, to string) {
	var user int
	var name string
	_, err := fmt.Sscan(to, &user, &name)
	must.Succeed(t, err)
	must.Succeed(t, syscall.Setresuid(user, user, user))
	for conn := connect(t, name); ; {
		_, _ = conn.Write([]byte("x"))
	}
}
