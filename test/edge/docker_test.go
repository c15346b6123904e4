//go:build docker

package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// TestOneEngine is what one plain engine can show, one thing after the other.
func TestOneEngine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	trace := filepath.Join(s.Dir, "trace.jsonl")
	s.start(t, "--record", trace)
	t.Run("a service from its specification", s.testDeploy)
	t.Run("a crowd comes", s.testCrowd)
	t.Run("decided again", func(t *testing.T) { s.testReplay(t, trace) })
	t.Run("one minimum of four instances", s.testOneMinimum)
	t.Run("killed and started", s.testKills)
	t.Run("removed", s.testRemove)
	t.Run("ended and restarted", s.testEnds)
	t.Run("the paper's descriptor", s.testDescriptor)
	t.Run("bad input", s.testBadInput)
}

// TestTrouble is what images, other programs and a full disk do to services of one engine, and what weir-edge
// says of it.
func TestTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.agent = s.StartAgent(harness.AgentOptions{Docker: s.engine.Socket()})
	s.start(t)
	lasting := s.deployLasting(t)
	t.Run("an image that takes long", s.testWaiting)
	t.Run("images that do not work", s.testBadImages)
	t.Run("profile", s.testProfile)
	t.Run("a second one, with another folder", func(t *testing.T) { s.testOtherFolder(t, lasting) })
	t.Run("two at once", s.testTwoAtOnce)
	t.Run("labels of an image", s.testImageLabels)
	t.Run("a minimum that is refused", s.testRefused)
	t.Run("dry run", s.testDryRun)
	t.Run("a full disk", s.testFullDisk)
	t.Run("no agent", s.testNoAgent)
}

func (s *site) testDeploy(t *testing.T) {
	began := time.Now()
	if err := s.deploy(t, specification("shop", pagesImage, 8080, 10, map[string]string{"weir.min": "20mbit", "weir.weight": "300"})); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the service answers", 10*time.Second, func() error { return s.get(8080) })
	t.Logf("answered %v after the deployment", time.Since(began).Round(time.Millisecond))
	found := s.awaitRunning(t, "shop", 1, 10*time.Second)
	if found[0].Node == "" || found[0].MinBPS != 20e6 {
		t.Errorf("got %+v", found[0])
	}
	var printed []edge.Instance
	if err := json.Unmarshal([]byte(s.must(t, "ps", "-o", "json")), &printed); err != nil || len(printed) != 1 || printed[0].ContainerID != found[0].ContainerID {
		t.Errorf("weir-edge ps -o json prints %+v, %v", printed, err)
	}
	// What users get counts as the proxy's at the uplink, with the service's policy.
	harness.Await(t, "the agent knows the proxy's policy", 5*time.Second, func() error {
		out := s.MustWeir("ps")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "edgeproxy-shop ") && strings.Contains(line, "20mbit") && strings.Contains(line, "host") {
				return nil
			}
		}
		return errNot(out)
	})
	if err := s.deploy(t, specification("shop", pagesImage, 8080, 10, map[string]string{"weir.min": "20mbit", "weir.weight": "300"})); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := s.deploy(t, specification("other", pagesImage, 8080, 11, nil)); err == nil || !strings.Contains(err.Error(), "port 8080 is the service shop's") {
		t.Errorf("a port that is taken: %v", err)
	}
	address, _ := takenAddress(t, s)
	taken := int(netip.MustParseAddrPort(address).Port())
	if err := s.deploy(t, specification("other", pagesImage, taken, 11, nil)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d is another program's", taken)) {
		t.Errorf("a port that a program has: %v", err)
	}
	for _, command := range [][]string{{"ps"}, {"nodes"}, {"explain", "shop"}, {"events"}} {
		t.Logf("weir-edge %s\n%s", strings.Join(command, " "), s.must(t, command...))
	}
}

