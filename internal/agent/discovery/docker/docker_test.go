package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/test/must"
)

// fakeEngine answers as an engine does, so that it can answer wrongly. How a
// real engine behaves is tested with a real engine, in test/docker.
type fakeEngine struct {
	t      *testing.T
	dir    string
	server *httptest.Server

	inspections atomic.Int64
	inspecting  atomic.Int64 // now
	crowd       atomic.Int64 // the most at the same time

	mu         sync.Mutex
	version    string
	containers map[string]*fakeContainer
	streams    []chan string // one for each request for events
	listed     func()        // called after a list was made, before it is sent
	list       string        // sent instead of the true list
	tail       string        // sent after list, again and again
	images     map[string]string
	imagesRead int
}

type fakeContainer struct {
	answer    string // of an inspection; empty means 404
	delay     time.Duration
	until     chan struct{} // an inspection is answered when it is closed; nil: at once
	inspected bool          // an inspection has begun
	fails     int           // how many inspections answer 500 first
	// created is the answer to a list of all containers, running or not.
	created string
	listed  bool
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-fake-") // t.TempDir is too long for sockets
	must.Succeed(t, err)
	e := &fakeEngine{t: t, dir: dir, version: "1.41", containers: make(map[string]*fakeContainer)}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e.file("proc/self/mountinfo", "30 22 0:26 / "+filepath.Join(dir, "cgroup")+" rw - cgroup2 cgroup2 rw\n")
	return e
}

func (e *fakeEngine) socket() string { return filepath.Join(e.dir, "engine.sock") }

