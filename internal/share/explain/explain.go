// Package explain says in words why a container has its entitlement and its allocation, and
// what would increase them.
//
// It is a function over one snapshot of the agent. The numbers are those of
// internal/share/plan and internal/share/alloc on the inputs that the snapshot holds: what
// would be if a value were another is computed by the same allocation that
// decides.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/plan"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/internal/share/sched"
)

// Container explains the container with the given index in a snapshot.
func Container(s v1.Snapshot, index int) v1.Explanation {
	c := s.Containers[index]
	e := v1.Explanation{Container: c, Policy: values(&c, s.Status.Uplinks), Shares: explainShares(s, index, "send")}
	explainIncoming(&e, s, index)
	return e
}

// explainShares explains the shares of the container with the given index of what uplinks send, or
// receive, which is verb.
func explainShares(s v1.Snapshot, index int, verb string) []v1.ExplainedShare {
	c, list := s.Containers[index], []v1.ExplainedShare{}
	for _, share := range c.Shares {
		explained := v1.ExplainedShare{Uplink: share.Uplink, EntitledBPS: share.EntitledBPS, AllocatedBPS: share.AllocatedBPS}
		i := slices.IndexFunc(s.Status.Uplinks, func(u v1.Uplink) bool { return u.Name == share.Uplink })
		if obstacle := obstacle(s, &c, &share, i); obstacle != "" {
			explained.Entitled = []string{obstacle}
			explained.Allocated = []string{"it has no share of its own here"}
			explained.ForMore = []string{"that has to change first; weir doctor says what this host can control"}
			if c.CountedWith != "" {
				explained.ForMore = []string{"ask for more for the container that it is counted with"}
			}
		} else {
			d := newDivision(s, i, index)
			d.verb = verb
			if d.isHost && !d.uplink.HostCompetes {
				explained.EntitledBPS = d.link().HostReserveBPS(d.host.FloorBPS)
			}
			explained.Entitled, explained.Allocated, explained.ForMore = d.entitlement(), d.allocation(), d.forMore()
			explained.Allocated = append(explained.Allocated, heldBack(&share)...)
			explained.Allocated = append(explained.Allocated, packetTime(d.uplink)...)
			explained.Classes = classes(&c, &share)
		}
		list = append(list, explained)
	}
	return list
}

// packetTime says how long a packet may hold an uplink that is not shared exactly.
func packetTime(u v1.Uplink) []string {
	if u.Precision != v1.PrecisionBalanced && u.Precision != v1.PrecisionLow {
		return nil
	}
	held := plan.Link{RateBPS: u.RateBPS, MTUBytes: u.MTUBytes, PacketTime: policy.PacketTime(u.Precision)}.LongestPacket()
	return []string{fmt.Sprintf("precision %s: a packet of others may hold the uplink for %v, which adds to every wait", u.Precision, held.Round(10*time.Microsecond))}
}

// obstacle returns why a share is not controlled, or "" if it is.
func obstacle(s v1.Snapshot, c *v1.Container, share *v1.Share, uplink int) string {
	switch {
	case c.Mode == v1.ModeNone:
		return "it has no network: there is nothing to share out"
	case uplink < 0 || !s.Status.Uplinks[uplink].Present:
		return fmt.Sprintf("the uplink %s is not there", share.Uplink)
	case !share.Controlled && c.CountedWith != "":
		return c.Reason
	case !share.Controlled && c.Reason != "":
		return "it is not controlled: " + c.Reason
	case !share.Controlled:
		return "it is not controlled: the agent has not assigned its packets to it yet"
	}
	return ""
}

const none = "none"

