package explain

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
)

// classed is a container with classes at an uplink of 100 Mbit/s, and what is seen of
// them: EF, AF and BE.
func classed(p v1.Policy, seen ...v1.ClassShare) (*v1.Container, *v1.Share) {
	c := container(sender{"call", p, wantsMore}, 20e6, 20e6, 0)
	for i, class := range []v1.Class{v1.ClassEF, v1.ClassAF, v1.ClassBE} {
		seen[i].Class = class
	}
	c.Shares[0].Classes = seen
	return &c, &c.Shares[0]
}

func TestClasses(t *testing.T) {
	half := v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{Percent: 30}}
	rates := v1.Policy{Weight: 100, Class: v1.ClassAuto, EFMax: v1.Part{BPS: 16e6}, AFMin: v1.Part{BPS: 8e6}}
	all := v1.Policy{Weight: 100, Class: v1.ClassEF, EFMax: v1.Part{Percent: 50}, AFMin: v1.Part{Percent: 30}}
	for _, test := range []struct {
		name       string
		policy     v1.Policy
		seen       []v1.ClassShare
		ef, af, be string
	}{
		{
			"within its bounds", half, []v1.ClassShare{{RateBPS: 1e6}, {RateBPS: 5e6, BacklogBytes: 9000}, {RateBPS: 3e6, BacklogBytes: 9000}},
			"EF goes first up to 10mbit: ef-max is 50% of the 20mbit that the container can have now; " +
				"up to 10mbit of it, within what the container is entitled to, also before the bulk of other containers; " +
				"it gets all that it sends; AF and BE have what it leaves",
			"AF has 6mbit before BE gets any: af-min is 30% of the 20mbit that the container can have now; " +
				"it wants more than it gets: what EF leaves goes to AF and BE in turns of 60 to 40 in a hundred while both want more",
			"BE has what EF and AF leave: 4mbit when they take all that is set aside for them; " +
				"it wants more than it gets: what EF leaves goes to AF and BE in turns of 60 to 40 in a hundred while both want more",
		},
		{
			"nothing is sent", half, []v1.ClassShare{{}, {}, {RateBPS: 1}},
			"EF goes first up to 10mbit: ef-max is 50% of the 20mbit that the container can have now; " +
				"up to 10mbit of it, within what the container is entitled to, also before the bulk of other containers; " +
				"it sends nothing; AF and BE have what it leaves",
			"AF has 6mbit before BE gets any: af-min is 30% of the 20mbit that the container can have now; it sends nothing; BE has what it leaves",
			"BE has what EF and AF leave: 4mbit when they take all that is set aside for them; it gets all that it sends",
		},
		{
			"too much EF", rates, []v1.ClassShare{{RateBPS: 15e6, ExcessBPS: 3e6, Held: true}, {}, {}},
			"EF goes first up to 16mbit: ef-max is 16mbit; " +
				"up to 16mbit of it, within what the container is entitled to, also before the bulk of other containers; " +
				"it sends 3mbit more than that, which is served as BE; " +
				"the flows that send most of it lose EF, each for 250ms at a time and again while it is too much; a single flow above the maximum loses it as a whole for that long; those that send little keep it; " +
				"raise ef-max if all of that is urgent, or send less of it",
			"AF has 4mbit before BE gets any: af-min is 8mbit, of which the 16mbit of ef-max leave that; " +
				"it sends nothing; BE has what it leaves",
			"BE has what EF and AF leave: 0bit when they take all that is set aside for them; it sends nothing; AF has what it leaves",
		},
		{
			"all of it EF", all, []v1.ClassShare{{RateBPS: 10e6, Held: true}, {}, {RateBPS: 4e6, BacklogBytes: 1500}},
			"EF goes first up to 10mbit: ef-max is 50% of the 20mbit that the container can have now; " +
				"up to 10mbit of it, within what the container is entitled to, also before the bulk of other containers; " +
				"in the last seconds it sent more than that: the flows that sent most of it were served as BE, each for 250ms at a time",
			"",
			"BE is what of EF is above its maximum; it has what EF leaves, now at least 10mbit; it wants more than it gets: EF goes first",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[v1.Class]string{}
			for _, class := range classes(classed(test.policy, test.seen...)) {
				got[class.Class] = strings.Join(class.Because, "; ")
			}
			for class, want := range map[v1.Class]string{v1.ClassEF: test.ef, v1.ClassAF: test.af, v1.ClassBE: test.be} {
				if got[class] != want {
					t.Errorf("%s: %s\nwant %s", class, got[class], want)
				}
			}
		})
	}
	c, share := classed(half, v1.ClassShare{}, v1.ClassShare{}, v1.ClassShare{})
	share.AllocatedBPS, share.HeldBackBPS = 16e6, 4e6
	if got := classes(c, share)[0].Because[0]; !strings.HasPrefix(got, "EF goes first up to 8mbit: ") {
		t.Errorf("held back: %s", got)
	}
	c, share = classed(v1.Policy{Class: v1.ClassBE}, v1.ClassShare{}, v1.ClassShare{}, v1.ClassShare{})
	if got := classes(c, share); got != nil {
		t.Errorf("of a container that is be as a whole: %+v", got)
	}
}

// What classes and the DSCP field mean for a container stands beside its policy.
// Flows that are bulk are named below BE, the first few of them.
func TestFlows(t *testing.T) {
	one := v1.Flow{Application: "SERVICES", Responder: "198.18.9.1:5401", Class: v1.ClassBE, Why: "bulk: 18 kB in 12ms"}
	e := v1.Explanation{Shares: []v1.ExplainedShare{{Classes: []v1.ExplainedClass{{Class: v1.ClassEF}, {Class: v1.ClassBE}}}}}
	Flows(&e, []v1.Flow{{Class: v1.ClassEF}, one, one, one, one, one})
	classes := e.Shares[0].Classes
	if got := strings.Join(classes[1].Because, "; "); len(classes[0].Because) > 0 || len(classes[1].Because) != 4 ||
		!strings.HasPrefix(got, "the SERVICES flow to 198.18.9.1:5401 is served as be: bulk: 18 kB in 12ms; ") || !strings.HasSuffix(got, "so are 2 other flows: weir flows") {
		t.Errorf("%q", got)
	}
}

func TestClassNotes(t *testing.T) {
	for class, want := range map[v1.Class]string{
		v1.ClassNone: "", v1.ClassAuto: "each flow has the class of its application", v1.ClassEF: "above ef-max is served as BE",
		v1.ClassAF: "nothing to other containers",
	} {
		if got := strings.Join(classNotes(v1.Policy{Class: class}), "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: %q", class, got)
		}
	}
	for use, want := range map[v1.DSCP]int{v1.DSCPNone: 0, v1.DSCPTrust: 2, v1.DSCPMark: 1, v1.DSCPBoth: 3} {
		if got := dscpNotes(v1.Policy{DSCP: use}); len(got) != want {
			t.Errorf("%q: %q", use, got)
		}
	}
}
