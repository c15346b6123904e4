package cli

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/top"
)

// weir top --flows prints flows where there is no terminal, and has them in JSON.
func TestTopFlowsOnce(t *testing.T) {
	a := &fakeAgent{
		containers: []v1.Container{{Name: "phone", ID: "3", Direction: v1.Direction{Policy: v1.Policy{Class: v1.ClassAuto}}}},
		flows:      []v1.Flow{{Container: "phone", ID: "3", Protocol: "udp", Initiator: "198.18.0.3:4000", Responder: "198.18.9.1:5060", Class: v1.ClassEF}},
	}
	socket := a.serve(t)
	if code, stdout, stderr := run("top", "--flows", "--once", "--socket", socket); code != 0 || !strings.Contains(stdout, "198.18.9.1:5060") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if _, stdout, _ := run("top", "--flows", "-o", "json", "--socket", socket); !strings.Contains(stdout, `"responder": "198.18.9.1:5060"`) {
		t.Errorf("in JSON: %s", stdout)
	}
	if _, stdout, _ := run("top", "-o", "json", "--socket", socket); strings.Contains(stdout, `"flows": [`) {
		t.Errorf("in JSON without flows: %s", stdout)
	}
}

// EF above its maximum is shown where classes are, and beside the container.
func TestHeldEF(t *testing.T) {
	classes := []v1.ClassShare{{Class: v1.ClassEF, MaxBPS: 5e6, ExcessBPS: 2e6, Held: true}, {Class: v1.ClassAF}, {Class: v1.ClassBE}}
	c := v1.Container{Name: "call", State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Class: v1.ClassAuto}, Shares: []v1.Share{{Uplink: "eth0", Classes: classes}}}}
	const note = "2mbit of its EF is above 5mbit and served as be"
	for _, wide := range []bool{false, true} {
		var b strings.Builder
		if err := printContainers(&b, []v1.Container{c}, wide); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), note) || wide && !strings.Contains(b.String(), "held") {
			t.Errorf("wide %t:\n%s", wide, b.String())
		}
	}
	c.Policy.DSCP, c.PolicyFrom.DSCP = v1.DSCPBoth, v1.LayerLabels
	var b strings.Builder
	if err := printContainers(&b, []v1.Container{c}, true); err != nil || !strings.Contains(b.String(), "auto, dscp both (labels)") {
		t.Errorf("DSCP: %v\n%s", err, b.String())
	}
	picture := top.Render(top.Compute(top.Sample{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 1e8}}}, Containers: []v1.Container{c}}, top.ByRate), top.Window{Width: 200})
	if !strings.Contains(picture, "held: "+note) {
		t.Errorf("top:\n%s", picture)
	}
	classes[0].ExcessBPS = 0
	if got := top.HeldNote(classes); got != "some of its EF was above 5mbit and served as be" {
		t.Errorf("a moment later: %q", got)
	}
	if got := top.HeldNote(classes[1:]); got != "" {
		t.Errorf("of others: %q", got)
	}
}