// testReplay: from what rounds of a live weir-edge went by the same is decided again.
func (s *site) testReplay(t *testing.T, trace string) {
	s.manager.kill()
	defer s.start(t)
	if got := s.measured(t, pagesImage); got.Seconds <= 0 || got.Seconds > 60 {
		t.Errorf("of starts is kept %+v", got)
	}
	whole, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:bytes.LastIndexByte(whole, '\n')+1]
	if err := os.WriteFile(trace, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(os.Getenv(programVariable), "replay", trace).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the same decisions") {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%d bytes: %s", len(whole), out)
	if !regexp.MustCompile(`"service":"shop","node":"[^"]+","users":[^{}]*"sent_bps":[1-9]`).Match(whole) {
		t.Error("no round knew of what the proxy sends")
	}
	// Another world, another decision.
	changed := regexp.MustCompile(`"maxUsers":("?)10\b`).ReplaceAll(whole, []byte(`"maxUsers":${1}100`))
	if err := os.WriteFile(trace, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(os.Getenv(programVariable), "replay", trace).CombinedOutput(); err == nil || !strings.Contains(string(out), "decided was") {
		t.Errorf("a crowd with more room, and the same was decided: %v: %s", err, out)
	}
}

func errNot(what string) error { return &notYet{what} }

type notYet struct{ seen string }

func (n *notYet) Error() string { return "there is " + n.seen }

func (s *site) testCrowd(t *testing.T) {
	leave := s.come(t, 8080, 18, 1)
	defer leave()
	began := time.Now()
	harness.Await(t, "another instance answers", 20*time.Second, func() error {
		running := 0
		for _, i := range s.ps(t) {
			if i.State == "running" {
				running++
			}
		}
		if running < 2 {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
	t.Logf("another instance after %v", time.Since(began).Round(time.Millisecond))
	harness.Await(t, "users are with both", 10*time.Second, func() error {
		for _, i := range s.ps(t) {
			if i.Users == 0 {
				return errNot(s.must(t, "ps"))
			}
		}
		return nil
	})
	t.Logf("weir-edge ps\n%s\nexplain\n%s", s.must(t, "ps"), s.must(t, "explain", "shop"))
}

// testOneMinimum: four instances have their service's minimum once. Beside a backup that fills the
// uplink, their users get just that, which is what is promised, shown and in force.
func (s *site) testOneMinimum(t *testing.T) {
	const minBPS = 6e6
	s.importPages(t, heavyImage, "--work", "0s", "--workers", "64", "--queue", "64", "--bytes", "200000")
	four := specification("four", heavyImage, 8081, 10, map[string]string{"weir.min": "6mbit", "weir.weight": "1"})
	four["QoS"] = map[string]any{"responseTime": "20", "numUsers": 40}
	if err := s.deploy(t, four); err != nil {
		t.Fatal(err)
	}
	defer s.must(t, "rm", "four")
	if err := s.deploy(t, specification("backup", heavyImage, 8082, 100, map[string]string{"weir.weight": "10000"})); err != nil {
		t.Fatal(err)
	}
	defer s.must(t, "rm", "backup")
	s.awaitRunning(t, "four", 4, 20*time.Second)
	s.awaitRunning(t, "backup", 1, 20*time.Second)
	users, leave := s.readers(8081, 12)
	defer leave()
	_, end := s.readers(8082, 12)
	defer end()
	checkReceived(t, "users of four instances", &users.received, 0.97*minBPS, 1.05*minBPS)
	parts, promised := uint64(0), uint64(0)
	for _, i := range s.ps(t) {
		parts += i.MinBPS
	}
	nodes, err := s.client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		promised += n.PromisedBPS
	}
	if others := uint64(20e6); parts != minBPS+others || promised != minBPS+others { // shop's
		t.Errorf("instances are shown %d bit/s, nodes promise %d", parts, promised)
	}
	explained := s.must(t, "explain", "four")
	t.Logf("weir-edge ps\n%s\nexplain\n%s\nnodes\n%s", s.must(t, "ps"), explained, s.must(t, "nodes"))
	if !regexp.MustCompile(`(?ms)^all +6mbit +- +- +- +- +6mbit *$.*^\S+ +uplink +6mbit +in force `).MatchString(explained) {
		t.Error("the sums are not those of one minimum")
	}
	leave()
	waited := func() error {
		mean, low, high := users.waits(time.Now())
		said := s.service(t, "four")
		is := fmt.Sprintf("%+v, users waited %v, 95 %% of them %v to %v", said, mean, low, high)
		if t.Log(is); said.ResponseEnd != edge.ResponseDelivered || unlike(said.ResponseMS, mean, mean) || unlike(said.ResponseP95MS, low, high) {
			return errNot(is)
		}
		return nil
	}
	harness.Await(t, "weir-edge knows how long users waited", 10*time.Second, waited)
	for range 5 {
		time.Sleep(time.Second)
		if err := waited(); err != nil {
			t.Error("it knew, and later ", err)
		}
	}
	t.Logf("weir-edge explain\n%s", s.must(t, "explain", "four"))
}

// readers are users who ask for a page again and again, one request after the other.
type readers struct {
	received atomic.Uint64 // bytes
	mu       sync.Mutex
	answers  []answer
}

// answer is when a user had an answer, and how long it took.
type answer struct {
	at   time.Time
	took time.Duration
}

// readers come to a port until leave is called, which waits for the answers that they are to get: an
// agent counts one that nobody reads to its end, too.
func (s *site) readers(port, users int) (r *readers, leave func()) {
	r = &readers{}
	gone := make(chan struct{})
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := s.dial(ctx, network, address)
				return &traffic.CountedConn{Conn: conn, Bytes: &r.received}, err
			}}
			defer transport.CloseIdleConnections()
			user := http.Client{Transport: transport, Timeout: time.Minute}
			for {
				select {
				case <-gone:
					return
				default:
				}
				began := time.Now()
				response, err := user.Get(s.url(port))
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				r.mu.Lock()
				r.answers = append(r.answers, answer{time.Now(), time.Since(began)})
				r.mu.Unlock()
			}
		})
	}
	return r, sync.OnceFunc(func() {
		close(gone)
		all.Wait()
	})
}

