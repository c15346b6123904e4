package agent

import (
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery/cgroup"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// Whose are the network namespaces that packets come from?
//
// A macvlan or ipvlan container with CAP_NET_ADMIN can make packets of a
// namespace within leave with any tag or none. So while there is one the kernel
// watches where packets come from (bpf/origin.bpf.c), and has to be told whose
// the namespaces are:
//
//   - A container's own is its. That of an overlay network is shared: its
//     packets have tags, put on where no container reaches.
//   - Others show up as unknown origins when they send. Whoever holds one tells whose
//     it is: a container's process in it, or a container's file or mount, makes
//     it the container's; a process of no known container makes it the host's,
//     and so does a file or mount that is the host's, such as those of
//     `ip netns add`. The host's mounts count before those of containers,
//     which may see copies; processes count before both.
//   - One that nobody can be found to hold, as only a socket does, stays a
//     unknown origin: it has the host's class, and one percent of the uplink at most.
//
// The kernel gives an inode away again as soon as a namespace is gone. So what
// a container had is forgotten when that goes, and what was found is checked
// with everything else.

// origins is what the kernel was told of network namespaces.
type origins struct {
	watcher  originWatcher
	watching bool
	// refused: this kernel cannot watch.
	refused bool
	// known are those that the kernel knows, by inode.
	known map[uint32]origin

	// pending: unknown origins sent something since they were last looked for.
	pending bool
	// searching: their holders are looked for. found are those.
	searching bool
	found     chan search
	// searchFrom is when they may be looked for again.
	searchFrom time.Time
	// holders finds who holds network namespaces.
	holders func(inodes []uint32) []kernel.NetNSHolder
}

// originWatcher is what watches in the kernel; *identity.Origins is it.
type originWatcher interface {
	Watch() error
	Unwatch() error
	Set(netns uint32, number uint16) error
	Forget(netns uint32) error
	UnknownOrigins() ([]uint32, error)
	Close() error
}

// origin is a network namespace that the kernel knows.
type origin struct {
	number uint16
	// shownBy is a file that shows that it is still there and held by the same;
	// empty for what the agent knows without.
	shownBy string
}

// search is what became of one for the holders of unknown origins.
type search struct {
	unknown []uint32
	holders []kernel.NetNSHolder
	took    time.Duration
}

func newOrigins(watcher originWatcher) *origins {
	return &origins{
		watcher: watcher,
		known:   map[uint32]origin{},
		found:   make(chan search, 1),
		holders: func(inodes []uint32) []kernel.NetNSHolder { return kernel.NetNSHolders("/proc", inodes) },
	}
}

// watchOrigins tells the kernel whose the network namespaces of containers are,
// while there is one to be watched.
func (a *Agent) watchOrigins() {
	o := a.origins
	own := a.ownOrigins()
	if o.refused || len(own) == 0 && !o.watching {
		return
	}
	if len(own) == 0 {
		a.unwatchOrigins()
		return
	}
	for netns, known := range o.known {
		_, isOwn := own[netns]
		stale := known.number >= identity.NumberFirst && a.registry.byNumber[known.number] == nil
		if !isOwn && (stale || known.shownBy == "") {
			a.forgetOrigin(netns)
		}
	}
	for netns, number := range own {
		if known, isKnown := o.known[netns]; !isKnown || known != (origin{number: number}) {
			a.setOrigin(netns, origin{number: number})
		}
	}
	if !o.watching {
		if err := o.watcher.Watch(); err != nil {
			o.refused = true
			a.log.Warn("packets that macvlan and ipvlan containers forward are known by their tags only", "error", err)
			return
		}
		o.watching = true
	}
	for _, u := range a.uplinks {
		if u.installed() {
			a.limitUnknownOrigins(u, u.link().UnknownBPS())
		}
	}
}

func (a *Agent) unwatchOrigins() {
	for _, u := range a.uplinks {
		a.limitUnknownOrigins(u, 0)
	}
	if err := a.origins.watcher.Unwatch(); err != nil {
		a.log.Warn("watch origins", "error", err)
	}
	a.origins.watching = false
	for netns := range a.origins.known {
		a.forgetOrigin(netns)
	}
}

// limitUnknownOrigins tells an uplink's classifier what unknown origins may send; 0 says that
// nothing is watched. Where it was told so, nothing is done.
func (a *Agent) limitUnknownOrigins(u *link, bps uint64) {
	if u.unknownBPS == bps {
		return
	}
	if err := u.classifier.LimitUnknownOrigins(bps); err != nil {
		a.log.Warn("limit unknown origins", "uplink", u.name, "error", err)
		return
	}
	u.unknownBPS = bps
}

func (a *Agent) setOrigin(netns uint32, known origin) {
	if err := a.origins.watcher.Set(netns, known.number); err != nil {
		a.log.Warn("assign a network namespace", "error", err)
		return
	}
	a.origins.known[netns] = known
}

func (a *Agent) forgetOrigin(netns uint32) {
	if err := a.origins.watcher.Forget(netns); err != nil {
		a.log.Warn("unassign a network namespace", "error", err)
		return
	}
	delete(a.origins.known, netns)
}

// ownOrigins are the network namespaces that are known to be containers' or
// overlays', while one with a device on an uplink may have CAP_NET_ADMIN in it,
// or another that has joined its network.
func (a *Agent) ownOrigins() map[uint32]uint16 {
	own := map[uint32]uint16{}
	overlays := map[string]bool{}
	for _, c := range a.registry.byNumber {
		if c.direct() {
			own[uint32(c.netns.Inode)] = c.number
		}
		for _, at := range c.attachments {
			if at.Mode == v1.ModeOverlay {
				overlays[at.Tap.NetNSPath] = true
			}
		}
	}
	watch := false
	for _, c := range a.registry.byKey {
		_, isOwn := own[uint32(c.netns.Inode)]
		watch = watch || isOwn && !c.WithoutNetAdmin
	}
	if !watch {
		return nil
	}
	for path := range overlays {
		if id, err := kernel.NetNSIdentity(path); err == nil {
			own[uint32(id.Inode)] = identity.NumberNone
		}
	}
	return own
}

// searchPause: the search for holders takes one part in so many of the time at
// most; and where it found nobody, it is made once in retrySearch.
const (
	searchPause = 50
	retrySearch = time.Second
)

// searchUnknownOrigins begins to find out whose those unknown origins are that have sent
// something.
func (a *Agent) searchUnknownOrigins(now time.Time) {
	o := a.origins
	if !o.pending || !o.watching || o.searching || now.Before(o.searchFrom) {
		return
	}
	o.pending = false
	unknown, err := o.watcher.UnknownOrigins()
	if err != nil {
		a.log.Warn("ask for unknown origins", "error", err)
	}
	a.searchFor(unknown)
}

// searchFor looks for the holders of network namespaces, while the agent goes
// on with other things.
func (a *Agent) searchFor(unknown []uint32) {
	o := a.origins
	if len(unknown) == 0 {
		return
	}
	o.searching = true
	go func() {
		begin := time.Now()
		holders := o.holders(unknown)
		o.found <- search{unknown, holders, time.Since(begin)}
	}()
}

// takeHolders takes in what a search found.
func (a *Agent) takeHolders(s search) {
	o := a.origins
	o.searching = false
	pause := searchPause * s.took
	var mount cgroup.Mount
	if len(s.holders) > 0 {
		mount, _ = cgroup.FindMount("/proc") // where there is none, by name
	}
	for _, netns := range s.unknown {
		if _, known := o.known[netns]; known || !o.watching {
			continue
		}
		found, ok := a.registry.originHeld(netns, s.holders, mount)
		if !ok {
			pause = max(pause, retrySearch)
			continue
		}
		a.log.Debug("a network namespace has an owner", "netns", netns, "number", found.number, "shown_by", found.shownBy)
		a.setOrigin(netns, found)
	}
	o.searchFrom = time.Now().Add(pause)
}

// checkOrigins forgets network namespaces that are not shown any more by what
// they were found by, and looks for others who hold them.
func (a *Agent) checkOrigins() {
	var lapsed []uint32
	for netns, known := range a.origins.known {
		if known.shownBy != "" && !kernel.ShowsNetNS(known.shownBy, netns) {
			a.forgetOrigin(netns)
			lapsed = append(lapsed, netns)
		}
	}
	if !a.origins.searching {
		a.searchFor(lapsed)
	}
}

// originHeld decides whose a network namespace is by those who hold it, and
// reports false if there is none.
func (r *registry) originHeld(netns uint32, holders []kernel.NetNSHolder, mount cgroup.Mount) (origin, bool) {
	number, shownBy, held := identity.OwnerOf(netns, holders, func(h kernel.NetNSHolder) (uint16, bool) {
		if c := r.ofProcess(mount.OfProcess(h.Cgroups), h.Cgroups); c != nil {
			return c.number, true
		}
		return 0, false
	})
	return origin{number: number, shownBy: shownBy}, held
}

// ofProcess finds the container that counts for a process, by the directory of
// its cgroup, or by the name of one as engines give it. There is none for a
// container that is not controlled.
func (r *registry) ofProcess(directory, cgroups string) *container {
	var best *container
	for _, c := range r.byKey {
		below := c.CgroupPath != "" && strings.HasPrefix(directory+"/", filepath.Clean(c.CgroupPath)+"/")
		named := c.CgroupPath == "" && strings.Contains(cgroups, c.ID)
		if (below || named) && (best == nil || len(c.CgroupPath) > len(best.CgroupPath)) {
			best = c
		}
	}
	if best == nil || best.number != 0 {
		return best
	}
	if best.netns == (kernel.NetNSID{}) {
		return nil
	}
	return r.sharesNetNS(best)
}
