package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// Docker waits for ever for a command in a container that ended before it did.
func TestOutlast(t *testing.T) {
	const (
		socketEnv = "WEIR_TEST_OUTLAST"
		more      = 300 * time.Millisecond // what a program that asked may have to do
	)
	if socket := os.Getenv(socketEnv); socket != "" { // in a process of its own
		must.Succeed(t, client.Unix(socket).Down(t.Context()))
		time.Sleep(more)
		fmt.Println(time.Now().UnixNano()) // its last words
		return
	}
	socket := filepath.Join(t.TempDir(), "weir.sock")
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	agent := &fakeAgent{events: stats.NewEvents(time.Now())}
	api := New(agent, slog.New(slog.DiscardHandler))
	server := api.Socket(access.Admin)
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	began := time.Now()
	api.Outlast()
	if waited := time.Since(began); waited > outlastAtMost/2 {
		t.Errorf("nobody took it down, and it stays %v", waited)
	}
	var said bytes.Buffer
	asker := exec.Command(os.Args[0], "-test.run=^TestOutlast$")
	asker.Env = append(os.Environ(), socketEnv+"="+socket, "GORACE=atexit_sleep_ms=0") // the race detector's second
	asker.Stdout, asker.Stderr = &said, &said
	must.Succeed(t, asker.Start())
	fd, err := unix.PidfdOpen(asker.Process.Pid, 0)
	must.Succeed(t, err)
	defer unix.Close(fd)
	for deadline := time.Now().Add(time.Minute); api.takenDownBy.Load() == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	api.Outlast()
	outlasted := time.Now()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 1 || err != nil { // readable is: it has ended
		t.Errorf("the agent ends before the program that took it down: %v", err)
	}
	var last int64
	if err := asker.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	} else if _, err := fmt.Sscan(said.String(), &last); err != nil {
		t.Errorf("%v: %s", err, said.String())
	} else if after := outlasted.Sub(time.Unix(0, last)); after < endSeen {
		t.Errorf("the agent ends %v after the program that took it down, not %v", after, endSeen)
	}
	// One that goes on, which is this one.
	must.Succeed(t, client.Unix(socket).Down(t.Context()))
	began = time.Now()
	api.Outlast()
	if waited := time.Since(began); waited < outlastAtMost-more || waited > 10*outlastAtMost {
		t.Errorf("a program that goes on is waited for for %v", waited)
	}
}
