package explain

import (
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
)

// This file explains in words the rates that alloc gives a container's traffic classes
// (internal/share/alloc, classes.go; docs/architecture.md, "The tree").

// hasEF reports whether some, but not all, of the container's packets may be EF.
func hasEF(p v1.Policy) bool { return p.Class == v1.ClassEF || p.Class == v1.ClassAuto }

func classNotes(p v1.Policy) []string {
	switch p.Class {
	case v1.ClassAuto:
		return []string{"each flow has the class of its application, EF, AF or BE, and a flow of EF that sends as a transfer does is BE: weir flows shows them"}
	case v1.ClassEF:
		return []string{"all of its traffic is EF; what of that is above ef-max is served as BE"}
	case v1.ClassAF, v1.ClassBE:
		return []string{fmt.Sprintf("all of its traffic is %s and alike: classes divide one container's share, and are nothing to other containers", p.Class)}
	}
	return nil
}

func dscpNotes(p v1.Policy) (notes []string) {
	if policy.TrustsDSCP(p) {
		notes = append(notes, "what the container writes into the DSCP field decides the class of its packets, where that says one; the classifier judges all others",
			fmt.Sprintf("EF are %s; AF are %s; BE are %s", policy.FormatMarks(v1.ClassEF), policy.FormatMarks(v1.ClassAF), policy.FormatMarks(v1.ClassBE)))
	}
	if policy.MarksDSCP(p) {
		notes = append(notes, fmt.Sprintf("as they leave, EF packets carry DSCP %d, AF %d and BE %d, for the next hop",
			policy.MarkOf(v1.ClassEF), policy.MarkOf(v1.ClassAF), policy.MarkOf(v1.ClassBE)))
	}
	return notes
}

// classes explains the traffic classes of a share; nil if the container has no classes or
// only one.
func classes(c *v1.Container, share *v1.Share) []v1.ExplainedClass {
	if len(share.Classes) < 2 || !hasEF(c.Policy) {
		return nil
	}
	d := classDivision{policy: c.Policy, share: share, hasBPS: max(share.AllocatedBPS, share.EntitledBPS-min(share.HeldBackBPS, share.EntitledBPS))}
	d.parts = alloc.ClassParts{EFMax: alloc.Part(c.Policy.EFMax), AFMin: alloc.Part(c.Policy.AFMin)}
	d.rates = d.parts.Of(d.hasBPS)
	var list []v1.ExplainedClass
	for i := range share.Classes {
		class := &share.Classes[i]
		explained := v1.ExplainedClass{Class: class.Class, RateBPS: class.RateBPS}
		switch class.Class {
		case v1.ClassEF:
			explained.Because = d.ef(class)
		case v1.ClassAF:
			if c.Policy.Class == v1.ClassEF {
				continue // no such class
			}
			explained.Because = d.af(class)
		case v1.ClassBE:
			explained.Because = d.be(class)
		}
		list = append(list, explained)
	}
	return list
}

// Flows adds why flows of the container are BE although their verdict is another class.
func Flows(e *v1.Explanation, flows []v1.Flow) {
	var notes []string
	for _, f := range flows {
		if f.Why == "" {
			continue
		}
		notes = append(notes, fmt.Sprintf("the %s flow to %s is served as %s: %s", f.Application, f.Responder, f.Class, f.Why))
	}
	if more := len(notes) - mostFlowNotes; more > 0 {
		notes = append(notes[:mostFlowNotes], fmt.Sprintf("so are %d other flows: weir flows", more))
	}
	for i := range e.Shares {
		for j := range e.Shares[i].Classes {
			if c := &e.Shares[i].Classes[j]; c.Class == v1.ClassBE {
				c.Because = append(c.Because, notes...)
			}
		}
	}
}

// mostFlowNotes bounds the flows that an explanation names.
const mostFlowNotes = 3

