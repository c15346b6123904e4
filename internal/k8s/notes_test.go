package k8s

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// TestLabels: of a pod's annotations the latest count, also if there are none any more, and claimed minimums
// replace those of annotations.
func TestLabels(t *testing.T) {
	n := notes{
		ledger: claims.Ledger{"c": {UID: "c", Pod: claims.Pod{UID: "claims"}, Shares: []claims.Share{{Device: "eth0", Rates: claims.Rates{EgressBPS: 3e6}}}}},
		annotations: claims.Annotations{
			"changed": {"weir.max": "5mbit"}, "bare": {}, "null": nil,
			"claims": {"weir.min": "7mbit", "weir.in.min": "9mbit", "weir.weight": "300"},
		},
	}
	atStart := map[string]string{"weir.min": "2mbit"}
	for uid, want := range map[string]map[string]string{
		"unknown": atStart, "changed": {"weir.max": "5mbit"}, "bare": {}, "null": {},
		"claims": {"weir.min": "3mbit", "weir.weight": "300"},
	} {
		if got := n.labels(uid, atStart); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", uid, got, want)
		}
	}
	if len(atStart) != 1 || len(n.annotations["claims"]) != 3 {
		t.Errorf("the annotations themselves have changed: %v, %v", atStart, n.annotations)
	}
}

// TestLookAtNotes: the agent has changed annotations when a look at the notes ends.
func TestLookAtNotes(t *testing.T) {
	agent := serveAgent(t, v1.PodState{})
	r, end := startReporter(agent.socket, 20*time.Second)
	defer end()
	p := &plugin{reporter: r, log: slog.New(slog.DiscardHandler), folder: t.TempDir()}
	_, _ = p.Synchronize(t.Context(), []*api.PodSandbox{sandbox("a")}, nil)
	var seen noteFiles
	for _, labels := range []map[string]string{{"weir.max": "5mbit"}, {}, {"weir.max": "6mbit"}} {
		must(t, claims.Annotations{"a": labels}.Save(claims.AnnotationsFile(p.folder)))
		p.lookAtNotes(t.Context(), &seen)
		agent.set(func() {
			if got := agent.pods["a"].Labels; !maps.Equal(got, labels) {
				t.Errorf("the agent has %v, want %v", got, labels)
			}
		})
	}
}
