package response

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// TestSenders: root is weir-edge's proxy in a proxy's container only.
func TestSenders(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		must.Succeed(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	process := func(pid, cgroup string) { write(pid+"/cgroup", cgroup) }
	oldProxy, old := strings.Repeat("ab", 32), strings.Repeat("cd", 32) // cgroup v1
	write("self/mountinfo", "26 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	process("10", "0::/system.slice/docker-1.scope\n")
	process("11", "0::/system.slice/docker-1.scope/inner\n")
	process("20", "0::/system.slice/docker-11.scope\n")
	process("30", "0::/user.slice\n")
	process("40", "0::/\n1:name=systemd:/docker/"+oldProxy+"\n")
	process("41", "0::/\n1:name=systemd:/docker/"+old+"\n")
	process("42", "0::/\n1:name=systemd:/docker/"+old+"/"+oldProxy+"\n")
	var listErr error
	s := senders{procDir: dir, proxies: func(context.Context) ([]Proxy, error) {
		return []Proxy{{CgroupPath: "/sys/fs/cgroup/system.slice/docker-1.scope"}, {ID: oldProxy}, {ID: "static:1"}}, listErr
	}}
	for _, c := range []struct {
		what string
		from unix.Ucred
		want bool
	}{
		{"a proxy", unix.Ucred{Pid: 10}, true},
		{"a proxy, by its verdict", unix.Ucred{Pid: 10}, true},
		{"below a proxy's cgroup", unix.Ucred{Pid: 11}, true},
		{"not root", unix.Ucred{Pid: 10, Uid: 1000}, false},
		{"another container", unix.Ucred{Pid: 20}, false},
		{"no container", unix.Ucred{Pid: 30}, false},
		{"a proxy, cgroup v1", unix.Ucred{Pid: 40}, true},
		{"another container, cgroup v1", unix.Ucred{Pid: 41}, false},
		{"another container with a cgroup of the proxy's name below its own", unix.Ucred{Pid: 42}, false},
		{"it has ended", unix.Ucred{Pid: 50}, false},
		{"of another PID namespace", unix.Ucred{}, false},
	} {
		if got := s.isProxy(t.Context(), c.from); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
	write("30/comm", "noise\n")
	for range 3 {
		s.isProxy(t.Context(), unix.Ucred{Pid: 30})
	}
	// Of ten lines of strangers four are of process 30.
	if err := s.flood(20, "x"); err == nil || err.Error() != `process 30 ("noise") floods the socket @x: end it` {
		t.Errorf("strangers have half of all lines: %v", err)
	}
	if err := s.flood(21, "x"); err != nil {
		t.Errorf("strangers have fewer lines: %v", err)
	}
	process("50", "0::/system.slice/docker-1.scope\n")
	if s.forget(); !s.isProxy(t.Context(), unix.Ucred{Pid: 50}) {
		t.Error("the verdict of a PID outlasts its process")
	}
	listErr = errors.New("stopping")
	if s.forget(); s.isProxy(t.Context(), unix.Ucred{Pid: 50}) {
		t.Error("a proxy, though the agent does not say which there are")
	}
}

// TestSocketTaken: the log says which process has the socket, and the agent takes it over.
func TestSocketTaken(t *testing.T) {
	var log lockedBuffer
	c := New(nil, slog.New(slog.NewTextHandler(&log, nil)))
	c.name, c.retry = fmt.Sprint("weir-test-", os.Getpid()), time.Millisecond
	taken, err := c.listen()
	must.Succeed(t, err)
	defer taken.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	who := fmt.Sprintf("process %d", os.Getpid())
	await(t, "the log", func() bool { return strings.Contains(log.String(), who) })
	await(t, "the state", func() bool {
		_, err := c.Services()
		return err != nil && strings.Contains(err.Error(), who)
	})
	must.Succeed(t, taken.Close())
	address := "@" + c.name + strings.Repeat("\x00", len(unix.RawSockaddrUnix{}.Path)-len(c.name)-1)
	await(t, "the agent to listen", func() bool { // one that listens here meanwhile would be in its way
		conn, err := net.Dial("unixgram", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	await(t, "the state to be well", func() bool {
		_, err := c.Services()
		return err == nil
	})
	stop()
	select {
	case <-ended:
	case <-time.After(atMost):
		t.Error("it does not end")
	}
}

// atMost is how long a test waits for what must happen, however slow the machine is.
const atMost = 30 * time.Second

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(atMost); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for ", what)
		}
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