// classDivision is the division of one share among traffic classes.
type classDivision struct {
	policy v1.Policy
	share  *v1.Share
	parts  alloc.ClassParts
	// rates are the class rates within hasBPS, the container's current allocation.
	hasBPS uint64
	rates  alloc.ClassRates
}

// part explains the size of one part of the share.
func (d *classDivision) part(name string, p v1.Part, is uint64) string {
	switch {
	case p.BPS == 0:
		return fmt.Sprintf("%s is %s of the %s that the container can have now", name, policy.FormatPart(p), rate(d.hasBPS))
	case is < p.BPS:
		return fmt.Sprintf("%s is %s, of which the %s that the container can have now leave %s", name, policy.FormatRate(p.BPS), rate(d.hasBPS), rate(is))
	}
	return fmt.Sprintf("%s is %s", name, policy.FormatRate(p.BPS))
}

func (d *classDivision) ef(c *v1.ClassShare) []string {
	text := []string{fmt.Sprintf("EF goes first up to %s: %s", rate(d.rates.EFBPS), d.part("ef-max", d.policy.EFMax, d.rates.EFBPS))}
	if before := min(d.rates.EFBPS, d.share.EntitledBPS); before > 0 {
		text = append(text, fmt.Sprintf("up to %s of it, within what the container is entitled to, also before the bulk of other containers", rate(before)))
	}
	switch {
	case c.Held && c.ExcessBPS > 0:
		text = append(text,
			fmt.Sprintf("it sends %s more than that, which is served as BE", rate(c.ExcessBPS)),
			"the flows that send most of it lose EF, each for 250ms at a time and again while it is too much; a single flow above the maximum loses it as a whole for that long; those that send little keep it",
			"raise ef-max if all of that is urgent, or send less of it")
	case c.Held:
		text = append(text, "in the last seconds it sent more than that: the flows that sent most of it were served as BE, each for 250ms at a time")
	case c.RateBPS == 0:
		text = append(text, "it sends nothing; AF and BE have what it leaves")
	default:
		text = append(text, "it gets all that it sends; AF and BE have what it leaves")
	}
	return text
}

func (d *classDivision) af(c *v1.ClassShare) []string {
	full := d.parts.AFMin.Of(d.hasBPS)
	why := d.part("af-min", d.policy.AFMin, full)
	if d.rates.AFBPS < full {
		why += fmt.Sprintf(", of which the %s of ef-max leave that", rate(d.rates.EFBPS))
	}
	text := []string{fmt.Sprintf("AF has %s before BE gets any: %s", rate(d.rates.AFBPS), why)}
	return append(text, d.turns(c, "BE", c.BacklogBytes > 0))
}

func (d *classDivision) be(c *v1.ClassShare) []string {
	others := "EF and AF leave"
	if d.policy.Class == v1.ClassEF {
		others = "EF leaves"
	}
	text := []string{fmt.Sprintf("BE has what %s: %s when they take all that is set aside for them", others, rate(d.rates.BEBPS))}
	if d.policy.Class == v1.ClassEF {
		text[0] = fmt.Sprintf("BE is what of EF is above its maximum; it has what %s, now at least %s", others, rate(d.hasBPS-d.rates.EFBPS))
	}
	return append(text, d.turns(c, "AF", c.BacklogBytes > 0))
}

// turns explains whether a class waits, and for which other class.
func (d *classDivision) turns(c *v1.ClassShare, other string, waits bool) string {
	af, be := d.rates.Turns()
	switch {
	case waits && d.policy.Class == v1.ClassEF:
		return "it wants more than it gets: EF goes first"
	case waits:
		return fmt.Sprintf("it wants more than it gets: what EF leaves goes to AF and BE in turns of %.0f to %.0f in a hundred while both want more",
			100*float64(af)/float64(af+be), 100*float64(be)/float64(af+be))
	case c.RateBPS == 0 && d.policy.Class == v1.ClassEF:
		return "there is none"
	case c.RateBPS == 0:
		return fmt.Sprintf("it sends nothing; %s has what it leaves", other)
	}
	return "it gets all that it sends"
}