func (e *fakeEngine) start() {
	e.t.Helper()
	listener, err := net.Listen("unix", e.socket())
	must.Succeed(e.t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", e.version)
	})
	mux.HandleFunc("GET /v1.41/events", e.serveEvents)
	mux.HandleFunc("GET /v1.41/networks", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"Id":"net1","Driver":"bridge"},{"Id":"net2","Driver":"macvlan"}]`)
	})
	mux.HandleFunc("GET /v1.41/networks/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("id") {
		case "net3":
			fmt.Fprint(w, `{"Id":"net3","Driver":"overlay","Ingress":true,"Options":null}`)
		case "net4":
			fmt.Fprint(w, `{"Id":"net4","Driver":"overlay","Ingress":false,"Options":{"com.docker.network.driver.overlay.vxlanid_list":"4098","encrypted":""}}`)
		default:
			http.Error(w, `{"message":"no such network"}`, http.StatusNotFound)
		}
	})
	mux.HandleFunc("GET /v1.41/images/{id}/json", e.serveImage)
	mux.HandleFunc("GET /v1.41/containers/json", e.serveList)
	mux.HandleFunc("GET /v1.41/containers/{id}/json", e.serveInspect)
	e.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	e.server.Start()
	e.t.Cleanup(e.stop)
}

func (e *fakeEngine) stop() {
	e.mu.Lock()
	for _, stream := range e.streams {
		close(stream)
	}
	e.streams = nil
	e.mu.Unlock()
	if e.server != nil {
		e.server.CloseClientConnections()
		e.server.Close()
		e.server = nil
	}
}

func (e *fakeEngine) serveImage(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.imagesRead++
	if answer, ok := e.images[r.PathValue("id")]; ok {
		fmt.Fprint(w, answer)
		return
	}
	http.Error(w, `{"message":"no such image"}`, http.StatusNotFound)
}

func (e *fakeEngine) serveEvents(w http.ResponseWriter, r *http.Request) {
	stream := make(chan string, 100)
	e.mu.Lock()
	e.streams = append(e.streams, stream)
	e.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case text, ok := <-stream:
			if !ok {
				return
			}
			fmt.Fprint(w, text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// emit sends raw text to those who watch events.
func (e *fakeEngine) emit(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, stream := range e.streams {
		stream <- text
	}
}

// breakStreams ends the streams of events.
func (e *fakeEngine) breakStreams() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, stream := range e.streams {
		close(stream)
	}
	e.streams = nil
}

func (e *fakeEngine) serveList(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("filters") {
		e.serveListOfOne(w, r)
		return
	}
	e.mu.Lock()
	list := []map[string]string{}
	for id, c := range e.containers {
		if c.listed {
			list = append(list, map[string]string{"Id": id})
		}
	}
	listed, text, tail := e.listed, e.list, e.tail
	e.mu.Unlock()
	if text != "" {
		_, err := fmt.Fprint(w, text)
		for tail != "" && err == nil {
			_, err = fmt.Fprint(w, tail)
		}
		return
	}
	if listed != nil {
		listed()
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		e.t.Error(err)
	}
}

func (e *fakeEngine) serveListOfOne(w http.ResponseWriter, r *http.Request) {
	var filters struct{ ID []string }
	if err := json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters); err != nil || len(filters.ID) != 1 || r.URL.Query().Get("all") != "1" {
		e.t.Errorf("the list is asked for with %v", r.URL.Query())
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := "[]"
	if c := e.containers[filters.ID[0]]; c != nil && c.created != "" {
		answer = "[" + c.created + "]"
	}
	fmt.Fprint(w, answer)
}

func (e *fakeEngine) serveInspect(w http.ResponseWriter, r *http.Request) {
	e.inspections.Add(1)
	inspecting := e.inspecting.Add(1)
	defer e.inspecting.Add(-1)
	for most := e.crowd.Load(); inspecting > most && !e.crowd.CompareAndSwap(most, inspecting); most = e.crowd.Load() {
	}
	e.mu.Lock()
	var c fakeContainer
	if found := e.containers[r.PathValue("id")]; found != nil {
		found.inspected = true
		c = *found
		if found.fails > 0 {
			found.fails--
		}
	}
	e.mu.Unlock()
	time.Sleep(c.delay)
	if c.until != nil {
		select {
		case <-c.until:
		case <-r.Context().Done():
		}
	}
	switch {
	case c.fails > 0:
		http.Error(w, `{"message":"out of sorts"}`, http.StatusInternalServerError)
	case c.answer == "":
		http.Error(w, `{"message":"no such container"}`, http.StatusNotFound)
	default:
		fmt.Fprint(w, c.answer)
	}
}

// id makes a container's ID from a short name.
func id(name string) string { return fmt.Sprintf("%064x", name) }

// set makes a container that runs, listed and with a process of its own.
func (e *fakeEngine) set(name string, pid int, c fakeContainer) {
	e.t.Helper()
	if c.answer == "" {
		c.answer = fmt.Sprintf(`{
			"Id": %q, "Name": "/%s",
			"State": {"Running": true, "Pid": %d, "StartedAt": "2024-05-06T07:08:09.123456789Z"},
			"Config": {"Labels": {"weir.weight": "5"}},
			"HostConfig": {"NetworkMode": "default"},
			"NetworkSettings": {"Networks": {"bridge": {"NetworkID": "net1"}}}
		}`, id(name), name, pid)
	}
	// What is told of it first: a watch must not find the process of the new one
	// and hear of the old one.
	e.mu.Lock()
	e.containers[id(name)] = &c
	e.mu.Unlock()
	e.process(pid, "0::/docker/"+id(name)+"\n")
}

// process makes a process in the engine's own /proc.
func (e *fakeEngine) process(pid int, cgroup string) {
	e.t.Helper()
	e.file(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
	e.file(fmt.Sprintf("proc/%d/ns/net", pid), "")
}

// file writes a file of the engine's own machine.
func (e *fakeEngine) file(path, text string) {
	e.t.Helper()
	path = filepath.Join(e.dir, path)
	must.Succeed(e.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(e.t, os.WriteFile(path, []byte(text), 0o644))
}

// awaitInspection waits until an inspection of a container has begun.
func (e *fakeEngine) awaitInspection(name string) {
	e.await(name+" is inspected", func() bool { return e.containers[id(name)].inspected })
}

// await waits for what a function sees that may read the engine.
func (e *fakeEngine) await(what string, is func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		seen := is()
		e.mu.Unlock()
		if seen {
			return
		}
		if time.Now().After(deadline) {
			e.t.Errorf("not within %v: %s", patience, what)
			return
		}
	}
}

func (e *fakeEngine) containerEvent(action, name string) {
	e.emit(fmt.Sprintf(`{"Type":"container","Action":%q,"Actor":{"ID":%q}}`+"\n", action, id(name)))
}

func (e *fakeEngine) networkEvent(action, name string) {
	e.emit(fmt.Sprintf(`{"Type":"network","Action":%q,"Actor":{"ID":"net1","Attributes":{"container":%q}}}`+"\n", action, id(name)))
}

// patience is how long a test waits for what must happen, however slow the machine is.
const patience = 2 * time.Minute

// source returns a source of the engine.
func (e *fakeEngine) source() *Source {
	source := New(Options{Name: "docker", Socket: e.socket()})
	source.procDir = filepath.Join(e.dir, "proc")
	return source
}

// watchFake runs a source on the engine until the test ends.
func (e *fakeEngine) watchFake() chan discovery.Event { return e.watch(e.source()) }

func (e *fakeEngine) watch(source *Source) chan discovery.Event {
	e.t.Helper()
	events := make(chan discovery.Event, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, events) }()
	e.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				e.t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			e.t.Error("Run does not return after its context ended")
		}
	})
	return events
}

// text writes an event down for comparison.
func text(e discovery.Event) string {
	switch {
	case e.Snapshot != nil:
		names := []string{}
		for _, c := range e.Snapshot.Containers {
			names = append(names, c.Name)
		}
		return "snapshot " + strings.Join(names, ",")
	case e.Updated != nil:
		return "updated " + e.Updated.Name
	case e.RemovedID != "":
		return "removed " + e.RemovedID
	case e.Disconnected != nil:
		return "disconnected"
	}
	return "empty"
}

func expect(t *testing.T, events <-chan discovery.Event, want string) discovery.Event {
	t.Helper()
	select {
	case e := <-events:
		if e.Source != "docker" {
			t.Errorf("event of source %q", e.Source)
		}
		if got := text(e); got != want {
			t.Fatalf("got %q (%+v), want %q", got, e, want)
		}
		return e
	case <-time.After(patience):
		t.Fatalf("no event, want %q", want)
	}
	return discovery.Event{}
}

func expectNone(t *testing.T, events <-chan discovery.Event, within time.Duration) {
	t.Helper()
	select {
	case e := <-events:
		t.Fatalf("got %q, want nothing", text(e))
	case <-time.After(within):
	}
}

func TestStreamBrokenInTheMiddle(t *testing.T) {
	for name, garbage := range map[string]string{
		"mid-JSON":  `{"Type":"container","Action":"sta`,
		"malformed": "{]\n",
		"wrong":     `{"Type":7}` + "\n",
		"closed":    "",
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t)
			e.start()
			events := e.watchFake()
			expect(t, events, "snapshot ")
			e.set("late", 10, fakeContainer{listed: true})
			e.emit(garbage)
			e.breakStreams()
			if got := expect(t, events, "disconnected"); got.Disconnected.Error() == "" {
				t.Error("no reason")
			}
			expect(t, events, "snapshot late")
		})
	}
}