// values explains the values of a policy one by one.
func values(c *v1.Container, uplinks []v1.Uplink) []v1.ExplainedValue {
	p, from := c.Policy, c.PolicyFrom
	class := string(p.Class)
	if p.Class == v1.ClassNone {
		class = none
	}
	list := []v1.ExplainedValue{
		{Name: "weight", Value: strconv.FormatUint(uint64(p.Weight), 10), From: from.Weight},
		{Name: "min", Value: rateOrNone(p.MinBPS), From: from.Min, Notes: minimumNotes(c)},
		{Name: "max", Value: rateOrNone(p.MaxBPS), From: from.Max},
		{Name: "priority", Value: strconv.FormatUint(uint64(p.Priority), 10), From: from.Priority},
		{Name: "latency", Value: latencyOrNone(p), From: from.Latency, Notes: latencyNotes(c, uplinks)},
		{Name: "class", Value: class, From: from.Class, Notes: classNotes(p)},
	}
	if hasEF(p) {
		list = append(list, v1.ExplainedValue{Name: "ef-max", Value: policy.FormatPart(p.EFMax), From: from.EFMax})
	}
	if p.Class == v1.ClassAuto {
		list = append(list, v1.ExplainedValue{Name: "af-min", Value: policy.FormatPart(p.AFMin), From: from.AFMin})
	}
	if p.Class != v1.ClassNone {
		list = append(list, v1.ExplainedValue{Name: "dscp", Value: cmp.Or(string(p.DSCP), none), From: from.DSCP, Notes: dscpNotes(p)})
	}
	if p.MaxBPS > 0 && p.MaxBPS < p.MinBPS {
		list[2].Notes = []string{"below the minimum: the maximum wins"}
	}
	for _, u := range uplinks {
		if u.RateBPS > 0 && p.MaxBPS > u.RateBPS {
			list[2].Notes = append(list[2].Notes, fmt.Sprintf("%s: above the uplink's rate of %s, so it limits nothing", u.Name, rate(u.RateBPS)))
		}
	}
	return list
}

func minimumNotes(c *v1.Container) (notes []string) {
	for _, share := range c.Shares {
		if share.Controlled && share.AdmittedBPS < c.Policy.MinBPS {
			notes = append(notes, fmt.Sprintf("%s: refused, %s is in force: the minimums of all must fit the uplink less its reserve", share.Uplink, rateOrNone(share.AdmittedBPS)))
		}
	}
	return notes
}

func latencyNotes(c *v1.Container, uplinks []v1.Uplink) (notes []string) {
	if c.Policy.LatencyMS == 0 {
		return nil
	}
	for _, share := range c.Shares {
		switch {
		case !share.Controlled:
		case share.LatencyMS == 0:
			notes = append(notes, fmt.Sprintf("%s: refused, no bound is in force", share.Uplink))
		default:
			notes = append(notes, fmt.Sprintf("%s: holds for traffic within the minimum of %s, in packets of at most %d bytes (rate x latency); a larger packet waits for its own tokens",
				share.Uplink, rate(share.AdmittedBPS), uint64(float64(share.AdmittedBPS)*share.LatencyMS/8e3))+serviceCurve(&share, uplinks))
		}
	}
	return notes
}

// serviceCurve returns the same bound as a service curve of HFSC; empty if there is none.
func serviceCurve(share *v1.Share, uplinks []v1.Uplink) string {
	i := slices.IndexFunc(uplinks, func(u v1.Uplink) bool { return u.Name == share.Uplink })
	if i < 0 {
		return ""
	}
	curve, ok := sched.CurveFor(share.AdmittedBPS, share.LatencyMS, uplinks[i].RateBPS, uplinks[i].MTUBytes)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; HFSC's curve for it: m1 %s d %.4gms m2 %s", rate(curve.M1BPS), curve.DMS, rate(curve.M2BPS))
}

func rate(bps uint64) string { return policy.FormatRateShort(bps) }

func rateOrNone(bps uint64) string {
	if bps == 0 {
		return none
	}
	return policy.FormatRate(bps)
}

func latencyOrNone(p v1.Policy) string {
	if p.LatencyMS == 0 {
		return none
	}
	return time.Duration(p.LatencyMS * float64(time.Millisecond)).String()
}

// shownNames is how many names a sentence lists.
const shownNames = 4

// names lists the first members by name and counts the rest.
func names(list []member) string {
	var words []string
	for i, m := range list {
		if i == shownNames {
			words = append(words, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		words = append(words, m.name)
	}
	return strings.Join(words, ", ")
}

// count returns a number of containers in words.
func count(n int) string {
	if n == 1 {
		return "1 container"
	}
	return fmt.Sprintf("%d containers", n)
}
