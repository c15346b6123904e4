package server

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/test/must"
)

// TestPods: what weir-k8s reports reaches the agent as events of a source, one weir-k8s at a time.
func TestPods(t *testing.T) {
	agent, c := serveAgent(t)
	const timeout = 10 * time.Second
	first, err := c.ReportPods(t.Context(), v1.RuntimeKubernetes, []v1.Pod{{ID: "a", Namespace: "shop", Name: "web"}}, timeout)
	must.Succeed(t, err)
	var refused *client.Error
	if _, err := c.ReportPods(t.Context(), v1.RuntimeKubernetes, nil, timeout); !errors.As(err, &refused) || refused.Status != http.StatusConflict || !strings.Contains(err.Error(), "the containers of kubernetes") {
		t.Errorf("a second one at the same time: %v", err)
	}
	state, err := first.Report(v1.PodsChange{Started: &v1.Pod{ID: "b"}}, timeout)
	if err != nil || state.State != v1.StateOK {
		t.Errorf("answered %+v, %v", state, err)
	}
	_, err = first.Report(v1.PodsChange{Stopped: "b"}, timeout)
	must.Succeed(t, err)
	first.Close()
	// The next one is refused until the agent has noticed.
	until := func(status int, body string) {
		t.Helper()
		for deadline := time.Now().Add(timeout); ; {
			got, said := rawRequest(t, c, "POST", "/v1/pods", body)
			if got == status {
				return
			}
			if got != http.StatusConflict || time.Now().After(deadline) {
				t.Fatalf("of %s: %d, %s", body, got, said)
			}
		}
	}
	until(http.StatusOK, "{}")
	until(http.StatusBadRequest, `{"all": 7}`)
	learned := agent.heard(5)
	if learned[0].Snapshot.Containers[0].Name != "shop/web" || learned[1].Updated.ID != "b" ||
		learned[2].RemovedID != "b" || learned[3].Disconnected == nil || len(learned[4].Snapshot.Containers) != 0 {
		t.Errorf("learned %+v", learned)
	}
	if said := learned[3].Disconnected.Error(); !strings.Contains(said, "not connected to NRI") {
		t.Errorf("without it: %s", said)
	}
	for _, e := range learned {
		if e.Source != v1.RuntimeKubernetes {
			t.Errorf("an event of %q", e.Source)
		}
	}
}

// TestContainerd: containers of containerd are those of another source, which is reported at the same time.
func TestContainerd(t *testing.T) {
	agent, c := serveAgent(t)
	const timeout = 10 * time.Second
	pods, err := c.ReportPods(t.Context(), v1.RuntimeKubernetes, nil, timeout)
	must.Succeed(t, err)
	defer pods.Close()
	web := v1.Pod{ID: "a", Name: "web", Image: "nginx", ImageLabels: map[string]string{"weir.min": "1mbit"}, ImageUnknown: "gone"}
	containers, err := c.ReportPods(t.Context(), v1.RuntimeContainerd, []v1.Pod{web}, timeout)
	must.Succeed(t, err)
	event := agent.heard(2)[1]
	if event.Source != v1.RuntimeContainerd || len(event.Snapshot.Containers) != 1 {
		t.Fatalf("learned %+v", event)
	}
	if got := event.Snapshot.Containers[0]; got.Runtime != v1.RuntimeContainerd || got.Name != "web" || got.Image != "nginx" || got.ImageLabels["weir.min"] != "1mbit" || got.ImageUnknown != "gone" {
		t.Errorf("learned of %+v", got)
	}
	containers.Close()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		next, err := c.ReportPods(t.Context(), v1.RuntimeContainerd, nil, timeout)
		if err == nil {
			defer next.Close()
			break
		}
		if !strings.Contains(err.Error(), "the containers of containerd") || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := agent.heard(3)[2].Disconnected; err == nil || !strings.Contains(err.Error(), "not connected to containerd") {
		t.Errorf("without it: %v", err)
	}
}

// TestSilentPods: a weir-k8s that says nothing counts as stopped, and another one takes its place.
func TestSilentPods(t *testing.T) {
	agent := &fakeAgent{events: stats.NewEvents(time.Now())}
	api := New(agent, slog.New(slog.DiscardHandler))
	api.podsSilence = 50 * time.Millisecond
	c := newTestClient(serve(t, api.Socket(access.Admin)))
	const timeout = 10 * time.Second
	silent, err := c.ReportPods(t.Context(), v1.RuntimeKubernetes, nil, timeout)
	must.Succeed(t, err)
	select {
	case <-silent.Ended():
	case <-time.After(timeout):
		t.Fatal("it holds its place")
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		next, err := c.ReportPods(t.Context(), v1.RuntimeKubernetes, nil, timeout)
		if err == nil {
			next.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("another one is refused: %v", err)
		}
	}
}
