package driver

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// annotated returns a pod as the API server has it.
func annotated(name string, annotations map[string]string) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("pod-" + name), Annotations: annotations}}
}

// TestAnnotations: weir-k8s finds the annotations of all pods as they are now, also of those that have none any more, and
// none of pods that are gone. A file that cannot be read, or not be written for a while, is written anew.
func TestAnnotations(t *testing.T) {
	camera := annotated("camera", map[string]string{"weir.dev/min": "1mbit", "other": "x"})
	b := newBed(t, camera, annotated("bare", nil))
	file := claims.AnnotationsFile(b.folder)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pods.start(t.Context()))
	await := func(want claims.Annotations) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			got, err := claims.LoadAnnotations(file)
			if err == nil && reflect.DeepEqual(got, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("saved are %v, %v, want %v", got, err, want)
			}
		}
	}
	await(claims.Annotations{"pod-camera": {"weir.min": "1mbit"}, "pod-bare": {}})
	camera = annotated("camera", map[string]string{"weir.dev/max": "3mbit", "kubernetes.io/ingress-bandwidth": "4M"})
	if _, err := b.kube.CoreV1().Pods("shop").Update(t.Context(), camera, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(claims.Annotations{"pod-camera": {"weir.max": "3mbit", "kubernetes.io/ingress-bandwidth": "4M"}, "pod-bare": {}})
	if err := b.kube.CoreV1().Pods("shop").Delete(t.Context(), "bare", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(claims.Annotations{"pod-camera": {"weir.max": "3mbit", "kubernetes.io/ingress-bandwidth": "4M"}})
}

// TestEvents: a pod has one event for each fault for which it has not what it asks for, and another one when the fault
// comes back or lasts.
func TestEvents(t *testing.T) {
	camera := allocated("camera", "20M")
	b := newBed(t, camera, annotated("camera", map[string]string{"weir.dev/min": "20mbit"}), annotated("backup", nil), annotated("web", nil))
	events := record.NewFakeRecorder(10)
	b.pods.recorder = events
	t.Cleanup(b.pods.start(t.Context()))
	for deadline := time.Now().Add(20 * time.Second); len(b.pods.list()) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the API server lists no pods")
		}
	}
	b.prepare(camera)
	b.runs("camera", 20e6)
	b.runs("backup", 0)
	b.runs("web", 0)
	now := time.Now()
	tell := func(want ...string) {
		t.Helper()
		now = now.Add(interval)
		b.pods.emitEvents(b.agent.Containers, b.ledger, now)
		b.pods.emitEvents(b.agent.Containers, b.ledger, now) // after a call of kubelet
		var got []string
		for len(events.Events) > 0 {
			got = append(got, <-events.Events)
		}
		if len(got) != len(want) {
			t.Fatalf("events %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("the event is %q, want %q", got[i], want[i])
			}
		}
	}
	backup := &b.agent.Containers[1]
	tell()
	tell()
	backup.State, backup.Reason = v1.StateDegraded, "it starts"
	tell() // one look has seen it
	backup.Reason = `weir.weight="heavy" must be a number`
	tell()
	tell("Warning WeirNotInForce " + backup.Reason)
	tell()
	backup.State, backup.Reason = v1.StateRejected, "minimum 9mbit cannot be guaranteed"
	tell()
	tell("Warning WeirNotInForce minimum 9mbit")
	tell()
	backup.State = v1.StateOK
	tell() // a look without the fault is not its end yet
	backup.State = v1.StateRejected
	tell()
	tell()
	backup.State = v1.StateOK
	tell()
	tell()
	backup.State = v1.StateRejected
	tell()
	tell("Warning WeirNotInForce minimum 9mbit")
	now = now.Add(eventInterval - interval)
	tell()
	tell("Warning WeirNotInForce minimum 9mbit")
	tell()
	// A container of another engine with the name of a pod has no pod.
	b.agent.Containers[2].State, b.agent.Containers[2].Runtime = v1.StateRejected, "docker"
	tell()
	tell()
	changed := annotated("camera", map[string]string{"weir.dev/min": "30mbit"})
	if err := b.pods.informer.GetStore().Update(changed); err != nil {
		t.Fatal(err)
	}
	tell()
	tell("Warning WeirMinimumClaimed annotation weir.dev/min: 30mbit has no effect")
	tell()
}
