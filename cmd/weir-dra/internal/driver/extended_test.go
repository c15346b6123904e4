package driver

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/weir-project/weir/internal/k8s/claims"
)

// newExtendedBed returns a bed with a prepared claim of 60 Mbit/s and a pod that requests 8 Mbit/s, of 95 that may be
// promised, on a node that offers amount of the extended resource; "" for none.
func newExtendedBed(t *testing.T, amount string) *bed {
	t.Helper()
	gateway := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "gateway"}}
	if amount != "" {
		gateway.Status.Capacity = core.ResourceList{egressKbps: quantity.MustParse(amount)}
		gateway.Status.Allocatable = gateway.Status.Capacity
	}
	camera := allocated("camera", "60M")
	b := newBed(t, camera, gateway, withRequest("web", "8000"))
	b.prepare(camera)
	t.Cleanup(b.pods.start(t.Context()))
	t.Cleanup(b.rates.start(t.Context()))
	if !cache.WaitForCacheSync(t.Context().Done(), b.pods.informer.HasSynced, b.rates.informer.HasSynced) {
		t.Fatal("the API server does not answer")
	}
	if err := b.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// offered returns how much of the extended resource the API server has of the node; "0" for none.
func (b *bed) offered() string {
	b.t.Helper()
	found, err := b.kube.CoreV1().Nodes().Get(b.t.Context(), "gateway", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	amount := found.Status.Allocatable[egressKbps]
	return amount.String()
}

// publishAt publishes, and returns the devices that were published.
func (b *bed) publishAt(now time.Time) (list []claims.Device) {
	b.t.Helper()
	if err := b.publish(b.t.Context(), func(devices []claims.Device) error { list = devices; return nil }, now); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// TestBackToExtended: where the API server does not count capacity of devices any more, prepared claims stay in the
// ledger beside what pods request, and have their conditions.
func TestBackToExtended(t *testing.T) {
	b := newExtendedBed(t, "")
	b.extended, b.probedAt = true, time.Now()
	b.runs("camera", 60e6)
	if err := b.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := b.publishAt(time.Now()); list != nil {
		t.Errorf("published %+v", list)
	}
	kept, err := claims.Load(claims.LedgerFile(b.folder))
	if err != nil || len(kept) != 2 || kept.Labels("pod-camera")["weir.min"] != "60mbit" || kept.Labels("pod-web")["weir.min"] != "8mbit" {
		t.Errorf("noted: %v, %v", kept, err)
	}
	if got := b.offered(); got != "35k" { // 8 that are requested, and 95 - 60 - 8 that are left
		t.Errorf("the node offers %s", got)
	}
	b.reportAt(time.Now())
	if found, _ := b.condition("camera"); found.Status != metav1.ConditionTrue {
		t.Errorf("the claim is %+v", found)
	}
}

// TestServeClaims: while pods have claims kubelet can end them, also where the API server does not count capacity.
func TestServeClaims(t *testing.T) {
	b := newExtendedBed(t, "")
	b.kube.PrependReactor("create", "resourceslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
		slice := action.(kubetesting.CreateAction).GetObject().(*resource.ResourceSlice).DeepCopy()
		slice.Spec.Devices[0].AllowMultipleAllocations = nil
		return true, slice, nil
	})
	kubelet := t.TempDir()
	if err := os.Mkdir(filepath.Join(kubelet, "plugins_registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	serves := func(d *driver) bool {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.serve(ctx, options{kubelet: kubelet}) }()
		found := false
		for deadline := time.Now().Add(2 * time.Second); !found && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			entries, _ := os.ReadDir(filepath.Join(kubelet, "plugins_registry"))
			found = len(entries) > 0
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return found
	}
	if !serves(b.restart()) {
		t.Error("kubelet cannot end a claim")
	}
	if err := (claims.Ledger{}).Save(claims.LedgerFile(b.folder)); err != nil {
		t.Fatal(err)
	}
	if serves(b.restart()) {
		t.Error("kubelet is served without a claim")
	}
}

// TestMoveToDevices: where the API server counts capacity of devices by now, a node that offers the extended resource goes
// on, and what pods request of it is no part of a device.
func TestMoveToDevices(t *testing.T) {
	b := newExtendedBed(t, "1k")
	list := b.publishAt(time.Now())
	if len(list) != 1 || list[0].Capacity.EgressBPS != 87e6 { // 60 that are claimed, and 95 - 60 - 8 that are left
		t.Errorf("published %+v", list)
	}
	if got := b.offered(); got != "35k" {
		t.Errorf("the node offers %s", got)
	}
	if got := b.ledger.Labels("pod-web")["weir.min"]; got != "8mbit" {
		t.Errorf("the pod that requests has %q", got)
	}
	b.reportAt(time.Now())
	if len(b.reports) != 1 {
		t.Errorf("reported are %v", b.reports)
	}

	b = newExtendedBed(t, "")
	if b.publishAt(time.Now()); b.offered() != "0" {
		t.Errorf("a node without the resource offers %s", b.offered())
	}
}

// TestForbiddenOffer: a node whose status weir-dra may not write any more has the conditions of its claims.
func TestForbiddenOffer(t *testing.T) {
	b := newExtendedBed(t, "1k")
	tried := 0
	b.kube.PrependReactor("patch", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		tried++
		return true, nil, apierrors.NewForbidden(core.Resource("nodes"), "gateway", nil)
	})
	b.runs("camera", 60e6)
	now := time.Now()
	for i := range 4 {
		at := now.Add(time.Duration(i) * writePause)
		b.publishAt(at)
		b.reportAt(at)
	}
	if found, _ := b.condition("camera"); found.Status != metav1.ConditionTrue {
		t.Errorf("the claim is %+v", found)
	}
	if tried != 1 {
		t.Errorf("tried %d times within seconds", tried)
	}
}

// TestPolicyOfNodes: the policy beside the right to write a node's status compares each field of that.
func TestPolicyOfNodes(t *testing.T) {
	text, err := os.ReadFile("../../../../packaging/kubernetes/weir-before-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[core.NodeStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if strings.Contains(string(text), "variables.before."+name+".all(") {
			continue
		}
		if !strings.Contains(string(text), "variables.after.?"+name+" == variables.before.?"+name) {
			t.Errorf("weir-dra may write the node's %s", name)
		}
	}
}
