//go:build docker

package edge

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const sleepyFile = `
name: home
services:
  web:
    image: example.test/versions:1
    ports: [{target: 80, published: 8204, app_protocol: http}]
    x-weir-edge: {minInstances: 0}
`

// TestEngine: a service without users has no instance; its first user waits for as long as one takes to
// start, and half a second. It is timed, so no other test runs beside it, and containers are started before and
// after each user: an engine takes longer for some than for others. In the minute before it sleeps again other
// programs use the engine, too.
func TestEngine(t *testing.T) {
	s := newSite(t)
	logins := filepath.Join(s.Dir, "logins")
	must.Succeed(t, os.Mkdir(logins, 0o700))
	t.Setenv("DOCKER_CONFIG", logins)
	t.Run("an old HAProxy", func(t *testing.T) {
		s.refusesOldHAProxy(t, func(program string, args ...string) *exec.Cmd { return s.Host.Command(t.Context(), program, args...) })
	})
	s.importVersions(t)
	s.start(t)
	path := filepath.Join(t.TempDir(), "compose.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(sleepyFile), 0o600))
	if out := s.must(t, "deploy", "--wait", path); !strings.Contains(out, "home-web starts when a user comes") {
		t.Errorf("it says %q", out)
	}
	s.awaitAsleep(t, 5*time.Second)
	slowest := time.Duration(0)
	start := func() {
		for range 3 {
			slowest = max(slowest, s.startUp(t))
		}
	}
	start()
	for _, user := range []string{"first", "after sleep"} {
		began := time.Now()
		must.Succeed(t, s.get(8204))
		took := time.Since(began)
		start()
		t.Logf("%s: answered after %v; an instance alone takes up to %v", user, took.Round(time.Millisecond), slowest.Round(time.Millisecond))
		if took > slowest+500*time.Millisecond {
			t.Errorf("a user waits %v, and an instance starts in %v\n%s", took, slowest, s.must(t, "events"))
		}
		s.awaitRunning(t, "home-web", 1, 5*time.Second)
		if user == "first" {
			answered := time.Now()
			s.testEngineOfOthers(t, logins)
			s.awaitAsleep(t, max(5*time.Second, time.Until(answered.Add(90*time.Second))))
		}
	}
	t.Logf("weir-edge events\n%s", s.must(t, "events"))
}

func (s *site) awaitAsleep(t *testing.T, patience time.Duration) {
	t.Helper()
	harness.Await(t, "it sleeps", patience, func() error {
		list := slices.DeleteFunc(s.ps(t), func(i edge.Instance) bool { return i.Service != "home-web" })
		if len(list) != 1 || list[0].State != "asleep" || list[0].Reason != "it has no users, and the first one starts an instance" {
			return errNot(fmt.Sprint(list))
		}
		return nil
	})
}

// startUp measures how long a container of the image takes from its start until it answers.
func (s *site) startUp(t *testing.T) time.Duration {
	t.Helper()
	began, api := time.Now(), s.engine.API()
	made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: firstImage}})
	must.Succeed(t, err)
	defer func() {
		_, _ = api.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{Force: true})
	}()
	_, err = api.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{})
	must.Succeed(t, err)
	found, err := api.ContainerInspect(t.Context(), made.ID, client.ContainerInspectOptions{})
	must.Succeed(t, err)
	at := netip.AddrPortFrom(found.Container.NetworkSettings.Networks["bridge"].IPAddress, 80).String()
	for time.Since(began) < 10*time.Second {
		if conn, err := dialFrom(t.Context(), s.Host.NetNSPath(), time.Second, "tcp", at); err == nil {
			conn.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}