// waits returns the mean of the times that an agent counts now, and between which the 95th percentile is,
// as the agent may count two more or fewer of those at the ends of its ten
// slots of 3 s.
func (r *readers) waits(now time.Time) (mean, low, high time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var times []time.Duration
	for _, a := range r.answers {
		if a.at.Unix()/3 > now.Unix()/3-10 {
			times = append(times, a.took)
			mean += a.took
		}
	}
	if len(times) == 0 {
		return 0, 0, 0
	}
	slices.Sort(times)
	rank := len(times) * 95 / 100
	return mean / time.Duration(len(times)), times[max(rank-2, 0)], times[min(rank+2, len(times)-1)]
}

// unlike reports whether a time that weir-edge says is off by more than a tenth.
func unlike(saidMS float64, low, high time.Duration) bool {
	return saidMS < 0.9*low.Seconds()*1000 || saidMS > 1.1*high.Seconds()*1000
}

// service returns what weir-edge knows of a service.
func (s *site) service(t *testing.T, name string) edge.Service {
	t.Helper()
	seen, err := s.client.Snapshot(t.Context())
	i := slices.IndexFunc(seen.Services, func(e edge.Service) bool { return e.Name == name })
	if err != nil || i < 0 {
		t.Fatalf("%s is not there: %v", name, err)
	}
	return seen.Services[i]
}

// come lets a crowd come, of whose requests at most that many percent may fail, until
// what is returned is called.
func (s *site) come(t *testing.T, port, users, percent int) (leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan profile.Answers, 1)
	go func() { answers <- s.crowd(port, users).Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		got := <-answers
		t.Logf("a crowd of %d: %+v, %.2f %% good", users, got, got.SuccessPercent())
		// Percent of few requests would be less than one.
		if got.Requests == 0 || got.Failed*100 > max(got.Requests, 100)*percent {
			t.Errorf("%d of %d requests failed: %v", got.Failed, got.Requests, got.LastError)
		}
	}
}

// testKills: what runs goes on, and the next weir-edge finds it, in any state.
func (s *site) testKills(t *testing.T) {
	leave := s.come(t, 8080, 4, 0)
	defer leave()
	for i := range 20 {
		var crowdLeaves func()
		if i%3 == 0 { // the load changes all the time
			crowdLeaves = s.come(t, 8080, 12, 1)
		}
		time.Sleep(time.Duration(i*37%200) * time.Millisecond)
		s.manager.kill()
		time.Sleep(50 * time.Millisecond)
		s.start(t)
		if crowdLeaves != nil {
			crowdLeaves()
		}
	}
	harness.Await(t, "all instances answer", 20*time.Second, func() error {
		list := s.ps(t)
		for _, i := range list {
			if i.State != "running" {
				return errNot(s.must(t, "ps"))
			}
		}
		if len(list) == 0 {
			return errNot("no instance")
		}
		return nil
	})
	t.Logf("weir-edge ps\n%s", s.must(t, "ps"))
}