func TestGoneBetweenEventAndInspection(t *testing.T) {
	e := newFakeEngine(t)
	e.set("stays", 10, fakeContainer{listed: true})
	e.mu.Lock()
	e.containers[id("phantom")] = &fakeContainer{listed: true} // listed, then 404
	e.mu.Unlock()
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot stays")

	e.containerEvent("start", "never-was")
	stopped := `{"Id":"` + id("stopped") + `","State":{"Running":false,"Pid":0}}`
	e.set("stopped", 11, fakeContainer{answer: stopped})
	e.containerEvent("start", "stopped")
	restarting := `{"Id":"` + id("restarting") + `","State":{"Running":true,"Pid":0}}`
	e.set("restarting", 12, fakeContainer{answer: restarting})
	e.containerEvent("start", "restarting")
	e.set("no-process", 13, fakeContainer{})
	os.RemoveAll(filepath.Join(e.dir, "proc", "13"))
	e.containerEvent("start", "no-process")
	e.set("reused", 14, fakeContainer{})
	e.process(14, "0::/docker/"+id("another")+"\n")
	e.containerEvent("start", "reused")
	expectNone(t, events, 100*time.Millisecond)

	// One that is known and turns out to be gone is reported once.
	e.mu.Lock()
	delete(e.containers, id("stays"))
	e.mu.Unlock()
	e.containerEvent("rename", "stays")
	expect(t, events, "removed "+id("stays"))
	e.containerEvent("die", "stays")
	e.containerEvent("destroy", "stays")
	expectNone(t, events, 100*time.Millisecond)
}

