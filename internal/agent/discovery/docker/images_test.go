package docker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/agent/discovery"
)

// Which labels are the image's is asked once for each image, and what cannot be
// known is said and hides no container.
func TestImageLabels(t *testing.T) {
	e := newFakeEngine(t)
	e.images = map[string]string{
		"sha256:aa": `{"Id":"sha256:aa","Config":{"Labels":{"weir.min":"50mbit","maintainer":"x"}}}`,
		"sha256:bb": `{"Id":"sha256:bb","Config":null}`,
		"sha256:dd": `[]`,
	}
	answer := func(name string, pid int, image, labels string) {
		e.set(name, pid, fakeContainer{listed: true, answer: fmt.Sprintf(`{
			"Id": %q, "Name": "/%s", "Image": %q, "State": {"Running": true, "Pid": %d, "StartedAt": "2024-05-06T07:08:09Z"},
			"Config": {"Image": "registry.example/%s:1", "Labels": %s}, "HostConfig": {"NetworkMode": "default"},
			"NetworkSettings": {"Networks": {"bridge": {"NetworkID": "net1"}}}}`,
			id(name), name, image, pid, name, labels)})
	}
	const given = `{"weir.min":"50mbit","weir.weight":"5"}`
	answer("one", 11, "sha256:aa", given)
	answer("two", 12, "sha256:aa", given)
	answer("bare", 13, "sha256:bb", given)
	answer("gone", 14, "sha256:cc", given)
	answer("odd", 15, "sha256:dd", given)
	answer("unnamed", 16, "", given)
	answer("unlabelled", 17, "sha256:cc", `null`)
	e.start()
	events := e.watchFake()
	first := <-events
	found := map[string]discovery.Container{}
	for _, c := range first.Snapshot.Containers {
		found[c.Name] = c
	}
	for name, want := range map[string]struct{ label, unknown string }{
		"one": {"50mbit", ""}, "two": {"50mbit", ""}, "bare": {"", ""}, "unlabelled": {"", ""},
		"gone": {"", "no such image"}, "odd": {"", "read the engine's answer"}, "unnamed": {"", "does not say which image"},
	} {
		c, ok := found[name]
		if !ok || c.Image != "registry.example/"+name+":1" || c.ImageLabels["weir.min"] != want.label ||
			(c.ImageUnknown != "") != (want.unknown != "") || !strings.Contains(c.ImageUnknown, want.unknown) {
			t.Errorf("%s: %+v, want %+v", name, c, want)
		}
	}
	e.mu.Lock()
	before := e.imagesRead
	e.mu.Unlock()
	answer("three", 18, "sha256:aa", given)
	e.containerEvent("start", "three")
	if got := expect(t, events, "updated three"); got.Updated.ImageLabels["weir.min"] != "50mbit" {
		t.Errorf("%+v", got.Updated)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.imagesRead != before {
		t.Error("an image that is known was asked for again")
	}
}
