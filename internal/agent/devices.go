package agent

import (
	"slices"
	"time"

	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/uplink"
)

// What the kernel tells of devices that come, change and go, and who is looked at
// again for it.

// linkChanged handles a device that came, changed or went.
func (a *Agent) linkChanged(event kernel.LinkEvent) {
	known, changed := false, false
	for _, u := range a.uplinks {
		// One that is gone may come back under the name in the configuration.
		back := u.device.State() == uplink.Absent && event.Link.Name == u.device.Config().Name
		if back || event.Link.Index == u.device.Ifindex() || event.Link.Name == u.name {
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
		a.registry.lostVeth(event.Link.Index)
	} else {
		a.registry.movedVeth(event.Link.Index, event.Link.MasterIndex)
	}
	// Perhaps the veth of a container that we could not find one of, or another
	// one of a container that no engine tells us about.
	unknown := !event.Deleted && !a.registry.hasVeth(event.Link.Index)
	if unknown && !slices.Contains(a.unknownVeths, event.Link.Index) {
		a.unknownVeths = append(a.unknownVeths, event.Link.Index)
	}
	if unknown || a.registry.anyUnattached() {
		a.rescanSoon()
	}
}

// matchVeths looks at the containers that no engine tells us about and in which
// the other ends of veths are that belong to no container that is known: they
// have got another device. It returns how many those are.
func (a *Agent) matchVeths() int {
	inspected := 0
	for _, ifindex := range a.unknownVeths {
		if a.registry.hasVeth(ifindex) {
			continue
		}
		veth, err := kernel.LinkByIndex(ifindex)
		if err != nil || veth.PeerNetNSID == kernel.SameNetNS {
			continue // it is gone, or no container's
		}
		inspected += a.inspectConfigured(veth.PeerNetNSID)
	}
	a.unknownVeths = a.unknownVeths[:0]
	return inspected
}

// rescanDelay lets the events of one container's start come together.
const rescanDelay = 5 * time.Millisecond

func (a *Agent) rescanSoon() {
	if a.rescanning {
		return
	}
	a.rescanning = true
	time.AfterFunc(rescanDelay, func() { a.rescan <- struct{}{} })
}