func TestWrongAnswerHidesNoOtherContainer(t *testing.T) {
	e := newFakeEngine(t)
	e.set("good", 10, fakeContainer{listed: true})
	e.set("odd", 11, fakeContainer{listed: true, answer: `{"Id": 5`})
	e.set("shaky", 12, fakeContainer{listed: true, fails: 2})
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot good")
	expect(t, events, "updated shaky")
	e.set("odd", 11, fakeContainer{})
	expect(t, events, "updated odd")
	expectNone(t, events, 50*time.Millisecond)
}

// A container whose inspection hangs, or whose process cannot be read, is told of as uninspected, and
// the others of that snapshot and later ones are reported.
func TestInspectionsWithoutAnswer(t *testing.T) {
	e := newFakeEngine(t)
	answer := make(chan struct{})
	e.set("good", 10, fakeContainer{listed: true})
	e.set("hangs", 11, fakeContainer{listed: true, until: answer})
	e.set("unreadable", 12, fakeContainer{listed: true})
	cgroups := filepath.Join(e.dir, "proc/12/cgroup")
	must.Succeed(t, errors.Join(os.Remove(cgroups), os.Mkdir(cgroups, 0o755)))
	e.start()
	source := e.source()
	source.snapshotTimeout = 2 * time.Second // for the inspection of the good one
	events := e.watch(source)
	uninspected := expect(t, events, "snapshot good").Snapshot.Uninspected
	slices.Sort(uninspected)
	if want := []string{id("hangs"), id("unreadable")}; !slices.Equal(uninspected, want) {
		t.Errorf("uninspected: %q, want %q", uninspected, want)
	}
	e.set("late", 13, fakeContainer{})
	e.containerEvent("start", "late")
	expect(t, events, "updated late")
	e.containerEvent("die", "unreadable") // the agent may know it of an earlier snapshot
	expect(t, events, "removed "+id("unreadable"))
	close(answer)
	expect(t, events, "updated hangs")
}

func TestMalformedListIsAnOutage(t *testing.T) {
	e := newFakeEngine(t)
	e.set("one", 10, fakeContainer{listed: true})
	e.start()
	e.mu.Lock()
	e.list = `{"message":"not a list"}`
	e.mu.Unlock()
	events := e.watchFake()
	expect(t, events, "disconnected")
	expectNone(t, events, 300*time.Millisecond) // several attempts, one outage
	e.mu.Lock()
	e.list = ""
	e.mu.Unlock()
	expect(t, events, "snapshot one")
}

// TestHostileAnswers: answers and events of any size end with a reason, and what is known stays known.
func TestHostileAnswers(t *testing.T) {
	e := newFakeEngine(t)
	huge := strings.Repeat("x", maxObjectBytes)
	e.set("good", 10, fakeContainer{listed: true})
	e.set("huge", 11, fakeContainer{listed: true, answer: fmt.Sprintf(`{"Id":%q,"State":{"Running":true,"Pid":11},"Config":{"Labels":{"a":%q}}}`, id("huge"), huge)})
	e.start()
	events := e.watchFake()
	if got := expect(t, events, "snapshot good").Snapshot.Uninspected; !slices.Equal(got, []string{id("huge")}) {
		t.Errorf("uninspected: %q, want that with a huge label", got)
	}
	e.mu.Lock()
	delete(e.containers, id("huge")) // it would be read again and again
	e.mu.Unlock()
	e.containerEvent("die", "huge")
	expect(t, events, "removed "+id("huge"))

	reason := func(events <-chan discovery.Event, want string) {
		t.Helper()
		if got := expect(t, events, "disconnected").Disconnected.Error(); !strings.Contains(got, want) {
			t.Errorf("the reason is %q, want %q in it", got, want)
		}
	}
	e.emit(fmt.Sprintf(`{"Type":"container","Action":"start","Actor":{"ID":%q,"Attributes":{"a":%q}}}`, id("good"), huge))
	reason(events, "read the stream of events: it has more than 4 MiB")
	expect(t, events, "snapshot good")
	e.emit(fmt.Sprintf(`{"Type":"container","Action":"start","Actor":{"ID":%q}}`, huge[:200]))
	reason(events, "has an ID of 200 bytes")
	expect(t, events, "snapshot good")
	var ever strings.Builder
	for i := range maxPending + 1 {
		fmt.Fprintf(&ever, `{"Type":"network","Action":"connect","Actor":{"ID":"net1","Attributes":{"container":"%064x"}}}`, i)
	}
	e.emit(ever.String())
	reason(events, "events name more than 4096 containers at once")
	expect(t, events, "snapshot good")
	for _, endless := range []struct{ list, tail, why string }{
		{`[{"Id":"`, huge, "list containers: read the engine's answer: it has more than 16 MiB"},
		{`[{}`, strings.Repeat(`,{}`, 1000), "more than 65536 elements"},
	} {
		e.mu.Lock()
		e.list, e.tail = endless.list, endless.tail
		e.mu.Unlock()
		e.breakStreams()
		expect(t, events, "disconnected")
		later := e.watchFake()
		reason(later, endless.why)
		e.mu.Lock()
		e.list, e.tail = "", ""
		e.mu.Unlock()
		expect(t, later, "snapshot good")
		expect(t, events, "snapshot good")
	}
}

