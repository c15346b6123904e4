package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	noRoutes = "Iface\tDestination\n"
	routes   = noRoutes + "eth0\t00000000\n"
)

// create makes a container that is about to start: its process waits in its
// cgroup, in a network namespace with these routes and no IPv6. An inspection is
// not answered before it is started with set.
func (e *fakeEngine) create(name string, pid int, mode, routes string) {
	e.t.Helper()
	e.set(name, pid, fakeContainer{
		delay: time.Minute,
		created: fmt.Sprintf(`{"Id": %q, "Names": ["/linked/alias", "/%s"], "State": "created", "Image": "mine:1", "ImageID": "sha256:aa", "Labels": {"weir.weight": "5"},
			"HostConfig": {"NetworkMode": %q}, "NetworkSettings": {"Networks": {"mine": {"NetworkID": "net3"}}}}`,
			id(name), name, mode),
	})
	e.file(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (runc) init) S 7 1 1 0\n", pid))
	e.file("proc/7/ns/net", "")
	e.file(fmt.Sprintf("proc/%d/net/route", pid), routes)
	e.file(fmt.Sprintf("proc/%d/net/if_inet6", pid), "00000000000000000000000000000001 01 80 10 80       lo\n")
	e.file(filepath.Join("cgroup/docker", id(name), "cgroup.procs"), fmt.Sprintln(pid))
}

// prestartWait is how long a container is given to be seen.
const prestartWait = 100 * time.Millisecond

func TestContainerIsReportedBeforeItStarts(t *testing.T) {
	e := newFakeEngine(t)
	e.images = map[string]string{"sha256:aa": `{"Config":{"Labels":{"weir.weight":"5"}}}`}
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot ")

	e.networkEvent("connect", "one")
	e.networkEvent("connect", "one")
	expectNone(t, events, prestartWait)
	e.create("one", 10, "mine", noRoutes)
	e.await("the image is read before the network is there", func() bool { return e.imagesRead == 1 })
	expectNone(t, events, prestartWait)
	e.file("proc/10/net/route", routes)
	c := expect(t, events, "updated one").Updated
	if c.ID != id("one") || !c.StartedAt.IsZero() || c.Labels["weir.weight"] != "5" || c.Runtime != "docker" ||
		c.NetNSPath != "/proc/10/ns/net" || c.CgroupPath != filepath.Join(e.dir, "cgroup/docker", c.ID) ||
		c.Image != "mine:1" || c.ImageLabels["weir.weight"] != "5" || c.ImageUnknown != "" {
		t.Errorf("got %+v", c)
	}
	e.set("one", 10, fakeContainer{})
	e.containerEvent("start", "one")
	if c := expect(t, events, "updated one").Updated; c.StartedAt.IsZero() {
		t.Errorf("got %+v", c)
	}
	e.containerEvent("die", "one")
	expect(t, events, "removed "+id("one"))

	// The host's network is there from the beginning.
	e.create("two", 11, "host", noRoutes)
	e.networkEvent("connect", "two")
	if c := expect(t, events, "updated two").Updated; !c.HostNetwork {
		t.Errorf("got %+v", c)
	}
	// An interface that has addresses of IPv6 only.
	e.create("three", 12, "mine", noRoutes)
	e.networkEvent("connect", "three")
	expectNone(t, events, prestartWait)
	e.file("proc/12/net/if_inet6", "fe800000000000000042c6fffe120002 02 40 20 80     eth0\n")
	expect(t, events, "updated three")
}

// TestStartingDuringTheSnapshot: an inspection would not be answered before the
// container has started.
func TestStartingDuringTheSnapshot(t *testing.T) {
	e := newFakeEngine(t)
	e.set("running", 9, fakeContainer{listed: true})
	e.create("one", 10, "mine", routes)
	e.listed = func() {
		e.networkEvent("connect", "one")
		time.Sleep(3 * debounce) // it is taken note of before the list is read
	}
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot running")
	if c := expect(t, events, "updated one").Updated; !c.StartedAt.IsZero() {
		t.Errorf("got %+v", c)
	}
}

func TestContainerThatDoesNotStart(t *testing.T) {
	e := newFakeEngine(t)
	e.start()
	events := e.watchFake()
	expect(t, events, "snapshot ")
	// It fails before it is seen, and comes to nothing even if it is then.
	e.networkEvent("connect", "early")
	e.networkEvent("disconnect", "early")
	e.set("other", 9, fakeContainer{})
	e.containerEvent("start", "other")
	expect(t, events, "updated other") // and what came before that has been read
	time.Sleep(3 * debounce)
	e.create("early", 10, "mine", routes)
	expectNone(t, events, prestartWait)
	// It fails after it was seen.
	e.create("late", 11, "mine", routes)
	e.networkEvent("connect", "late")
	expect(t, events, "updated late")
	e.set("late", 11, fakeContainer{answer: `{"Id":"` + id("late") + `","State":{"Running":false,"Pid":0}}`})
	e.networkEvent("disconnect", "late")
	expect(t, events, "removed "+id("late"))
	expectNone(t, events, prestartWait)
}

// TestNotReportedBeforeStart: where something is missing, a container is reported when it
// has started.
func TestNotReportedBeforeStart(t *testing.T) {
	for name, spoil := range map[string]func(e *fakeEngine){
		"no cgroup":                 func(e *fakeEngine) { os.RemoveAll(filepath.Join(e.dir, "cgroup")) },
		"process unseen":            func(e *fakeEngine) { e.file("cgroup/docker/"+id("one")+"/cgroup.procs", "0\n") },
		"several":                   func(e *fakeEngine) { e.file("cgroup/docker/"+id("one")+"/cgroup.procs", "10\n11\n") },
		"another's":                 func(e *fakeEngine) { e.process(10, "0::/docker/"+id("another")+"\n") },
		"not listed":                func(e *fakeEngine) { e.containers[id("one")].created = "" },
		"no stat":                   func(e *fakeEngine) { e.file("proc/10/stat", "") },
		"in the engine's namespace": func(e *fakeEngine) { e.link("proc/7/ns/net", "proc/10/ns/net") },
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine(t)
			e.create("one", 10, "mine", routes)
			spoil(e)
			e.start()
			events := e.watchFake()
			expect(t, events, "snapshot ")
			e.networkEvent("connect", "one")
			expectNone(t, events, prestartWait)
			e.set("one", 10, fakeContainer{})
			e.containerEvent("start", "one")
			if c := expect(t, events, "updated one").Updated; c.StartedAt.IsZero() {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// link makes a file the same as another.
func (e *fakeEngine) link(from, to string) {
	e.t.Helper()
	to = filepath.Join(e.dir, to)
	_ = os.Remove(to) // it may not be there
	if err := os.Link(filepath.Join(e.dir, from), to); err != nil {
		e.t.Fatal(err)
	}
}

func TestCgroupPatterns(t *testing.T) {
	p := defaultCgroupPatterns("/c")
	p.learn("/c/docker/"+id("a"), id("a"))
	p.learn("", id("a"))
	if len(p) != 2 {
		t.Errorf("learnt what is known: %v", p)
	}
	for i := range 20 {
		p.learn(fmt.Sprintf("/c/parent%d/docker-%s.scope", i, id("a")), id("a"))
	}
	if len(p) != maxCgroupPatterns || p[len(p)-1] != "/c/parent19/docker-{id}.scope" || strings.Contains(p[0], "docker/{id}") {
		t.Errorf("learnt %v", p)
	}
}
