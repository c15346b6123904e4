//go:build docker

package edge

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
)

// refused deploys what cannot be and looks for words in what is said.
func (s *site) refused(t *testing.T, document map[string]any, words ...string) {
	t.Helper()
	err := s.deploy(t, document)
	if err == nil {
		t.Errorf("%v was deployed", document)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v: %q is not in: %v", document, word, err)
		}
	}
}

func (s *site) testBadInput(t *testing.T) {
	harness.Await(t, "what was removed before has ended", 20*time.Second, func() error {
		if list := s.ps(t); len(list) > 0 {
			return fmt.Errorf("there is %+v", list)
		}
		return nil
	})
	good := func() map[string]any { return specification("bad", pagesImage, 8090, 10, nil) }
	unknown := good()
	unknown["replicas"] = 3
	s.refused(t, unknown, "replicas")
	s.refused(t, specification("bad", "127.0.0.1:1/nobody:1", 8090, 10, nil), "127.0.0.1:1/nobody:1", "the image is not there", "push")
	s.refused(t, specification("bad", pagesImage, 8090, 10, map[string]string{"weir-edge.mode": "smtp"}), "weir-edge.mode", "http or tcp")
	s.refused(t, specification("bad", pagesImage, 8090, 10, map[string]string{"weir-edge.health": "/a b\n server x"}), "weir-edge.health")
	s.refused(t, specification("bad", pagesImage, 8090, 10, map[string]string{"weir.min": "10MB/s"}), "weir.min", "bytes")
	if _, err := s.weirEdge("deploy", filepath.Join(t.TempDir(), "nothing.json")); err == nil || !strings.Contains(err.Error(), "nothing.json") {
		t.Errorf("no file: %v", err)
	}
	s.refused(t, map[string]any{"imageName": pagesImage, "port_host": "eighty"}, "port_host")
	if list := s.ps(t); len(list) > 0 {
		t.Errorf("there is %+v", list)
	}
}