// testEnds: an instance that ends, by itself or by docker kill, answers again soon, in its place.
func (s *site) testEnds(t *testing.T) {
	if err := s.deploy(t, specification("ends", pagesImage, 8083, 10, nil)); err != nil {
		t.Fatal(err)
	}
	defer s.must(t, "rm", "ends")
	s.restarts(t, 2*time.Second, func() error { return s.get(8083) })
	if _, err := s.engine.API().ContainerKill(t.Context(), "edgeproxy-ends", client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	took := awaitAnswer(t, "its proxy is back", 2*time.Second, func() error { return s.get(8083) })
	t.Logf("its proxy, docker kill: it answers again after %v", took.Round(10*time.Millisecond))
}

// awaitAnswer waits until get has no error, asking again and again, and returns the time that took. A
// request that waits for its answer does not delay the end of the wait.
func awaitAnswer(t *testing.T, what string, most time.Duration, get func() error) time.Duration {
	t.Helper()
	answered := make(chan struct{})
	var last atomic.Value
	last.Store(errNot("the first request waits"))
	go func() {
		for t.Context().Err() == nil {
			err := get()
			if err == nil {
				close(answered)
				return
			}
			last.Store(errNot(err.Error()))
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return harness.Await(t, what, most, func() error {
		select {
		case <-answered:
			return nil
		default:
			return last.Load().(error)
		}
	})
}

// restarts ends the only instance of the service ends in each way, and measures until users get an
// answer again.
func (s *site) restarts(t *testing.T, most time.Duration, get func() error) {
	t.Helper()
	for name, end := range map[string]func(*testbed.Engine, container.InspectResponse) error{
		"exit": func(_ *testbed.Engine, c container.InspectResponse) error {
			return syscall.Kill(c.State.Pid, syscall.SIGKILL)
		},
		"docker kill": func(engine *testbed.Engine, c container.InspectResponse) error {
			_, err := engine.API().ContainerKill(t.Context(), c.ID, client.ContainerKillOptions{Signal: "KILL"})
			return err
		},
	} {
		was := s.awaitRunning(t, "ends", 1, 30*time.Second)[0]
		harness.Await(t, "the service answers", 10*time.Second, get)
		for _, engine := range append(s.engines, s.engine) {
			found, err := engine.API().ContainerInspect(t.Context(), was.ContainerID, client.ContainerInspectOptions{})
			if err != nil {
				continue // it is another engine's
			}
			if err := end(engine, found.Container); err != nil {
				t.Fatal(err)
			}
			break
		}
		time.Sleep(50 * time.Millisecond)
		took := awaitAnswer(t, "it answers again", most, get)
		is := s.awaitRunning(t, "ends", 1, 10*time.Second)[0]
		if is.Instance != was.Instance || is.Node != was.Node || is.StartedAt.Equal(was.StartedAt) {
			t.Errorf("%s: %+v, after %v %+v\n%s", name, was, took, is, s.must(t, "events"))
		}
		t.Logf("%s: it answers again after %v", name, took.Round(10*time.Millisecond))
	}
	t.Logf("weir-edge events\n%s", s.must(t, "events"))
}

func (s *site) testRemove(t *testing.T) {
	s.must(t, "rm", "shop")
	harness.Await(t, "nothing is left", 20*time.Second, func() error {
		left, err := s.engine.Exec(t.Context(), "edgeproxy-shop", "/bin/true")
		if err == nil {
			return errNot(left)
		}
		if list := s.ps(t); len(list) > 0 {
			return errNot(s.must(t, "ps"))
		}
		return nil
	})
	if err := s.get(8080); err == nil {
		t.Error("the service still answers")
	}
	if _, err := s.weirEdge("rm", "shop"); err == nil || !strings.Contains(err.Error(), "is not deployed") {
		t.Errorf("remove it again: %v", err)
	}
	if _, err := s.weirEdge("explain", "shop"); err == nil || !strings.Contains(err.Error(), "is not deployed") {
		t.Errorf("explain what is gone: %v", err)
	}
}
