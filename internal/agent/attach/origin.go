package attach

import (
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Owners of the network namespaces that packets come from.
//
// A macvlan or ipvlan container with CAP_NET_ADMIN can send packets from an inner namespace
// with any tag or none. So while such a container runs, the kernel watches where packets come
// from (bpf/origin.bpf.c), and the agent tells it the number of each namespace:
//
//   - A container's own namespace has the container's number. The namespace of an overlay
//     network is shared: its packets have tags, written where no container can change them.
//   - Any other namespace is an unknown origin when it sends. Its holder determines its
//     number: a container's process, file or mount makes it the container's; a process of no
//     known container makes it the host's, and so does a file or mount of the host, such as
//     those of `ip netns add`. The host's mounts count before those of containers, which may
//     be copies; processes count before both.
//   - A namespace whose holder cannot be found, such as a socket, stays an unknown origin: it
//     has the host's class, and at most one percent of the uplink.

// origins tracks the network namespaces that the kernel knows (identity.OriginTable), and the
// search for the holders of unknown ones.
type origins struct {
	*identity.OriginTable

	// pending: unknown origins have sent packets since the last search.
	pending bool
	// searching: a search is running; its result arrives on the channel found.
	searching bool
	found     chan Search
	// searchFrom is the earliest time of the next search.
	searchFrom time.Time
	// holders finds the holders of network namespaces.
	holders func(inodes []uint32) []kernel.NetNSHolder
}

// Search is the result of one search for the holders of unknown origins.
type Search struct {
	unknown []uint32
	holders []kernel.NetNSHolder
	took    time.Duration
}

func newOrigins(watcher identity.OriginWatcher) *origins {
	return &origins{
		OriginTable: identity.NewOriginTable(watcher),
		found:       make(chan Search, 1),
		holders:     func(inodes []uint32) []kernel.NetNSHolder { return kernel.NetNSHolders("/proc", inodes) },
	}
}

// watchOrigins watches the origins of packets while a container needs it, and tells the kernel the
// numbers of containers' network namespaces. It reports whether origins are watched.
func (a *Attacher) watchOrigins(all []*Container) bool {
	own := ownOrigins(all)
	if a.origins.Refused() || len(own) == 0 {
		return false
	}
	held := map[uint16]bool{}
	for _, c := range controlled(all) {
		held[c.Number] = true
	}
	err := a.origins.Watch(own, func(number uint16) bool { return held[number] })
	switch {
	case a.origins.Refused():
		a.log.Warn("this kernel cannot watch network namespaces: packets that macvlan and ipvlan containers forward are identified by their tags only", "error", err)
		return false
	case err != nil:
		a.log.Warn("cannot watch origins", "error", err)
	}
	return true
}

// unwatchOrigins stops watching the origins of packets.
func (a *Attacher) unwatchOrigins() {
	if !a.origins.Watching() {
		return
	}
	if err := a.origins.Unwatch(); err != nil {
		a.log.Warn("cannot stop watching origins", "error", err)
	}
}

// ownOrigins returns the container numbers of known network namespaces, by inode, overlay
// namespaces included. It returns none unless a container with a device on an uplink, or one that
// joined its network, may have CAP_NET_ADMIN.
func ownOrigins(all []*Container) map[uint32]uint16 {
	own := map[uint32]uint16{}
	overlays := map[string]bool{}
	for _, c := range controlled(all) {
		if c.isDirect() {
			own[uint32(c.NetNS.Inode)] = c.Number
		}
		for _, d := range c.Devices {
			if d.Mode == v1.ModeOverlay {
				overlays[d.Tap.NetNSPath] = true
			}
		}
	}
	watch := false
	for _, c := range all {
		_, isOwn := own[uint32(c.NetNS.Inode)]
		watch = watch || isOwn && !c.Seen.Lacks.NetAdmin
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

// searchPause bounds a search for holders to one part in searchPause of the time. After a search
// without a result the next one starts retrySearch later.
const (
	searchPause = 50
	retrySearch = time.Second
)

// NoteUnknown records whether unknown origins have sent packets at an uplink.
func (a *Attacher) NoteUnknown(u *Uplink) {
	if u.unknownSent() {
		a.origins.pending = true
	}
}

// SearchUnknown starts a search for the holders of the unknown origins that have sent packets since
// the last search.
func (a *Attacher) SearchUnknown(now time.Time) {
	o := a.origins
	if !o.pending || !o.Watching() || o.searching || now.Before(o.searchFrom) {
		return
	}
	o.pending = false
	unknown, err := o.Unknown()
	if err != nil {
		a.log.Warn("cannot list unknown network namespaces that send packets", "error", err)
	}
	o.search(unknown)
}

// Found returns the channel of search results, for AddHolders.
func (a *Attacher) Found() <-chan Search { return a.origins.found }

// search looks for the holders of network namespaces in a goroutine of its own.
func (o *origins) search(unknown []uint32) {
	if len(unknown) == 0 {
		return
	}
	o.searching = true
	go func() {
		begin := time.Now()
		holders := o.holders(unknown)
		o.found <- Search{unknown, holders, time.Since(begin)}
	}()
}

// AddHolders tells the kernel the numbers of the network namespaces whose holders a search has
// found.
func (a *Attacher) AddHolders(s Search, all []*Container) {
	o := a.origins
	o.searching = false
	pause := searchPause * s.took
	var mount cgroup.Mount
	if len(s.holders) > 0 {
		mount, _ = cgroup.FindMount("/proc") // without a mount, containers are found by the name of the cgroup
	}
	for _, netns := range s.unknown {
		if o.Knows(netns) || !o.Watching() {
			continue
		}
		found, ok := originHeld(all, netns, s.holders, mount)
		if !ok {
			pause = max(pause, retrySearch)
			continue
		}
		a.log.Debug("a network namespace has an owner", "netns", netns, "number", found.Number, "shown_by", found.ShownBy)
		if err := o.Add(netns, found); err != nil {
			a.log.Warn("cannot assign a network namespace", "error", err)
		}
	}
	o.searchFrom = time.Now().Add(pause)
}

// checkOrigins forgets network namespaces whose evidence (a process, file or mount) is gone, and
// starts a search for other holders.
func (a *Attacher) checkOrigins() {
	lapsed, err := a.origins.Lapse()
	if err != nil {
		a.log.Warn("cannot forget network namespaces", "error", err)
	}
	if !a.origins.searching {
		a.origins.search(lapsed)
	}
}

// originHeld derives the number of a network namespace from its holders, and reports false if they
// give none.
func originHeld(all []*Container, netns uint32, holders []kernel.NetNSHolder, mount cgroup.Mount) (identity.Origin, bool) {
	return identity.OwnerOf(netns, holders, func(h kernel.NetNSHolder) (uint16, bool) {
		if c := ofProcess(all, mount.OfProcess(h.Cgroups), h.Cgroups); c != nil {
			return c.Number, true
		}
		return 0, false
	})
}

// ofProcess returns the controlled container that a process belongs to, by its cgroup directory or
// by the container ID in its cgroup's name; nil if there is none.
func ofProcess(all []*Container, directory, cgroups string) *Container {
	var best *Container
	for _, c := range all {
		below := c.Seen.CgroupPath != "" && strings.HasPrefix(directory+"/", filepath.Clean(c.Seen.CgroupPath)+"/")
		named := c.Seen.CgroupPath == "" && strings.Contains(cgroups, c.Seen.ID)
		if (below || named) && (best == nil || len(c.Seen.CgroupPath) > len(best.Seen.CgroupPath)) {
			best = c
		}
	}
	if best == nil || best.Number != 0 {
		return best
	}
	if best.NetNS == (kernel.NetNSID{}) {
		return nil
	}
	return Owner(best.NetNS, best, all)
}
