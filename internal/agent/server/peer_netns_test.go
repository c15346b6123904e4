//go:build netns

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/packaging"
	"github.com/weir-project/weir/test/must"
)

// What needs root to test: who may do what through the socket, and what the agent
// needs to let a group use it.

// testGroup is a group that no host has a name for, and someUser a user that is
// nobody in particular.
const (
	testGroup = 54321
	someUser  = 65534
)

// In a process of its own: what asks the agent, as someone else, and what opens
// its socket, with fewer capabilities.
const (
	askEnv    = "WEIR_TEST_ASK"
	listenEnv = "WEIR_TEST_LISTEN"
	crowdEnv  = "WEIR_TEST_CROWD"
)

func TestMain(m *testing.M) {
	var err error
	switch socket := os.Getenv(askEnv); {
	case socket != "":
		err = askForAll(context.Background(), client.Unix(socket))
	case os.Getenv(listenEnv) != "":
		_, err = httpapi.Listen("weir agent", os.Getenv(listenEnv), strconv.Itoa(testGroup))
	case os.Getenv(crowdEnv) != "":
		err = crowd(os.Getenv(crowdEnv))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// askForAll looks, changes a policy, and takes Weir down.
func askForAll(ctx context.Context, client *client.Client) error {
	if _, err := client.Status(ctx); err != nil {
		return err
	}
	if _, err := client.Reset(ctx, "web"); err != nil {
		return err
	}
	return client.Down(ctx)
}

// crowd opens all the connections that it can, asks on half of them and reads nothing,
// until its standard input ends.
func crowd(socket string) error {
	for i := range 800 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: weir\r\n\r\n") // perhaps it is closed by now
		}
	}
	fmt.Println("all are open")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// However many connections a user of the group opens, and reads nothing on them, root is
// answered; and so is another user.
func TestSlowReadersOfTheSocket(t *testing.T) {
	socket, asker, a := openToGroup(t)
	command := exec.Command(asker)
	command.Env = append(os.Environ(), crowdEnv+"="+socket)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someUser, Gid: testGroup}}
	input, err := command.StdinPipe()
	must.Succeed(t, err)
	output, err := command.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, command.Start())
	defer func() {
		input.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the crowd: %v", err)
		}
	}()
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "all are open\n" {
		t.Fatalf("the crowd: %q, %v", line, err)
	}
	if err := askForAll(t.Context(), client.Unix(socket)); err != nil || a.called != "down" {
		t.Errorf("root beside the crowd: %v, the agent was last asked for %q", err, a.called)
	}
	other := exec.Command(asker)
	other.Env = append(os.Environ(), askEnv+"="+socket)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someUser - 1, Gid: testGroup}}
	if said, err := other.CombinedOutput(); err == nil || !strings.Contains(string(said), "not allowed: only root may") {
		t.Errorf("another user of the group beside the crowd: %v, %s", err, said)
	}
}

// openToGroup is an agent's socket that testGroup may use, and a program that others may
// run.
func openToGroup(t *testing.T) (socket, asker string, a *fakeAgent) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-peer") // t.TempDir is closed to others
	must.Succeed(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.Succeed(t, os.Chmod(dir, 0o755))
	// The test's own program, where others may run it.
	program, err := os.ReadFile("/proc/self/exe")
	must.Succeed(t, err)
	asker = filepath.Join(dir, "asker")
	must.Succeed(t, os.WriteFile(asker, program, 0o755))
	socket = filepath.Join(dir, "weir.sock")
	listener, err := httpapi.Listen("weir agent", socket, strconv.Itoa(testGroup))
	must.Succeed(t, err)
	a = &fakeAgent{events: stats.NewEvents(time.Now())}
	s := New(a, slog.New(slog.DiscardHandler)).Socket(access.Admin)
	go func() {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { s.Close() })
	return socket, asker, a
}

func TestOnlyRootTakesDown(t *testing.T) {
	socket, asker, a := openToGroup(t)
	for _, tc := range []struct {
		name     string
		who      syscall.Credential
		says     string // "" if it may do all
		lastCall string
	}{
		{"root", syscall.Credential{}, "", "down"},
		{"a member of the group", syscall.Credential{Uid: someUser, Gid: testGroup}, "not allowed: only root may", "reset web"},
		{"another member", syscall.Credential{Uid: someUser, Gid: someUser, Groups: []uint32{testGroup}}, "not allowed: only root may", "reset web"},
		{"somebody else", syscall.Credential{Uid: someUser, Gid: someUser}, "as a member of the agent's socket_group", ""},
	} {
		a.called = ""
		command := exec.Command(asker)
		command.Env = append(os.Environ(), askEnv+"="+socket)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &tc.who}
		said, err := command.CombinedOutput()
		if (err == nil) != (tc.says == "") || !strings.Contains(string(said), tc.says) {
			t.Errorf("%s: %v, %q", tc.name, err, said)
		}
		if a.called != tc.lastCall {
			t.Errorf("%s: the agent was last asked for %q, want %q", tc.name, a.called, tc.lastCall)
		}
	}
}

// The shipped unit gives the agent what it needs to let a group use the socket.
func TestUnitLetsAGroupIn(t *testing.T) {
	confined, err := packaging.Confined()
	must.Succeed(t, err)
	socket := filepath.Join(t.TempDir(), "weir.sock")
	command := exec.Command(confined[0], append(confined[1:], os.Args[0])...)
	command.Env = append(os.Environ(), listenEnv+"="+socket)
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("with %q: %v, %s", confined, err, said)
	}
	info, err := os.Stat(socket)
	must.Succeed(t, err)
	if owner := info.Sys().(*syscall.Stat_t); owner.Gid != testGroup || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v, group %d", info.Mode(), owner.Gid)
	}
}