func TestEngineComesLateAndGoes(t *testing.T) {
	e := newFakeEngine(t)
	e.set("one", 10, fakeContainer{listed: true})
	events := e.watchFake()
	expect(t, events, "disconnected")
	expectNone(t, events, 200*time.Millisecond)
	e.start()
	expect(t, events, "snapshot one")
	e.stop()
	expect(t, events, "disconnected")
	e.start()
	expect(t, events, "snapshot one")
}

func TestOldEngineIsRefusedWithAReason(t *testing.T) {
	e := newFakeEngine(t)
	e.version = "1.39"
	e.start()
	got := expect(t, e.watchFake(), "disconnected")
	if !strings.Contains(got.Disconnected.Error(), "update the engine") {
		t.Errorf("reason: %v", got.Disconnected)
	}
}

func TestChangeDuringTheSnapshotIsNotLost(t *testing.T) {
	e := newFakeEngine(t)
	e.set("ends", 10, fakeContainer{listed: true})
	e.set("stays", 11, fakeContainer{listed: true})
	var once sync.Once
	e.listed = func() {
		once.Do(func() {
			e.set("starts", 12, fakeContainer{})
			e.containerEvent("die", "ends")
			e.containerEvent("start", "starts")
			time.Sleep(20 * time.Millisecond)
		})
	}
	e.start()
	events := e.watchFake()
	first := <-events
	if first.Snapshot == nil || len(first.Snapshot.Containers) != 2 {
		t.Fatalf("got %q, want a snapshot of two", text(first))
	}
	got := map[string]bool{text(<-events): true, text(<-events): true}
	if !got["removed "+id("ends")] || !got["updated starts"] {
		t.Errorf("got %v", got)
	}
	expectNone(t, events, 50*time.Millisecond)
}

func TestChangesAreDebounced(t *testing.T) {
	e := newFakeEngine(t)
	e.set("one", 10, fakeContainer{listed: true})
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot one")
	before := e.inspections.Load()
	began := time.Now()
	for time.Since(began) < 5*debounce {
		e.networkEvent("connect", "one")
		e.networkEvent("disconnect", "one")
		time.Sleep(debounce / 20)
	}
	took := reportedUntilQuiet(t, events, began, "updated one")
	if n := e.inspections.Load() - before; n < 1 || n > 1+int64(took/debounce) {
		t.Errorf("%d inspections of a burst within %v, want one every %v at most", n, took, debounce)
	}
	// What concerns no running container, or says nothing, is not looked at.
	before = e.inspections.Load()
	e.networkEvent("connect", "stranger")
	e.containerEvent("die", "stranger")
	e.containerEvent("exec_start: sh", "one")
	e.emit(`{"Type":"network","Action":"create","Actor":{"ID":"net9"}}` + "\n" + `{}` + "\n" + `null` + "\n")
	expectNone(t, events, 3*debounce)
	if n := e.inspections.Load() - before; n != 0 {
		t.Errorf("%d inspections for nothing", n)
	}
	// An update that changes nothing we know is silent.
	e.containerEvent("update", "one")
	expectNone(t, events, 3*debounce)
}

