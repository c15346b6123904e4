package httpapi

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "weir")
	path := filepath.Join(dir, "weir.sock")
	open := func() net.Listener {
		t.Helper()
		l, err := Listen("weir agent", path, "")
		if err != nil {
			t.Fatalf("listen: %v", err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("mode %v (%v)", info.Mode(), err)
		}
		return l
	}
	l := open()
	if _, err := Listen("weir agent", path, ""); err == nil || !strings.Contains(err.Error(), "another weir agent listens on "+path) {
		t.Errorf("where one listens: %v", err)
	}
	// The one that listens is still there.
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the socket was taken: %v", err)
	}
	conn.Close()

	// An agent that is killed leaves its socket.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	open().Close()

	// Something that is not a socket is not ours to remove.
	if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("weir agent", path, ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("where a file is: %v", err)
	}
	if data, err := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file became %q (%v)", data, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	// A group's number will do: it need not have a name here.
	l, err = Listen("weir agent", path, strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatalf("for a group by its number: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("for a group: mode %v (%v)", info.Mode(), err)
	}
	l.Close()

	const group = "no-such-group"
	if _, err := Listen("weir agent", path, group); err == nil || !strings.Contains(err.Error(), group) {
		t.Errorf("for a group that is not there: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket stays after an error")
	}
}

// TestFree: only what nobody can listen on any more is removed.
func TestFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := Free(path); err != nil {
		t.Errorf("where nothing is: %v", err)
	}
	log, err := net.ListenPacket("unixgram", path) // such as /dev/log
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := Free(path); err == nil || !strings.Contains(err.Error(), "a program may listen on "+path) {
		t.Errorf("where datagrams are read: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("its socket: %v", err)
	}
}

// TestForRoot: who may not make the socket is told what to do, and nobody else.
func TestForRoot(t *testing.T) {
	denied := &fs.PathError{Op: "mkdir", Path: "/run/weir", Err: fs.ErrPermission}
	if err := forRoot(denied); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "run as root (sudo), or give another --socket") {
		t.Errorf("not allowed: %v", err)
	}
	if err := forRoot(fs.ErrInvalid); err == nil || err.Error() != fs.ErrInvalid.Error() {
		t.Errorf("another error: %v", err)
	}
}
