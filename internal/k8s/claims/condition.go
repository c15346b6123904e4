package claims

import (
	"fmt"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Guaranteed is the type of the condition of each share of a claim.
const Guaranteed = "Guaranteed"

// Values of a condition, as Kubernetes spells them.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// Reasons of a condition.
const (
	InForce    = "InForce"
	NotStarted = "PodNotStarted"
	Refused    = "Refused"
	Cut        = "Cut"
	Degraded   = "Degraded"
	NoUplink   = "NoUplink"
	NoAgent    = "NoAgent"
)

// renewInterval is how old LastSeen may become while nothing changes. Kubelet reports an unchanged
// node as often.
const renewInterval = 5 * time.Minute

// Condition says whether the kernel has what was promised.
type Condition struct {
	Status, Reason, Message string
	// Since is when Status became what it is, LastSeen when it was last seen to be true.
	Since, LastSeen time.Time
}

// Judge returns the condition of a share of a claim, without times. v is nil while the agent does not
// answer: the condition is Unknown, as the kernel's state cannot be read then.
func (l Ledger) Judge(c Claim, s Share, v *View) Condition {
	if v == nil {
		return Condition{Status: Unknown, Reason: NoAgent, Message: "the agent does not answer"}
	}
	u := v.uplink(s.Device)
	if u == nil {
		return Condition{Status: False, Reason: NoUplink, Message: "the agent has no uplink for device " + s.Device}
	}
	pod := v.container(c)
	if pod == nil {
		return Condition{Status: False, Reason: NotStarted, Message: "the agent has no pod " + c.Namespace + "/" + c.Pod.Name}
	}
	wanted := l.ofPod(c.Pod.UID)[s.Device]
	for _, d := range []struct {
		what      string
		wantedBPS uint64
		direction *v1.Direction
	}{{"", wanted.EgressBPS, &pod.Direction}, {" of received traffic", wanted.IngressBPS, pod.In}} {
		if d.wantedBPS == 0 {
			continue
		}
		if reason, hasBPS := shortfall(d.direction, u.Name, d.wantedBPS); reason != "" {
			message := fmt.Sprintf("the pod has %s of its minimum of %s%s", policy.FormatRate(hasBPS), policy.FormatRate(d.wantedBPS), d.what)
			return Condition{Status: False, Reason: reason, Message: because(message, pod)}
		}
	}
	if pod.State == v1.StateDegraded {
		return Condition{Status: False, Reason: Degraded, Message: because("the pod is degraded", pod)}
	}
	return Condition{Status: True, Reason: InForce, Message: describe(s.Rates) + " at uplink " + u.Name}
}

// shortfall returns why a direction of a pod has less than a minimum, and what it has; "" if it has it.
func shortfall(d *v1.Direction, uplink string, wantedBPS uint64) (reason string, hasBPS uint64) {
	var s *v1.Share
	if d != nil {
		s = d.ShareAt(uplink)
	}
	switch {
	case s == nil || !s.Controlled:
		return Degraded, 0
	case s.AdmittedBPS < wantedBPS:
		return Refused, s.AdmittedBPS
	case s.EntitledBPS < wantedBPS:
		return Cut, s.EntitledBPS
	}
	return "", wantedBPS
}

func because(message string, pod *v1.Container) string {
	if pod.Reason == "" {
		return message
	}
	return message + ": " + pod.Reason
}

// describe returns rates in words.
func describe(r Rates) string {
	var parts []string
	if r.EgressBPS > 0 {
		parts = append(parts, policy.FormatRate(r.EgressBPS))
	}
	if r.IngressBPS > 0 {
		parts = append(parts, policy.FormatRate(r.IngressBPS)+" of received traffic")
	}
	if len(parts) == 0 {
		parts = []string{"no minimum"}
	}
	return strings.Join(parts, " and ")
}

// After returns a condition with its times, given the one before it; the zero condition is before the
// first. No time is in the future of now: the clock may have been set back.
func (c Condition) After(before Condition, now time.Time) Condition {
	c.Since, c.LastSeen = now, before.LastSeen
	if c.Status == before.Status && before.Since.Before(now) {
		c.Since = before.Since
	}
	if c.Status == True || c.LastSeen.After(now) {
		c.LastSeen = now
	}
	return c
}

// Differs reports whether a condition has to be written to the API server, given the condition written last.
func (c Condition) Differs(told Condition) bool {
	return c.Status != told.Status || c.Reason != told.Reason || c.Message != told.Message ||
		c.LastSeen.Sub(told.LastSeen).Abs() >= renewInterval
}