// reportedUntilQuiet takes events until there are no more, and returns how long
// after began the last one came.
func reportedUntilQuiet(t *testing.T, events <-chan discovery.Event, began time.Time, want string) time.Duration {
	t.Helper()
	expect(t, events, want)
	for last := time.Since(began); ; last = time.Since(began) {
		select {
		case e := <-events:
			if got := text(e); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(10 * debounce):
			return last
		}
	}
}

// TestStartAndEndAreNotDebounced, and neither is a first change.
func TestStartAndEndAreNotDebounced(t *testing.T) {
	e := newFakeEngine(t)
	e.set("one", 10, fakeContainer{listed: true})
	e.start()
	source := e.source()
	source.debounce = 2 * patience
	events := e.watch(source)
	expect(t, events, "snapshot one")
	e.networkEvent("connect", "one")
	expect(t, events, "updated one")
	for range 10 {
		e.networkEvent("connect", "one") // waits
		e.containerEvent("die", "one")
		expect(t, events, "removed "+id("one"))
		e.containerEvent("start", "one")
		expect(t, events, "updated one")
	}
}

func TestEndDuringInspection(t *testing.T) {
	e := newFakeEngine(t)
	e.set("one", 10, fakeContainer{delay: 50 * time.Millisecond})
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot ")
	e.containerEvent("start", "one")
	e.awaitInspection("one")
	e.containerEvent("die", "one")
	expect(t, events, "updated one")
	expect(t, events, "removed "+id("one"))
}

// TestStorm: fifty containers start and fifty end each second, at an engine that
// takes its time. Each is inspected once, none waits as other changes do, and none
// stays that has ended.
func TestStorm(t *testing.T) {
	const (
		n          = 100
		every      = 20 * time.Millisecond
		life       = 5 * every
		inspection = 60 * time.Millisecond
	)
	e := newFakeEngine(t)
	for i := range n {
		e.set(fmt.Sprint("c", i), 100+i, fakeContainer{delay: inspection})
	}
	e.start()
	source := e.source()
	source.debounce = 2 * patience
	events := e.watch(source)
	expect(t, events, "snapshot ")

	go func() {
		for i := range n + int(life/every) {
			if i < n {
				e.networkEvent("connect", fmt.Sprint("c", i))
				e.containerEvent("start", fmt.Sprint("c", i))
			}
			if ended := i - int(life/every); ended >= 0 {
				name := fmt.Sprint("c", ended)
				e.awaitInspection(name) // one that has ended before needs none
				e.containerEvent("die", name)
				e.networkEvent("disconnect", name)
			}
			time.Sleep(every)
		}
	}()
	running := map[string]bool{}
	for reports := 0; reports < 2*n; reports++ {
		select {
		case event := <-events:
			if event.Updated == nil {
				if !running[event.RemovedID] {
					t.Errorf("%q of a container that was not reported", text(event))
				}
				delete(running, event.RemovedID)
				continue
			}
			if running[event.Updated.ID] {
				t.Errorf("%q again", text(event))
			}
			running[event.Updated.ID] = true
		case <-time.After(patience):
			t.Fatalf("%d reports of %d; still running: %d", reports, 2*n, len(running))
		}
	}
	expectNone(t, events, 3*debounce)
	if len(running) != 0 {
		t.Errorf("%d run that have ended", len(running))
	}
	if total, crowd := e.inspections.Load(), e.crowd.Load(); total != n || crowd > inspectors || crowd < 2 {
		t.Errorf("%d inspections, up to %d at the same time; want %d and 2 to %d", total, crowd, n, inspectors)
	}
}

func TestThousandContainers(t *testing.T) {
	const n = 1000
	e := newFakeEngine(t)
	for i := range n {
		e.set(fmt.Sprint("c", i), 100+i, fakeContainer{listed: true})
	}
	e.start()
	began := time.Now()
	first := <-e.watchFake()
	if first.Snapshot == nil || len(first.Snapshot.Containers) != n {
		t.Fatalf("got %.60q", text(first))
	}
	t.Logf("%d containers in %v", n, time.Since(began))
}

