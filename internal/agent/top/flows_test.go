package top

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// someFlows is a sample with two containers whose flows are looked at, and one whose
// are not; web's second flow has sent so many bytes.
func someFlows(sentBytes uint64, now time.Time) Sample {
	auto := v1.Policy{Class: v1.ClassAuto}
	sample := Sample{Containers: []v1.Container{
		{Name: "web", ID: "1", Direction: v1.Direction{Policy: auto}}, {Name: "plain", ID: "2"}, {Name: "phone", ID: "3", Direction: v1.Direction{Policy: auto}},
		{Name: "host", ID: "host", Runtime: "host", Direction: v1.Direction{Policy: auto}},
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
	model := &Model{order: ByRate, sample: someFlows(1000, now), window: Window{Width: 160, Height: 40}}
	press := func(key string) string {
		model.Press(key)
		return model.View()
	}
	press("f")
	model.flows.setSample(model.sample, now)
	model.flows.setSample(someFlows(126_000, now.Add(time.Second)), now.Add(time.Second))
	lines := strings.Split(model.View(), "\n")
	if lines[0] != "flows of all containers whose class is auto: 3" || !strings.HasPrefix(lines[3], "web") ||
		!strings.Contains(lines[3], "BULK") || !strings.Contains(lines[3], "1mbit") || !strings.Contains(lines[3], "3.2ms") {
		t.Errorf("the first is to be the one that sends most:\n%s", model.View())
	}
	if text := press("right"); !strings.HasPrefix(text, "flows of phone: 1\n") || strings.Contains(text, "BULK") {
		t.Errorf("of phone:\n%s", text)
	}
	model.flows.setSample(someFlows(126_000, now), now.Add(2*time.Second)) // phone stays chosen
	if text := model.View(); !strings.HasPrefix(text, "flows of phone: 1\n") {
		t.Errorf("of phone, later:\n%s", text)
	}
	press("left")
	if text := press("left"); !strings.HasPrefix(text, "flows of web: 2\n") {
		t.Errorf("of web:\n%s", text)
	}
	model.window.Height = 8 // room for two lines of flows less
	if text := press("end"); strings.Count(text, "\n") > 8 || !strings.Contains(text, "0 more below") && !strings.Contains(text, "flows of web: 2") {
		t.Errorf("in a low terminal:\n%s", text)
	}
	if text := press("f"); strings.Contains(text, "flows of") || !strings.Contains(text, "f for flows") {
		t.Errorf("back among containers:\n%s", text)
	}
}

// Empty views say why.
func TestTopWithoutFlows(t *testing.T) {
	for want, sample := range map[string]Sample{
		"no container has the class auto": {Containers: []v1.Container{{Name: "plain"}}},
		"none was seen":                   {Containers: []v1.Container{{Name: "web", Direction: v1.Direction{Policy: v1.Policy{Class: v1.ClassAuto}}}}},
	} {
		view := flowView{shown: true}
		view.setSample(sample, time.Now())
		if text := view.render(Window{Width: 100}); !strings.Contains(text, want) {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
}
