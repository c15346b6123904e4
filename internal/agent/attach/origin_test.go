package attach

import (
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
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

// The kernel watches while a container has a device on an uplink, and knows the
// namespaces of those that have, and no other.
func TestWatchOrigins(t *testing.T) {
	b := newBed()
	watcher := b.watcher
	expect := func(what string, watching bool, unknownBPS uint64, want map[uint32]uint16) {
		t.Helper()
		if watcher.watching != watching || b.table.UnknownBPS != unknownBPS || !maps.Equal(watcher.numbers, want) {
			t.Errorf("%s: watching %v, unknown origins have %d bit/s, told %v; want %v", what,
				watcher.watching, b.table.UnknownBPS, watcher.numbers, want)
		}
	}
	b.start("bridged", v1.ModeBridge, 100)
	b.apply()
	expect("a bridged container", false, 0, map[uint32]uint16{})
	one, two := b.start("one", v1.ModeMacvlan, 101), b.start("two", v1.ModeMacvlan, 102)
	b.apply()
	expect("two", true, 1e7, map[uint32]uint16{101: one.Number, 102: two.Number})

	// The limit is a part of the uplink's rate, also of another one.
	b.uplink.UplinkDevice = &fakeDevice{b.table, 4e9}
	b.apply()
	expect("another rate", true, 4e7, map[uint32]uint16{101: one.Number, 102: two.Number})
	b.uplink.UplinkDevice = &fakeDevice{b.table, 1e9}

	// What was found to be a container's goes with it, what is the host's stays.
	for netns, number := range map[uint32]uint16{201: one.Number, 202: identity.NumberHost} {
		must.Succeed(t, b.origins.Add(netns, identity.Origin{Number: number, ShownBy: "/proc/1/ns/net"}))
	}
	b.stop(one)
	b.apply()
	expect("one is gone", true, 1e7, map[uint32]uint16{102: two.Number, 202: identity.NumberHost})
	// Its inode is given to another.
	three := b.start("three", v1.ModeMacvlan, 101)
	b.apply()
	expect("three", true, 1e7, map[uint32]uint16{101: three.Number, 102: two.Number, 202: identity.NumberHost})

	// Without CAP_NET_ADMIN it need not be watched, unless another has it there.
	two.Seen.Lacks.NetAdmin, three.Seen.Lacks.NetAdmin = true, true
	b.apply()
	expect("two and three without the capability", false, 0, map[uint32]uint16{})
	b.start("joined", v1.ModeBridge, 101)
	b.apply()
	expect("one that joined three has it", true, 1e7, map[uint32]uint16{101: three.Number, 102: two.Number})

	// An overlay's namespace is known beforehand: what its containers send has
	// tags.
	const path = "/proc/self/ns/net"
	hidden, err := kernel.NetNSIdentity(path)
	must.Succeed(t, err)
	overlaid := b.start("overlaid", v1.ModeOverlay, 103)
	overlaid.Devices[0].Tap.NetNSPath = path
	b.apply()
	expect("one in an overlay", true, 1e7, map[uint32]uint16{
		101: three.Number, 102: two.Number, uint32(hidden.Inode): identity.NumberNone,
	})
	b.stop(overlaid)
	b.stop(two)
	b.stop(three)
	b.apply()
	expect("none left", false, 0, map[uint32]uint16{})
}

// A kernel that cannot is asked once, and uplinks go on by tags.
func TestWatchOriginsRefused(t *testing.T) {
	b := newBed()
	watcher := b.watcher
	watcher.err = errors.New("no tracepoints")
	b.start("one", v1.ModeMacvlan, 101)
	b.apply()
	watcher.err = nil
	b.apply()
	if watcher.watching || b.table.UnknownBPS != 0 {
		t.Errorf("watching %v, unknown origins have %d bit/s", watcher.watching, b.table.UnknownBPS)
	}
}

// Whose a namespace is, by who holds it.
func TestOriginHeld(t *testing.T) {
	b := newBed()
	one, nested := b.start("one", v1.ModeBridge, 7), b.start("nested", v1.ModeBridge, 8)
	one.Seen.CgroupPath, nested.Seen.CgroupPath = "/sys/fs/cgroup/a/one", "/sys/fs/cgroup/a/one/nested"
	named := b.start("named", v1.ModeBridge, 9)
	named.Seen.ID = "0123456789abcdef"
	uncontrolled, joined := b.start("uncontrolled", v1.ModeBridge, 10), b.start("joined", v1.ModeBridge, 7)
	uncontrolled.Seen.CgroupPath, uncontrolled.Number = "/sys/fs/cgroup/a/uncontrolled", 0
	joined.Seen.CgroupPath, joined.Number = "/sys/fs/cgroup/a/joined", 0

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
		{"a container's process", []kernel.NetNSHolder{process("/a/one/x")}, identity.Origin{Number: one.Number, ShownBy: "process"}, true},
		{"the innermost container's", []kernel.NetNSHolder{process("/a/one/nested/x")}, identity.Origin{Number: nested.Number, ShownBy: "process"}, true},
		{"no more than a name alike", []kernel.NetNSHolder{process("/a/one2")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"known by its name", []kernel.NetNSHolder{version1}, identity.Origin{Number: named.Number, ShownBy: "process"}, true},
		{"a container and the host", []kernel.NetNSHolder{process("/system.slice"), process("/a/one")}, identity.Origin{Number: one.Number, ShownBy: "process"}, true},
		{"a container without a number", []kernel.NetNSHolder{process("/a/uncontrolled")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"one that joined another's network", []kernel.NetNSHolder{process("/a/joined")}, identity.Origin{Number: one.Number, ShownBy: "process"}, true},
		{"the host's process", []kernel.NetNSHolder{process("/system.slice"), file("/a/one")}, identity.Origin{Number: identity.NumberHost, ShownBy: "process"}, true},
		{"the host's mount", []kernel.NetNSHolder{file("/a/one"), hostMount}, identity.Origin{Number: identity.NumberNone, ShownBy: "mounts"}, true},
		{"a container's mount", []kernel.NetNSHolder{file("/system.slice"), file("/a/one")}, identity.Origin{Number: one.Number, ShownBy: "file"}, true},
		{"a file of the host's", []kernel.NetNSHolder{file("/system.slice")}, identity.Origin{Number: identity.NumberNone, ShownBy: "file"}, true},
	} {
		if got, found := originHeld(b.all, netns, test.holders, mount); got != test.want || found != test.found {
			t.Errorf("%s: got %+v, %v, want %+v, %v", test.name, got, found, test.want, test.found)
		}
	}
}

// UnknownOrigins that send are looked for, in moderation, and again when they are
// not shown any more.
func TestSearchUnknownOrigins(t *testing.T) {
	b := newBed()
	watcher := b.watcher
	b.start("one", v1.ModeMacvlan, 101)
	b.apply()
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
			b.table.unknown++
		}
		before := searched
		b.NoteUnknown(b.uplink)
		b.SearchUnknown(now)
		if b.origins.searching {
			b.AddHolders(<-b.Found(), b.all)
		} else if searched != before {
			t.Error("a search that nobody waits for")
		}
	}
	if look(); searched != 0 {
		t.Error("searched for nobody")
	}
	must.Succeed(t, os.Symlink("net:[300]", shown))
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
	must.Succeed(t, os.Remove(shown))
	b.checkOrigins()
	if _, known := watcher.numbers[300]; known || !b.origins.searching {
		t.Error("what is not shown is known still, or not searched for")
	}
	b.AddHolders(<-b.Found(), b.all)
	if watcher.numbers[300] != identity.NumberHost {
		t.Errorf("told %v after the next search", watcher.numbers)
	}
}