func TestConvert(t *testing.T) {
	tests := []struct {
		name, mode, networks string
		want                 discovery.Container
	}{
		{"default", "default", `{"bridge":{"NetworkID":"net1"}}`, discovery.Container{}},
		{"two", "b", `{"b":{"NetworkID":"net2"},"a":{"NetworkID":"net3"}}`, discovery.Container{RoutingMesh: true}},
		{"encrypted", "b", `{"b":{"NetworkID":"net4"},"a":{"NetworkID":"net9"}}`, discovery.Container{Encrypted: true}},
		{"removed network", "b", `{"b":{"NetworkID":"net9"},"a":{"NetworkID":"net1"}}`, discovery.Container{}},
		{"host", "host", `{}`, discovery.Container{HostNetwork: true}},
		{"none", "none", `{"none":{"NetworkID":""}}`, discovery.Container{NoNetwork: true}},
		{"none, then connected", "none", `{"a":{"NetworkID":"net1"}}`, discovery.Container{}},
		{"joined", "container:" + id("peer"), `null`, discovery.Container{SharesNetworkOf: id("peer")}},
	}
	e := newFakeEngine(t)
	for i, test := range tests {
		e.set(test.name, 10+i, fakeContainer{listed: true, answer: fmt.Sprintf(`{
			"Id": %q, "Name": "/%s", "State": {"Running": true, "Pid": %d, "StartedAt": "2024-05-06T07:08:09.123456789Z"},
			"Config": {"Labels": {"weir.max": "1mbit"}}, "HostConfig": {"NetworkMode": %q},
			"NetworkSettings": {"Networks": %s}, "Mounts": [1, "x", null]}`,
			id(test.name), test.name, 10+i, test.mode, test.networks)})
	}
	e.start()
	first := <-e.watchFake()
	found := make(map[string]discovery.Container)
	for _, c := range first.Snapshot.Containers {
		found[c.Name] = c
	}
	for i, test := range tests {
		c, ok := found[test.name]
		if !ok {
			t.Errorf("%s: not found", test.name)
			continue
		}
		if c.HostNetwork != test.want.HostNetwork || c.NoNetwork != test.want.NoNetwork || c.SharesNetworkOf != test.want.SharesNetworkOf || c.RoutingMesh != test.want.RoutingMesh || c.Encrypted != test.want.Encrypted {
			t.Errorf("%s: got %+v", test.name, c)
		}
		if c.ID != id(test.name) || c.Runtime != "docker" || c.Labels["weir.max"] != "1mbit" ||
			c.NetNSPath != fmt.Sprintf("/proc/%d/ns/net", 10+i) ||
			c.CgroupPath != filepath.Join(e.dir, "cgroup/docker", c.ID) ||
			!c.StartedAt.Equal(time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)) {
			t.Errorf("%s: got %+v", test.name, c)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for offered, want := range map[string]string{
		"1.40": "1.40", "1.41": "1.41", "1.56": "1.56", "1.99": "1.56", "2.0": "1.56", "1.39": "", "": "", "1": "", "x.y": "", "1.41.5": "", "-1.50": "",
	} {
		got, err := negotiate(offered)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("negotiate(%q) = %v, %v; want %q", offered, got, err, want)
		}
	}
}

func TestCgroupsAllow(t *testing.T) {
	a, b := id("a"), id("b")
	for cgroups, want := range map[string]bool{
		"0::/docker/" + a:                           true,
		"0::/system.slice/docker-" + a + ".scope":   true,
		"0::/machine.slice/libpod-" + a + ".scope":  true,
		"0::/docker/" + b + "/docker/" + a:          true,
		"0::/docker/" + b:                           false,
		"0::/system.slice/docker-" + b + ".scope\n": false,
		"0::/user.slice\n":                          true,
		"":                                          true,
	} {
		if got := cgroupsAllow(cgroups, a); got != want {
			t.Errorf("cgroupsAllow(%q) = %v", cgroups, got)
		}
	}
}

func TestLongSocketPathIsFinal(t *testing.T) {
	source := New(Options{Socket: "/" + strings.Repeat("x", 200)})
	if err := source.Run(t.Context(), nil); err == nil {
		t.Error("no error")
	}
}

