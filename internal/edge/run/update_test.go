package run

import (
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

func listed(image, ports string) runtime.Service {
	return runtime.Service{Name: "shop", Pinned: image, Document: `{"par": {"serviceName": "shop", "imageName": "` + image + `"}, "ports": [` + ports + `]}`}
}

// TestUpdateOf: a service goes back to what answered last, and to nothing that it is.
func TestUpdateOf(t *testing.T) {
	var o Options
	made := func(s runtime.Service) runtime.Service {
		of, _, err := o.serviceOf(s.Document, s.Pinned)
		if err != nil {
			t.Fatal(err)
		}
		of.Document, of.Update = s.Document, s.Update
		return of
	}
	first, second, third := listed("i:1", ""), made(listed("i:2", "")), made(listed("i:3", ""))
	if kept := o.updateOf(&first, &second, false); kept.Before != nil {
		t.Errorf("one that does not answer: %+v", kept)
	}
	second.Update = o.updateOf(&first, &second, true)
	if second.Update.Before == nil || second.Update.Before.Document != first.Document {
		t.Fatalf("one that answers: %+v", second.Update)
	}
	if kept := o.updateOf(&second, &third, true); kept.Before == nil || kept.Before.Pinned != "i:1" {
		t.Errorf("while an update is in progress: %+v", kept)
	}
	again := made(first)
	if kept := o.updateOf(&second, &again, true); kept.Before != nil {
		t.Errorf("taken back by hand: %+v", kept)
	}
}

// TestGaps: what users lose is said, and nothing else.
func TestGaps(t *testing.T) {
	var o Options
	was, _, err := o.serviceOf(listed("i:1", `{"host": 80, "container": 80}`).Document, "i:1")
	if err != nil {
		t.Fatal(err)
	}
	for ports, want := range map[string]string{`{"host": 80, "container": 81}`: "", `{"host": 81, "container": 80}`: "its proxy starts anew"} {
		is, parsed, err := o.serviceOf(listed("i:2", ports).Document, "i:2")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.gaps(&was, &is, &parsed, true), "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", ports, got)
		}
		if notes := (&Options{Schedules: true}).gaps(&was, &is, &parsed, true); len(notes) > 0 {
			t.Errorf("%s, without proxies: %q", ports, notes)
		}
		seen := &observation{services: []runtime.Service{is}, before: map[string]runtime.Service{"shop": was}}
		for made, port := range map[string]uint16{was.Made: was.Ports[0].Container, "": was.Ports[0].Container, is.Made: is.Ports[0].Container} {
			host := is.Ports[0].Host
			if host != was.Ports[0].Host && made != is.Made {
				port = 0
			}
			if got := seen.containerPort(&is, made, host); got != port {
				t.Errorf("users of port %d reach an instance of %q at %d, not at %d", host, made, got, port)
			}
		}
	}
}

// TestPlanUpdates: an update ends as it was decided.
func TestPlanUpdates(t *testing.T) {
	is, was := runtime.Service{Name: "shop", Made: "2", Update: runtime.Update{Before: &runtime.Version{}}}, runtime.Service{Name: "shop", Made: "1"}
	o := &observation{services: []runtime.Service{is}, before: map[string]runtime.Service{"shop": was}}
	steps := planUpdates(o, []engine.Decision{
		{Action: engine.Keep, Service: "shop"}, {Action: engine.GoBack, Service: "gone"},
		{Action: engine.Settle, Service: "shop"}, {Action: engine.GoBack, Service: "shop", Reason: "why"},
	})
	if len(steps) != 2 || steps[0].service.Made != "2" || steps[0].service.Update != (runtime.Update{}) || steps[1].service.Made != "1" || steps[1].service.Update != (runtime.Update{Left: "2", Reason: "why"}) {
		t.Errorf("%+v", steps)
	}
}
