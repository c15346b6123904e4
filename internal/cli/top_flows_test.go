package cli

import (
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	v1 "github.com/weir-project/weir/api/v1"
)

// someFlows is a sample with two containers whose flows are looked at, and one whose
// are not; web's second flow has sent so many bytes.
func someFlows(sentBytes uint64, now time.Time) topSample {
	auto := v1.Policy{Class: v1.ClassAuto}
	sample := topSample{Containers: []v1.Container{
		{Name: "web", ID: "1", Policy: auto}, {Name: "plain", ID: "2"}, {Name: "phone", ID: "3", Policy: auto},
		{Name: "host", ID: "host", Runtime: "host", Policy: auto},
	}}
	for _, f := range []v1.Flow{
		{Container: "web", ID: "1", Protocol: "tcp", Initiator: "198.18.0.2:1", Responder: "198.18.9.1:443", Application: "WEB", Class: v1.ClassAF, SentBytes: 500},
		{Container: "web", ID: "1", Protocol: "tcp", Initiator: "198.18.0.2:2", Responder: "198.18.9.1:22", Application: "BULK", Class: v1.ClassBE, SentBytes: sentBytes, DelayMS: 3.2},
		{Container: "phone", ID: "3", Protocol: "udp", Initiator: "198.18.0.3:4000", Responder: "198.18.9.1:5060", Application: "VOIP", Class: v1.ClassEF, SentBytes: 1000},
	} {
		f.LastSeenAt = now
		sample.Flows = append(sample.Flows, f)
	}
	return sample
}

// f shows the flows, those that send most first; the arrows choose a container, and f
// goes back.
func TestTopFlows(t *testing.T) {
	now := time.Now()
	model := &topModel{order: byRate, sample: someFlows(1000, now), window: topWindow{width: 160, height: 40}}
	press := func(key tea.KeyMsg) string {
		model.Update(key)
		return model.View()
	}
	letter := func(r rune) tea.KeyMsg { return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}} }
	press(letter('f'))
	model.flows.take(model.sample, now)
	model.flows.take(someFlows(126_000, now.Add(time.Second)), now.Add(time.Second))
	lines := strings.Split(model.View(), "\n")
	if lines[0] != "flows of all containers whose class is auto: 3" || !strings.HasPrefix(lines[3], "web") ||
		!strings.Contains(lines[3], "BULK") || !strings.Contains(lines[3], "1mbit") || !strings.Contains(lines[3], "3.2ms") {
		t.Errorf("the first is to be the one that sends most:\n%s", model.View())
	}
	if text := press(tea.KeyMsg{Type: tea.KeyRight}); !strings.HasPrefix(text, "flows of phone: 1\n") || strings.Contains(text, "BULK") {
		t.Errorf("of phone:\n%s", text)
	}
	model.flows.take(someFlows(126_000, now), now.Add(2*time.Second)) // phone stays chosen
	if text := model.View(); !strings.HasPrefix(text, "flows of phone: 1\n") {
		t.Errorf("of phone, later:\n%s", text)
	}
	press(tea.KeyMsg{Type: tea.KeyLeft})
	if text := press(tea.KeyMsg{Type: tea.KeyLeft}); !strings.HasPrefix(text, "flows of web: 2\n") {
		t.Errorf("of web:\n%s", text)
	}
	model.window.height = 8 // room for two lines of flows less
	if text := press(tea.KeyMsg{Type: tea.KeyEnd}); strings.Count(text, "\n") > 8 || !strings.Contains(text, "0 more below") && !strings.Contains(text, "flows of web: 2") {
		t.Errorf("in a low terminal:\n%s", text)
	}
	if text := press(letter('f')); strings.Contains(text, "flows of") || !strings.Contains(text, "f for flows") {
		t.Errorf("back among containers:\n%s", text)
	}
}

// Empty views say why.
func TestTopFlowsOfNobody(t *testing.T) {
	for want, sample := range map[string]topSample{
		"no container has the class auto": {Containers: []v1.Container{{Name: "plain"}}},
		"none was seen":                   {Containers: []v1.Container{{Name: "web", Policy: v1.Policy{Class: v1.ClassAuto}}}},
	} {
		view := topFlows{shown: true}
		view.take(sample, time.Now())
		if text := view.render(topWindow{width: 100}); !strings.Contains(text, want) {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
}

// weir top --flows prints flows where there is no terminal, and has them in JSON.
func TestTopFlowsOnce(t *testing.T) {
	sample := someFlows(1, time.Now())
	a := &fakeAgent{containers: sample.Containers, flows: sample.Flows}
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
	c := v1.Container{Name: "call", State: v1.StateOK, Policy: v1.Policy{Class: v1.ClassAuto}, Shares: []v1.Share{{Uplink: "eth0", Classes: classes}}}
	const note = "2mbit of its EF is above 5mbit and served as be"
	for _, wide := range []bool{false, true} {
		var b strings.Builder
		if err := printTable(&b, []v1.Container{c}, wide); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), note) || wide && !strings.Contains(b.String(), "held") {
			t.Errorf("wide %t:\n%s", wide, b.String())
		}
	}
	c.Policy.DSCP, c.PolicyFrom.DSCP = v1.DSCPBoth, v1.LayerLabels
	var b strings.Builder
	if err := printTable(&b, []v1.Container{c}, true); err != nil || !strings.Contains(b.String(), "auto, dscp both (labels)") {
		t.Errorf("DSCP: %v\n%s", err, b.String())
	}
	top := renderTop(computeTop(topSample{Status: v1.Status{Uplinks: []v1.Uplink{{Name: "eth0", RateBPS: 1e8}}}, Containers: []v1.Container{c}}, byRate), topWindow{width: 200})
	if !strings.Contains(top, "held: "+note) {
		t.Errorf("top:\n%s", top)
	}
	classes[0].ExcessBPS = 0
	if got := heldNote(classes); got != "some of its EF was above 5mbit and served as be" {
		t.Errorf("a moment later: %q", got)
	}
	if got := heldNote(classes[1:]); got != "" {
		t.Errorf("of others: %q", got)
	}
}
