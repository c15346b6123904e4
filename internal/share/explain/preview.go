package explain

import (
	"errors"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
)

// Preview returns the effect of another policy for the container with the given index in a
// snapshot. Both sides of the comparison are computed from the snapshot with the agent's
// own functions.
func Preview(s v1.Snapshot, index int, after v1.Policy) v1.Preview {
	c := s.Containers[index]
	p := v1.Preview{ID: c.ID, Name: c.Name, Before: c.Policy, After: after, Uplinks: []v1.UplinkPreview{}}
	changed := s
	changed.Containers = slices.Clone(s.Containers)
	changed.Containers[index].Policy = after
	for i, u := range s.Status.Uplinks {
		share := c.ShareAt(u.Name)
		if share == nil || !share.Controlled {
			continue
		}
		before, then := planned(s, i), planned(changed, i)
		shown := v1.UplinkPreview{Uplink: u.Name, Refused: refusal(then, index)}
		for j := range then {
			if then[j].known {
				b, a := before[j], then[j]
				shown.Shares = append(shown.Shares, v1.SharePreview{
					ID: s.Containers[j].ID, Name: s.Containers[j].Name,
					EntitledBeforeBPS: b.entitledBPS, EntitledAfterBPS: a.entitledBPS,
					AllocatedBeforeBPS: b.allocatedBPS, AllocatedAfterBPS: a.allocatedBPS,
					AdmittedBPS: a.grant.FloorBPS,
				})
			}
		}
		p.Uplinks = append(p.Uplinks, shown)
	}
	return p
}

// planShare is what a container would have at an uplink.
type planShare struct {
	known                     bool // the container has a share there
	grant                     plan.Grant
	entitledBPS, allocatedBPS uint64
}

// planned returns the planned share of each container at an uplink, by index.
func planned(s v1.Snapshot, uplink int) []planShare {
	u := s.Status.Uplinks[uplink]
	link := plan.Link{RateBPS: u.RateBPS, MTUBytes: u.MTUBytes, ReserveBasisPoints: basisPoints(u), PacketTime: policy.PacketTime(u.Precision)}
	list := make([]planShare, len(s.Containers))
	members, host := admitted(s, u.Name, link, list)

	containers := make([]alloc.Container, len(members), len(members)+1)
	for i, m := range members {
		containers[i] = m.Container
	}
	competes := u.HostCompetes && host.index >= 0
	hostEntitled, entitled := link.Entitle(new(alloc.Allocator), host.Container, competes, containers)
	var division plan.Division
	link.Allocate(new(alloc.Allocator), &division, append(containers, host.Container), competes)
	for i, m := range members {
		list[m.index].entitledBPS, list[m.index].allocatedBPS = entitled[i].BPS, division.AllocatedBPS[i]
	}
	if host.index >= 0 {
		shown := &list[host.index]
		shown.entitledBPS, shown.allocatedBPS = hostEntitled.BPS, max(hostEntitled.BPS, host.DemandBPS)
		if competes {
			shown.allocatedBPS = division.AllocatedBPS[len(members)]
		}
	}
	return list
}

// planMember is a container with a share at an uplink.
type planMember struct {
	alloc.Container
	index int // index in the snapshot; -1 for none
}

// admitted runs admission for all claims at an uplink and stores the grants in list. It
// returns the containers with a share there, with their admitted minimums.
func admitted(s v1.Snapshot, uplink string, link plan.Link, list []planShare) (members []planMember, host planMember) {
	var (
		claims    []plan.Claim
		hostClaim plan.Claim
	)
	host.index = -1
	for i := range s.Containers {
		c := &s.Containers[i]
		share := c.ShareAt(uplink)
		if share == nil || !share.Controlled {
			continue
		}
		list[i].known = true
		claim := plan.Claim{FloorBPS: c.Policy.MinBPS, HeldBPS: share.AdmittedBPS, Latency: policy.Latency(c.Policy)}
		m := planMember{newMember(c, share).Container, i}
		if isHost(c) {
			host, hostClaim = m, claim
			continue
		}
		members, claims = append(members, m), append(claims, claim)
	}
	hostGrant, grants := link.Admit(hostClaim, claims)
	for i, grant := range grants {
		list[members[i].index].grant = grant
		members[i].FloorBPS = grant.FloorBPS
	}
	if host.index >= 0 {
		list[host.index].grant = hostGrant
		host.FloorBPS = hostGrant.FloorBPS
	}
	return members, host
}

// basisPoints returns an uplink's reserve in hundredths of a percent of its rate.
func basisPoints(u v1.Uplink) uint32 {
	if step := u.RateBPS / 10_000; step > 0 {
		return uint32(u.ReserveBPS / step)
	}
	return 0
}

func refusal(list []planShare, index int) string {
	if err := errors.Join(list[index].grant.Refused, list[index].grant.RefusedLatency); err != nil {
		return err.Error()
	}
	return ""
}