func TestPodOf(t *testing.T) {
	for _, tc := range []struct{ answer, want string }{
		{`{"Name":"/web","Config":{"Hostname":"web"}}`, ""},
		{`{"Name":"/0123456789ab-infra","Config":{"Hostname":"shelf"}}`, "shelf"},
		{`{"Name":"/my-infra","Config":{"Hostname":"host"}}`, ""},
		{`{"Name":"/k8s_app","Config":{"Hostname":"x","Labels":{"io.kubernetes.pod.name":"shelf-1"}}}`, "shelf-1"},
	} {
		var info inspection
		must.Succeed(t, json.Unmarshal([]byte(tc.answer), &info))
		if got := convert(&info).Pod.Name; got != tc.want {
			t.Errorf("%s is of pod %q, want %q", tc.answer, got, tc.want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(`{"Type":"container","Action":"start","Actor":{"ID":"a"}}`)
	f.Add(`{"Type":"network","Action":"connect","Actor":{"ID":"n","Attributes":{"container":"a"}}}{`)
	f.Add(`null {} [] {"Actor":null}`)
	f.Fuzz(func(t *testing.T, stream string) {
		err := readMessages(strings.NewReader(stream), func(m message) error {
			if id, k := kindOf(m); k != unimportant && m.Type == "container" && id != m.Actor.ID {
				t.Errorf("%+v: container %q", m, id)
			}
			return nil
		})
		if err == nil {
			t.Error("a stream that ended gave no error")
		}
	})
}

func FuzzInspection(f *testing.F) {
	f.Add(`{"Id":"a","Name":"/x","HostConfig":{"NetworkMode":"container:b"},"State":{"Pid":1}}`, "0::/a")
	f.Add(`{"HostConfig":{"NetworkMode":"none"},"NetworkSettings":{"Networks":{"n":null}}}`, "")
	f.Fuzz(func(t *testing.T, answer, cgroups string) {
		var info inspection
		if json.Unmarshal([]byte(answer), &info) != nil {
			return
		}
		c := convert(&info)
		modes := 0
		for _, set := range []bool{c.HostNetwork, c.NoNetwork, c.SharesNetworkOf != ""} {
			if set {
				modes++
			}
		}
		if modes > 1 {
			t.Errorf("%q has %d modes: %+v", answer, modes, c)
		}
		if strings.Contains(cgroups, c.ID) && !cgroupsAllow(cgroups, c.ID) {
			t.Errorf("cgroups %q do not allow %q", cgroups, c.ID)
		}
	})
}

func FuzzNegotiate(f *testing.F) {
	f.Add("1.41")
	f.Fuzz(func(t *testing.T, offered string) {
		if got, err := negotiate(offered); err == nil && (got.less(oldestAPI) || newestAPI.less(got)) {
			t.Errorf("negotiate(%q) = %v", offered, got)
		}
	})
}

func TestLacksCapability(t *testing.T) {
	const pid = 7
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "7"), 0o755))
	if lacksCapability(dir, pid, unix.CAP_NET_ADMIN) {
		t.Error("nothing is known of it")
	}
	for _, test := range []struct {
		status string
		want   bool
	}{
		{"Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t00000000a80425fb\nCapAmb:\t0\n", true}, // Docker's default
		{"Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t00000000a80435fb\nCapAmb:\t0\n", false},
		{"Name:\tx\nCapBnd:\t000001ffffffffff\n", false},
		{"Name:\tx\nCapBnd:\t0000000000000000\n", true},
		{"Name:\tx\nCapBnd:\tnone\n", false},
		{"Name:\tx\n", false},
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "7", "status"), []byte(test.status), 0o644))
		if got := lacksCapability(dir, pid, unix.CAP_NET_ADMIN); got != test.want {
			t.Errorf("%q: %t", test.status, got)
		}
	}
}

// TestEndIsFinal: the networks of a container that has ended are disconnected after its end, and
// no inspection asks for it again, however soon that is.
func TestEndIsFinal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	for range 3000 {
		w := &watch{
			source: New(Options{}), events: make(chan discovery.Event, 1), background: &background, began: true,
			pending: map[string]*change{}, known: map[string]*discovery.Container{id("c"): {}},
		}
		w.mu.Lock()
		w.note(ctx, id("c"), stopped)
		c := w.pending[id("c")]
		for c.todo == forget { // until its end is being reported
			w.mu.Unlock()
			w.mu.Lock()
		}
		w.note(ctx, id("c"), altered)
		if c.todo == look {
			t.Fatal("it is inspected again")
		}
		w.mu.Unlock()
	}
	cancel()
	background.Wait()
}
