package runtime

import (
	"maps"
	"testing"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
)

// The ledger counts a service's minimum once on a node, so one container has it.
func TestLabelsWithoutMinimum(t *testing.T) {
	labels := map[string]string{"weir.min": "1mbit", "weir.latency": "5ms", "weir.in.min": "1mbit", "weir.in.latency": "5ms", "weir.weight": "2", "x": "y"}
	if got := LabelsWithoutMinimum(labels); !maps.Equal(got, map[string]string{"weir.weight": "2", "x": "y"}) || len(labels) != 6 {
		t.Errorf("got %v", got)
	}
	if LabelsWithoutMinimum(nil) == nil {
		t.Error("labels of nothing cannot be added to")
	}
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestPin: the digest is that of the repository which the specification names. Engines sort
// digests by name.
func TestPin(t *testing.T) {
	digests := []string{"nginx@" + digest, "registry.lan:5000/nginx@" + digest}
	for name, want := range map[string]string{
		"registry.lan:5000/nginx":         digests[1],
		"registry.lan:5000/nginx:1.2":     digests[1],
		"nginx:latest":                    digests[0],
		"docker.io/library/nginx":         digests[0],
		"other/nginx":                     "sha256:id",
		"registry.lan:5000/nginx:1.2@":    "sha256:id", // not a name
		"registry.lan:5000/library/nginx": "sha256:id",
	} {
		found := client.ImageInspectResult{InspectResponse: image.InspectResponse{ID: "sha256:id", RepoDigests: digests}}
		if got := Pin(name, found); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestCanRun(t *testing.T) {
	for image, nodes := range map[string]map[string]string{
		"arm": {"arm": "", "arm64": "note", "amd64": "no"}, "386": {"amd64": "note", "arm64": "no"},
		"amd64": {"amd64": "", "386": "no", "": ""}, "": {"arm": ""},
	} {
		for node, want := range nodes {
			can, note := CanRun("shop", image, "n", node)
			if can != (want != "no") || (note != "") != (want == "note") {
				t.Errorf("%s on %s: %v, %q", image, node, can, note)
			}
		}
	}
}
