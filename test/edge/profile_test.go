//go:build docker

package edge

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/spec"
)

// testProfile measures what pagesImage is known to be: it serves 12 users at once, four
// of them at the same time, and refuses all others.
func (s *site) testProfile(t *testing.T) {
	before := s.containers(t)
	profiled, said, err := s.profile(t, pagesImage, "--port", "80", "--host-port", "8200", "--users", "4,40", "--duration", "1s", "--memory", "64m")
	t.Logf("weir-edge profile\n%s%s", said, profiled)
	if err != nil {
		t.Fatal(err)
	}
	got, err := spec.Parse([]byte(profiled))
	if err != nil {
		t.Fatal(err)
	}
	// 1 % may fail, and users of a crowd do not come in the same moment.
	if got.MaxUsers < 11 || got.MaxUsers > 14 {
		t.Errorf("maxUsers is %d, want 12", got.MaxUsers)
	}
	if got.Name != "pages" || got.Image != pagesImage || got.StartUpSeconds <= 0 || got.ImageBytes < 1e6 || got.ResponseSeconds != 2 || got.Limits.MemoryBytes != 64<<20 {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(said, " 0.0MB") || strings.Count(said, "\n") < 4 {
		t.Errorf("it measured\n%s", said)
	}
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"127.0.0.1:1/nobody:1"}, "the image is not there"},
		{[]string{pagesImage}, "--port"},
		{[]string{pagesImage, "--port", "81", "--start-timeout", "500ms"}, "no good answer"},
		{[]string{pagesImage, "--port", "80", "--users", "4", "--duration", "200ms", "--response-time", "5ms"}, "cannot serve even a crowd of 1"},
		{[]string{pagesImage, "--port", "80", "--memory", "64"}, "did you mean 64m?"},
		{[]string{"example.test/ends:1", "--port", "80"}, "ended with exit status 1"},
	} {
		out, said, err := s.profile(t, test.args...)
		if err == nil || !strings.Contains(said, test.says) || out != "" {
			t.Errorf("%v: %v, on stdout %q, on stderr %q", test.args, err, out, said)
		}
	}
	s.endProfile(t, syscall.SIGHUP) // as a terminal does that is closed
	if after := s.containers(t); after != before {
		t.Errorf("there were %d containers, and are %d", before, after)
	}
	// What it wrote can be deployed.
	if _, err := s.weirEdge("deploy", file(t, []byte(profiled))); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "pages", 1, 20*time.Second)
	s.must(t, "rm", "pages")
}

// endProfile ends a profile in its middle, by a signal.
func (s *site) endProfile(t *testing.T, sent syscall.Signal) {
	t.Helper()
	// Under nohup the test ignores a hangup, and so would the program: what is handled here has its
	// default there.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, sent)
	defer signal.Stop(handled)
	before := s.containers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := s.Host.Command(ctx, os.Getenv(programVariable), "profile", "--docker", s.engine.Socket(), pagesImage, "--port", "80", "--duration", "1h")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "it has an instance", time.Minute, func() error {
		if now := s.containers(t); now <= before {
			return errNot(fmt.Sprint(now))
		}
		return nil
	})
	_ = syscall.Kill(-cmd.Process.Pid, sent)
	_ = cmd.Wait()
	if ctx.Err() != nil {
		t.Errorf("it goes on after %v", sent)
	}
}

func (s *site) profile(t *testing.T, args ...string) (out, said string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := s.Host.Command(t.Context(), os.Getenv(programVariable), append([]string{"profile", "--docker", s.engine.Socket()}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func (s *site) containers(t *testing.T) int {
	t.Helper()
	listed, err := s.engine.API().ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	return len(listed.Items)
}
