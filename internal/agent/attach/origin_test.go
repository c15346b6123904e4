package agent

import (
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery/cgroup"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// fakeOrigins is a kernel that was told of network namespaces.
type fakeOrigins struct {
	numbers  map[uint32]uint16
	watching bool
	unknown  []uint32
	err      error
}

func (o *fakeOrigins) Watch() error {
	o.watching = o.err == nil
	return o.err
}

func (o *fakeOrigins) Unwatch() error {
	o.watching = false
	return nil
}

func (o *fakeOrigins) Set(netns uint32, number uint16) error {
	o.numbers[netns] = number
	return nil
}

func (o *fakeOrigins) Forget(netns uint32) error {
	delete(o.numbers, netns)
	return nil
}

func (o *fakeOrigins) UnknownOrigins() ([]uint32, error) {
	list := o.unknown
	o.unknown = nil
	return list, nil
}

func (o *fakeOrigins) Close() error { return nil }

// useOrigins has the agent tell a kernel that can be asked.
func (b *bench) useOrigins() *fakeOrigins {
	watcher := &fakeOrigins{numbers: map[uint32]uint16{}}
	b.Agent.origins = newOrigins(watcher)
	return watcher
}

// direct adds a container with a device on the uplink.
func (b *bench) direct(name string, netns uint64) *container {
	c := b.start(name).container
	c.mode, c.netns = v1.ModeMacvlan, kernel.NetNSID{Dev: 4, Inode: netns}
	c.attachments = []attachment{{Attachment: identity.Attachment{Mode: v1.ModeMacvlan}, assigned: true}}
	return c
}

// The kernel watches while a container has a device on an uplink, and knows the
// namespaces of those that have, and no other.
func TestWatchOrigins(t *testing.T) {
	b := newBench(t, 1e9)
	watcher := b.useOrigins()
	expect := func(what string, watching bool, unknownBPS uint64, want map[uint32]uint16) {
		t.Helper()
		if watcher.watching != watching || b.classifier.unknownBPS != unknownBPS || !maps.Equal(watcher.numbers, want) {
			t.Errorf("%s: watching %v, unknown origins have %d bit/s, told %v; want %v", what,
				watcher.watching, b.classifier.unknownBPS, watcher.numbers, want)
		}
	}
	bridged := b.start("bridged").container
	bridged.netns = kernel.NetNSID{Dev: 4, Inode: 100}
	b.watchOrigins()
	expect("a bridged container", false, 0, map[uint32]uint16{})
	one, two := b.direct("one", 101), b.direct("two", 102)
	b.watchOrigins()
	expect("two", true, 1e7, map[uint32]uint16{101: one.number, 102: two.number})

	// A classifier that was made anew has to be told again.
	b.classifier.unknownBPS, b.link.unknownBPS = 0, 0
	b.watchOrigins()
	expect("a new classifier", true, 1e7, map[uint32]uint16{101: one.number, 102: two.number})

	// The limit is a part of the uplink's rate, also of another one.
	for _, rateBPS := range []uint64{4e9, 1e9} {
		b.link.rateBPS = rateBPS
		b.watchOrigins()
		expect("another rate", true, rateBPS/100, map[uint32]uint16{101: one.number, 102: two.number})
	}

	// What was found to be a container's goes with it, what is the host's stays.
	for netns, number := range map[uint32]uint16{201: one.number, 202: identity.NumberHost} {
		if err := b.origins.Add(netns, identity.Origin{Number: number, ShownBy: "/proc/1/ns/net"}); err != nil {
			t.Fatal(err)
		}
	}
	b.Agent.forget(one)
	b.watchOrigins()
	expect("one is gone", true, 1e7, map[uint32]uint16{102: two.number, 202: identity.NumberHost})
	// Its inode is given to another.
	three := b.direct("three", 101)
	b.watchOrigins()
	expect("three", true, 1e7, map[uint32]uint16{101: three.number, 102: two.number, 202: identity.NumberHost})

	// Without CAP_NET_ADMIN it need not be watched, unless another has it there.
	two.WithoutNetAdmin, three.WithoutNetAdmin = true, true
	b.watchOrigins()
	expect("two and three without the capability", false, 0, map[uint32]uint16{})
	joined := b.start("joined").container
	joined.netns = three.netns
	b.watchOrigins()
	expect("one that joined three has it", true, 1e7, map[uint32]uint16{101: three.number, 102: two.number})

	// An overlay's namespace is known beforehand: what its containers send has
	// tags.
	const path = "/proc/self/ns/net"
	hidden, err := kernel.NetNSIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	overlaid := b.start("overlaid").container
	overlaid.attachments = []attachment{{
		Attachment: identity.Attachment{Mode: v1.ModeOverlay, Tap: identity.Tap{NetNSPath: path}}, assigned: true,
	}}
	b.watchOrigins()
	expect("one in an overlay", true, 1e7, map[uint32]uint16{
		101: three.number, 102: two.number, uint32(hidden.Inode): identity.NumberNone,
	})
	b.Agent.forget(overlaid)

	b.machine.gone = true
	b.advance(b.link)
	b.classifier.unknownBPS = 0
	b.Agent.forget(two)
	b.Agent.forget(three)
	b.watchOrigins()
	expect("none left", false, 0, map[uint32]uint16{})
}

// A kernel that cannot is asked once, and uplinks go on by tags.
func TestWatchOriginsRefused(t *testing.T) {
	b := newBench(t, 1e9)
	watcher := b.useOrigins()
	watcher.err = errors.New("no tracepoints")
	b.direct("one", 101)
	b.watchOrigins()
	watcher.err = nil
	b.watchOrigins()
	if watcher.watching || b.classifier.unknownBPS != 0 {
		t.Errorf("watching %v, unknown origins have %d bit/s", watcher.watching, b.classifier.unknownBPS)
	}
}

// Whose a namespace is, by who holds it.
func TestOriginHeld(t *testing.T) {
	b := newBench(t, 1e9)
	one, nested := b.start("one").container, b.start("nested").container
	one.CgroupPath, nested.CgroupPath = "/sys/fs/cgroup/a/one", "/sys/fs/cgroup/a/one/nested"
	named := b.start("named").container
	named.ID = "0123456789abcdef"
	uncontrolled := b.start("uncontrolled").container
	uncontrolled.CgroupPath = "/sys/fs/cgroup/a/uncontrolled"
	b.registry.release(uncontrolled)
	joined := b.start("joined").container
	joined.CgroupPath = "/sys/fs/cgroup/a/joined"
	joined.netns, one.netns = kernel.NetNSID{Inode: 7}, kernel.NetNSID{Inode: 7}
	b.registry.release(joined)

	mount := cgroup.Mount{Point: "/sys/fs/cgroup"}
	const netns = 100
	process := func(cgroup string) kernel.NetNSHolder {
		return kernel.NetNSHolder{Inode: netns, How: kernel.ByProcess, Path: "process", PID: 20, Cgroups: "0::" + cgroup + "\n"}
	}
	file := func(cgroup string) kernel.NetNSHolder {
		return kernel.NetNSHolder{Inode: netns, How: kernel.ByFile, Path: "file", PID: 30, Cgroups: "0::" + cgroup + "\n"}
	}
	hostMount := kernel.NetNSHolder{Inode: netns, How: kernel.ByFile, Path: "mounts", PID: 1, Cgroups: "0::/\n"}
	elsewhere := process("/a/one")
	elsewhere.Inode++
	version1 := process("")
	version1.Cgroups = "4:memory:/docker/0123456789abcdef\n1:name=systemd:/docker/0123456789abcdef\n"
	for _, test := range []struct {
		name    string
		holders []kernel.NetNSHolder
		want    identity.Origin
		found   bool
	}{
		{"nobody", nil, identity.Origin{}, false},
		{"somebody of another namespace", []kernel.NetNSHolder{elsewhere}, identity.Origin{}, false},
		{"a container's process", []kernel.NetNSHolder{process("/a/one/x")}, identity.Origin{Number: one.number, ShownBy: "process"}, true},
		{"the innermost container's", []kernel.NetNSHolder{process("/a/one/nested/x")}, identity.Origin{Number: nested.number, ShownBy: "process"}, true},
		{"no more than a name alike", []kernel.NetNSHolder{process("/a/one2")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"known by its name", []kernel.NetNSHolder{version1}, identity.Origin{Number: named.number, ShownBy: "process"}, true},
		{"a container and the host", []kernel.NetNSHolder{process("/system.slice"), process("/a/one")}, identity.Origin{Number: one.number, ShownBy: "process"}, true},
		{"a container without a number", []kernel.NetNSHolder{process("/a/uncontrolled")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"one that joined another's network", []kernel.NetNSHolder{process("/a/joined")}, identity.Origin{Number: one.number, ShownBy: "process"}, true},
		{"the host's process", []kernel.NetNSHolder{process("/system.slice"), file("/a/one")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"the host's mount", []kernel.NetNSHolder{file("/a/one"), hostMount}, identity.Origin{Number: identity.NumberNone, ShownBy: "mounts"}, true},
		{"a container's mount", []kernel.NetNSHolder{file("/system.slice"), file("/a/one")}, identity.Origin{Number: one.number, ShownBy: "file"}, true},
		{"a file of the host's", []kernel.NetNSHolder{file("/system.slice")}, identity.Origin{Number: identity.NumberNone, ShownBy: "file"}, true},
	} {
		if got, found := b.registry.originHeld(netns, test.holders, mount); got != test.want || found != test.found {
			t.Errorf("%s: got %+v, %v, want %+v, %v", test.name, got, found, test.want, test.found)
		}
	}
}

// UnknownOrigins that send are looked for, in moderation, and again when they are
// not shown any more.
func TestSearchUnknownOrigins(t *testing.T) {
	b := newBench(t, 1e9)
	watcher := b.useOrigins()
	b.direct("one", 101)
	b.watchOrigins()
	shown := t.TempDir() + "/net"
	searched := 0
	b.origins.holders = func(inodes []uint32) []kernel.NetNSHolder {
		searched++
		var holders []kernel.NetNSHolder
		for _, inode := range inodes {
			if inode == 300 {
				holders = append(holders, kernel.NetNSHolder{Inode: inode, Path: shown, PID: 2})
			}
		}
		return holders
	}
	now := time.Now()
	look := func(unknown ...uint32) {
		t.Helper()
		if unknown != nil {
			watcher.unknown = unknown
			b.classifier.offered[identity.NumberNone]++
		}
		before := searched
		b.control(now)
		if b.origins.searching {
			b.takeHolders(<-b.origins.found)
		} else if searched != before {
			t.Error("a search that nobody waits for")
		}
	}
	if look(); searched != 0 {
		t.Error("searched for nobody")
	}
	if err := os.Symlink("net:[300]", shown); err != nil {
		t.Fatal(err)
	}
	if look(300); searched != 1 || watcher.numbers[300] != identity.NumberHost {
		t.Errorf("%d searches, told %v", searched, watcher.numbers)
	}
	now = b.origins.searchFrom
	if look(400); searched != 2 || len(watcher.numbers) != 2 {
		t.Errorf("%d searches, told %v", searched, watcher.numbers)
	}
	if look(400); searched != 2 {
		t.Error("searched for nobody's again at once")
	}
	now = now.Add(2 * retrySearch)
	if look(); searched != 3 {
		t.Error("nobody's was not searched for again")
	}

	b.checkOrigins()
	if watcher.numbers[300] != identity.NumberHost || b.origins.searching {
		t.Error("what is shown was forgotten, or searched for")
	}
	if err := os.Remove(shown); err != nil {
		t.Fatal(err)
	}
	b.checkOrigins()
	if _, known := watcher.numbers[300]; known || !b.origins.searching {
		t.Error("what is not shown is known still, or not searched for")
	}
	b.takeHolders(<-b.origins.found)
	if watcher.numbers[300] != identity.NumberHost {
		t.Errorf("told %v after the next search", watcher.numbers)
	}
}
