package loop

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Kernel events about devices that appear, change or go, and the containers to inspect because of
// them.

// linkChanged handles a device that appeared, changed or went.
func (a *Agent) linkChanged(event kernel.LinkEvent) {
	known, changed := false, false
	for _, u := range a.uplinks.list {
		// A device that was gone may come back under its configured name.
		back := u.device.State() == uplink.Absent && event.Link.Name == u.device.Config().Name
		if back || u.concerns(event.Link) || u.of != nil && u.of.concerns(event.Link) {
			known = true
			changed = a.advance(u) || changed
		}
	}
	if changed {
		a.reconcile()
	}
	if known {
		return
	}
	if event.Link.Kind != "veth" {
		return
	}
	if event.Deleted {
		a.containers.lostVeth(event.Link.Index)
	} else {
		a.containers.movedVeth(event.Link.Index, event.Link.MasterIndex)
	}
	// It may be the veth of a container whose veth was not found yet, or another veth of a
	// container that no engine reports.
	unknown := !event.Deleted && !a.containers.hasVeth(event.Link.Index)
	if unknown && !slices.Contains(a.containers.unknownVeths, event.Link.Index) {
		a.containers.unknownVeths = append(a.containers.unknownVeths, event.Link.Index)
	}
	if unknown || a.containers.anyUnattached() {
		a.containers.rescanSoon()
	}
}

// concerns reports whether a device is the uplink's.
func (u *link) concerns(l kernel.Link) bool {
	return l.Index == u.device.Ifindex() || l.Name == u.device.Name()
}

// matchVeths finds the owners of unknown veths among containers that no engine reports, and
// inspects them again. It returns the number of these containers.
func (cs *containers) matchVeths() int {
	inspected := 0
	for _, ifindex := range cs.unknownVeths {
		if cs.hasVeth(ifindex) {
			continue
		}
		veth, err := kernel.LinkByIndex(ifindex)
		if err != nil || veth.PeerNetNSID == kernel.SameNetNS {
			continue // it is gone, or belongs to no container
		}
		inspected += cs.inspectConfigured(veth.PeerNetNSID)
	}
	cs.unknownVeths = cs.unknownVeths[:0]
	return inspected
}

// rescanDelay collects the events of one container's start.
const rescanDelay = 5 * time.Millisecond

func (cs *containers) rescanSoon() {
	if cs.rescanning {
		return
	}
	cs.rescanning = true
	time.AfterFunc(rescanDelay, func() { cs.rescan <- struct{}{} })
}