// testWaiting: who deploys what has to be got from a registry is told so at once. (That it fails
// in the end, testBadInput sees.)
func (s *site) testWaiting(t *testing.T) {
	var silent net.Listener
	err := testbed.InNetNS(s.Host.NetNSPath(), func() (err error) {
		silent, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	defer close(ended)
	defer silent.Close()
	go func() { // takes connections and says nothing
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			go func() {
				<-ended
				conn.Close()
			}()
		}
	}()
	text, err := json.Marshal(specification("waits", silent.Addr().String()+"/nobody:1", 8090, 10, nil))
	if err != nil {
		t.Fatal(err)
	}
	said := &logBuffer{}
	cmd := exec.CommandContext(t.Context(), os.Getenv(programVariable), "deploy", file(t, text), "--socket", s.socket())
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	harness.Await(t, "it says what it waits for", 10*time.Second, func() error {
		if !strings.Contains(said.String(), "pulling the image "+silent.Addr().String()+"/nobody:1") {
			return errNot(said.String())
		}
		return nil
	})
}

// testBadImages: one that ends at once, and one for another processor.
func (s *site) testBadImages(t *testing.T) {
	if err := s.engine.ImportService(t.Context(), "example.test/ends:1", nil, []string{"/bin/busybox", "false"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.deploy(t, specification("ends", "example.test/ends:1", 8091, 10, nil)); err != nil {
		t.Fatal(err)
	}
	// It is started again at once for a few times, which its engine does. Then weir-edge ends it, and starts
	// no other one on this node for 10 s.
	harness.Await(t, "weir-edge ends it and says why", 20*time.Second, func() error {
		out := s.must(t, "events")
		if !strings.Contains(out, "ended with exit status 1, after 3 restarts within a minute; none is started there for 10 s") {
			return errNot(out)
		}
		return nil
	})
	until := time.Now().Add(8 * time.Second) // before it has the command, the engine may start it once more
	time.Sleep(time.Until(until))
	made, starts := s.starts(t, "edge-ends-", began, until)
	pause := until.Sub(began) - starts[len(starts)-1]
	t.Logf("%d containers were started after %v; since then %v", made, starts, pause)
	if made != 1 || len(starts) < 2 || len(starts) > 6 || pause < 5*time.Second {
		t.Errorf("it is started without a pause\n%s", s.must(t, "events"))
	}
	t.Logf("explain ends\n%s", s.must(t, "explain", "ends"))
	s.must(t, "rm", "ends")

	if err := s.engine.ImportService(t.Context(), "example.test/nothing:1", nil, []string{"/no/such/program"}); err != nil {
		t.Fatal(err)
	}
	if err := s.deploy(t, specification("nothing", "example.test/nothing:1", 8092, 10, nil)); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "weir-edge says why", 20*time.Second, func() error {
		out := s.must(t, "explain", "nothing")
		if !strings.Contains(out, "/no/such/program") {
			return errNot(out)
		}
		return nil
	})
	s.must(t, "rm", "nothing")

	foreign := "arm64"
	if runtime.GOARCH == foreign {
		foreign = "amd64"
	}
	s.importForeign(t, "example.test/foreign:1", foreign)
	s.refused(t, specification("foreign", "example.test/foreign:1", 8093, 10, nil), "another architecture", foreign)
}

// starts returns how many containers of a name with a prefix the engine made between two times, and when
// it started them.
func (s *site) starts(t *testing.T, prefix string, since, until time.Time) (made int, starts []time.Duration) {
	t.Helper()
	seen := s.engine.API().Events(t.Context(), client.EventsListOptions{
		Since: fmt.Sprint(since.Unix()), Until: fmt.Sprint(until.Unix()), Filters: make(client.Filters).Add("type", "container"),
	})
	for {
		select {
		case e := <-seen.Messages:
			switch {
			case !strings.HasPrefix(e.Actor.Attributes["name"], prefix):
			case e.Action == events.ActionCreate:
				made++
			case e.Action == events.ActionStart:
				starts = append(starts, time.Unix(0, e.TimeNano).Sub(since))
			}
		case err := <-seen.Err:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return made, starts
		}
	}
}

// importForeign makes an image with nothing in it for another processor.
func (s *site) importForeign(t *testing.T, image, architecture string) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	loaded, _, err := proxy.ArchiveOf(image, architecture, archive.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	progress, err := s.engine.API().ImageLoad(t.Context(), bytes.NewReader(loaded))
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	if _, err := io.Copy(io.Discard, progress); err != nil {
		t.Fatal(err)
	}
}

// testTwoAtOnce: two weir-edge never promise more than there is, and all of it. 100 Mbit/s
// less the reserve of 5 % has room for three minimums of 30 Mbit/s.
func (s *site) testTwoAtOnce(t *testing.T) {
	socket, dir := filepath.Join(s.Dir, "edge2.sock"), filepath.Join(s.Dir, "edge2")
	second := s.launch(t, "--socket", socket, "--state-dir", dir)
	defer second.kill()
	harness.Await(t, "the second answers", 20*time.Second, func() error {
		_, err := server.NewClient(socket).Nodes(t.Context())
		return err
	})
	const services = 5
	failed := make(chan error, services)
	for i := range services {
		go func() {
			name := fmt.Sprintf("two%d", i)
			failed <- s.deploy(t, specification(name, pagesImage, 8100+i, 10, map[string]string{"weir.min": "30mbit"}))
		}()
	}
	for range services {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	promised := func() (sum uint64) {
		for _, i := range s.ps(t) {
			sum += i.MinBPS
		}
		if sum > 90e6 {
			t.Fatalf("%d bit/s are promised:\n%s", sum, s.must(t, "ps"))
		}
		return sum
	}
	harness.Await(t, "90 Mbit/s are promised", time.Minute, func() error {
		if promised() < 90e6 {
			return errNot(s.must(t, "ps") + s.must(t, "events"))
		}
		return nil
	})
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		promised()
	}
	t.Logf("weir-edge ps\n%s", s.must(t, "ps"))
	// What is promised is in force: the agent has admitted these proxies, and no others.
	harness.Await(t, "the agent guarantees what is promised", time.Minute, func() error {
		out, guaranteed := s.MustWeir("ps"), 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "edgeproxy-two") && strings.Contains(line, "30mbit") && !strings.Contains(line, "rejected") {
				guaranteed++
			}
		}
		if guaranteed != 3 {
			return errNot(out)
		}
		return nil
	})
	for i := range services {
		s.must(t, "rm", fmt.Sprintf("two%d", i))
	}
	harness.Await(t, "nothing is promised", 20*time.Second, func() error {
		if list := s.ps(t); len(list) > 0 {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
}

// testRefused: a minimum that the node cannot give is not begun, and why is said.
func (s *site) testRefused(t *testing.T) {
	if err := s.deploy(t, specification("greedy", pagesImage, 8094, 10, map[string]string{"weir.min": "96mbit"})); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "weir-edge says why", 10*time.Second, func() error {
		out := s.must(t, "explain", "greedy")
		if !strings.Contains(out, "96mbit") {
			return errNot(out)
		}
		return nil
	})
	t.Logf("explain greedy\n%s", s.must(t, "explain", "greedy"))
	for _, i := range s.ps(t) {
		if i.Service == "greedy" && (i.Instance != "" || !strings.Contains(i.Reason, "96mbit")) {
			t.Errorf("there is %+v", i)
		}
	}
	s.must(t, "rm", "greedy")
}

func (s *site) testDryRun(t *testing.T) {
	if err := s.deploy(t, specification("real", pagesImage, 8095, 10, nil)); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "real", 1, 10*time.Second)
	s.manager.kill()
	if err := s.engine.Remove(t.Context(), "edge-real-1"); err != nil {
		t.Fatal(err)
	}
	s.start(t, "--dry-run")
	harness.Await(t, "it says what it would do", 30*time.Second, func() error {
		out := s.must(t, "events")
		if !strings.Contains(out, "(dry run)") {
			return errNot(out)
		}
		return nil
	})
	if err := s.deploy(t, specification("dry", pagesImage, 8096, 10, nil)); err == nil || !strings.Contains(err.Error(), "--dry-run") {
		t.Errorf("deploy: %v", err)
	}
	if _, err := s.engine.Container(t.Context(), "edge-real-1"); err == nil {
		t.Error("an instance was started")
	}
	s.manager.kill()
	s.start(t)
	s.awaitRunning(t, "real", 1, 40*time.Second)
	s.must(t, "rm", "real")
}

// testFullDisk: measurements are not kept, and services run all the same.
func (s *site) testFullDisk(t *testing.T) {
	s.manager.kill()
	defer func() {
		s.manager.kill()
		s.start(t)
	}()
	m := s.start(t, "--state-dir", s.small)
	empty := s.fillDisk(t)
	err := s.deploy(t, specification("full", pagesImage, 8097, 10, nil))
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("deploy on a full disk: %v", err)
	}
	empty()
	if err := s.deploy(t, specification("full", pagesImage, 8097, 10, nil)); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "full", 1, time.Minute)
	empty = s.fillDisk(t)
	leave := s.come(t, 8097, 16, 1)
	harness.Await(t, "another instance answers", time.Minute, func() error {
		running := 0
		for _, i := range s.ps(t) {
			if i.Service == "full" && i.State == "running" {
				running++
			}
		}
		if running < 2 {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
	leave()
	harness.Await(t, "weir-edge says that the disk is full", time.Minute, func() error {
		if said := m.log.String(); !strings.Contains(said, "no space left") {
			return errNot(said)
		}
		return nil
	})
	empty()
	s.must(t, "rm", "full")
}

// fillDisk keeps the small file system full until what is returned is called: what
// weir-edge gives back, by replacing a file or with its store's next transaction, is
// taken again before it is of use.
func (s *site) fillDisk(t *testing.T) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(s.small, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(f); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := fill(f); err != nil {
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
		ended <- nil
	}()
	return func() {
		t.Helper()
		cancel()
		if err := errors.Join(<-ended, f.Close(), os.Remove(f.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// fill writes until nothing more fits.
func fill(f *os.File) error {
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return nil
			}
			return err
		}
	}
}

// testNoAgent: without an agent services run, and minimums are not promised.
func (s *site) testNoAgent(t *testing.T) {
	_ = s.agent.End(syscall.SIGTERM, 10*time.Second)
	if err := s.deploy(t, specification("plain", pagesImage, 8098, 10, nil)); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "plain", 1, 20*time.Second)
	harness.Await(t, "weir-edge says that it knows only of the first byte", 10*time.Second, func() error {
		if err := s.get(8098); err != nil {
			return err
		}
		if seen := s.service(t, "plain"); seen.ResponseEnd != edge.ResponseFirstByte || seen.ResponseMS < 20 || seen.DeliveryMS > 0 {
			return errNot(fmt.Sprintf("%+v", seen))
		}
		return nil
	})
	harness.Await(t, "weir-edge notices", 10*time.Second, func() error {
		if out := s.must(t, "nodes"); !strings.Contains(out, "no Weir agent") {
			return errNot(out)
		}
		return nil
	})
	if err := s.deploy(t, specification("guarded", pagesImage, 8099, 10, map[string]string{"weir.min": "1mbit"})); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "weir-edge says why", 10*time.Second, func() error {
		out := s.must(t, "explain", "guarded")
		if !strings.Contains(out, "Weir") {
			return errNot(out)
		}
		return nil
	})
	for _, i := range s.ps(t) {
		if i.Service == "guarded" && (i.Instance != "" || !strings.Contains(i.Reason, "no Weir agent")) {
			t.Errorf("there is %+v", i)
		}
	}
}
