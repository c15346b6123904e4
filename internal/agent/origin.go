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

// origins are the network namespaces that the kernel was told of (identity.OriginTable),
// and the search for the holders of others.
type origins struct {
	*identity.OriginTable

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

// search is what became of one for the holders of unknown origins.
type search struct {
	unknown []uint32
	holders []kernel.NetNSHolder
	took    time.Duration
}

func newOrigins(watcher identity.OriginWatcher) *origins {
	return &origins{
		OriginTable: identity.NewOriginTable(watcher),
		found:       make(chan search, 1),
		holders:     func(inodes []uint32) []kernel.NetNSHolder { return kernel.NetNSHolders("/proc", inodes) },
	}
}

// watchOrigins tells the kernel whose the network namespaces of containers are,
// while there is one to be watched.
func (a *Agent) watchOrigins() {
	o := a.origins
	own := a.ownOrigins()
	if o.Refused() || len(own) == 0 && !o.Watching() {
		return
	}
	if len(own) == 0 {
		a.unwatchOrigins()
		return
	}
	err := o.Watch(own, func(number uint16) bool { return a.registry.byNumber[number] != nil })
	switch {
	case o.Refused():
		a.log.Warn("packets that macvlan and ipvlan containers forward are known by their tags only", "error", err)
		return
	case err != nil:
		a.log.Warn("watch origins", "error", err)
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
	if err := a.origins.Unwatch(); err != nil {
		a.log.Warn("watch origins", "error", err)
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
	if !o.pending || !o.Watching() || o.searching || now.Before(o.searchFrom) {
		return
	}
	o.pending = false
	unknown, err := o.Unknown()
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
		if o.Knows(netns) || !o.Watching() {
			continue
		}
		found, ok := a.registry.originHeld(netns, s.holders, mount)
		if !ok {
			pause = max(pause, retrySearch)
			continue
		}
		a.log.Debug("a network namespace has an owner", "netns", netns, "number", found.Number, "shown_by", found.ShownBy)
		if err := o.Add(netns, found); err != nil {
			a.log.Warn("assign a network namespace", "error", err)
		}
	}
	o.searchFrom = time.Now().Add(pause)
}

// checkOrigins forgets network namespaces that are not shown any more by what
// they were found by, and looks for others who hold them.
func (a *Agent) checkOrigins() {
	lapsed, err := a.origins.Lapse()
	if err != nil {
		a.log.Warn("forget network namespaces", "error", err)
	}
	if !a.origins.searching {
		a.searchFor(lapsed)
	}
}

// originHeld decides whose a network namespace is by those who hold it, and
// reports false if there is none.
func (r *registry) originHeld(netns uint32, holders []kernel.NetNSHolder, mount cgroup.Mount) (identity.Origin, bool) {
	return identity.OwnerOf(netns, holders, func(h kernel.NetNSHolder) (uint16, bool) {
		if c := r.ofProcess(mount.OfProcess(h.Cgroups), h.Cgroups); c != nil {
			return c.number, true
		}
		return 0, false
	})
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
