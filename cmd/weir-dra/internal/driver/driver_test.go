package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// bed has a driver whose loop the test is, with an API server in memory and an agent that the test plays.
// The suite cluster has the real ones.
type bed struct {
	*driver
	t      *testing.T
	socket string
	kube   *fake.Clientset
	agent  v1.Snapshot
	// away: the agent does not answer.
	away bool
	// reloads counts requests to read the configuration again. The agent refuses them with rates of 200gbit, or all.
	reloads             atomic.Int32
	refuses, refusesAll atomic.Bool
}

func newBed(t *testing.T, objects ...runtime.Object) *bed {
	b := &bed{t: t, kube: fake.NewClientset(objects...)}
	b.agent.Status.Uplinks = []v1.Uplink{{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, Scheduler: "htb"}}
	socket := filepath.Join(t.TempDir(), "weir.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPost {
			b.reloads.Add(1)
			rates, _ := os.ReadFile(claims.RatesFile(b.folder))
			if b.refusesAll.Load() || b.refuses.Load() && strings.Contains(string(rates), "200gbit") {
				w.WriteHeader(http.StatusConflict)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(b.agent)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	b.socket, b.driver = socket, b.start(t.TempDir(), socket)
	return b
}

// start returns another driver with the same folder.
func (b *bed) start(folder, socket string) *driver {
	d, err := newDriver("gateway", folder, client.Unix(socket), b.kube, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// restart returns another driver with the same folder and agent.
func (b *bed) restart() *driver {
	return b.start(b.folder, b.socket)
}

// runs makes the agent have a pod with an admitted minimum.
func (b *bed) runs(pod string, admittedBPS uint64) {
	b.agent.Containers = append(b.agent.Containers, v1.Container{
		Name: "shop/" + pod, Runtime: "kubernetes", State: v1.StateOK,
		Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: admittedBPS, EntitledBPS: admittedBPS}}},
	})
}

// prepare prepares a claim as kubelet asks for it, and returns what its pod would be told.
func (b *bed) prepare(list ...*resource.ResourceClaim) (said []error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	go func() {
		call := <-b.calls
		call(ctx)
	}()
	results, err := b.PrepareResourceClaims(ctx, list)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range list {
		said = append(said, results[c.UID].Err)
	}
	return said
}

// reportAt looks at the agent and reports.
func (b *bed) reportAt(now time.Time) {
	_ = b.look(b.t.Context()) // may be away
	b.report(b.t.Context(), now)
}

// condition returns what the API server has of a claim.
func (b *bed) condition(name string) (found metav1.Condition, lastSeen string) {
	b.t.Helper()
	c, err := b.kube.ResourceV1().ResourceClaims("shop").Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil || len(c.Status.Devices) != 1 || len(c.Status.Devices[0].Conditions) != 1 {
		b.t.Fatalf("the claim is %+v, %v", c, err)
	}
	return c.Status.Devices[0].Conditions[0], string(c.Status.Devices[0].Data.Raw)
}

// allocated returns a claim of a pod of the same name.
func allocated(name, egress string) *resource.ResourceClaim {
	share := types.UID("share-" + name)
	c := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.ReservedFor = []resource.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("pod-" + name)}}
	c.Status.Allocation = &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: []resource.DeviceRequestAllocationResult{{
		Driver: claims.Driver, Pool: "gateway", Device: "eth0", Request: "uplink", ShareID: &share,
		ConsumedCapacity: map[resource.QualifiedName]quantity.Quantity{egressBandwidth: quantity.MustParse(egress)},
	}}}}
	return c
}

func TestPrepare(t *testing.T) {
	camera, backup, wrong := allocated("camera", "60M"), allocated("backup", "40M"), allocated("wrong", "20m")
	b := newBed(t, camera, backup, wrong)
	said := b.prepare(camera, backup, wrong)
	for i, want := range []string{"", "minimum 40mbit cannot be guaranteed: 35mbit is left at uplink eth0", "20M is 20 Mbit/s"} {
		if (want == "") != (said[i] == nil) || want != "" && !strings.Contains(said[i].Error(), want) {
			t.Errorf("claim %d is told %v, want %q", i, said[i], want)
		}
	}
	kept, err := claims.Load(claims.LedgerFile(b.folder))
	if err != nil || len(kept) != 1 || kept["uid-camera"].Shares[0].EgressBPS != 60e6 {
		t.Errorf("noted: %v, %v", kept, err)
	}
	// What the agent said before does not admit anything, but what is prepared stays so.
	b.away = true
	if said := b.prepare(camera, backup); said[0] != nil || said[1] == nil || !strings.Contains(said[1].Error(), "the agent does not answer") {
		t.Errorf("without the agent: %v", said)
	}
	go func() { call := <-b.calls; call(t.Context()) }()
	if _, err := b.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: camera.UID}}); err != nil {
		t.Fatal(err)
	}
	if kept, err := claims.Load(claims.LedgerFile(b.folder)); err != nil || len(kept) != 0 {
		t.Errorf("noted after its end: %v, %v", kept, err)
	}
}

// TestReport: a condition follows the agent, and a driver that starts goes on with the times of the one
// before it.
func TestReport(t *testing.T) {
	camera := allocated("camera", "20M")
	b := newBed(t, camera)
	b.prepare(camera)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b.reportAt(began)
	if got, _ := b.condition("camera"); got.Status != metav1.ConditionFalse || got.Reason != claims.NotStarted {
		t.Errorf("before the pod starts: %+v", got)
	}
	b.runs("camera", 20e6)
	b.reportAt(began.Add(time.Second))
	first, seen := b.condition("camera")
	if first.Status != metav1.ConditionTrue || !first.LastTransitionTime.Time.Equal(began.Add(time.Second)) || !strings.Contains(seen, "03:04:06Z") {
		t.Errorf("when it runs: %+v, %s", first, seen)
	}
	writes := len(b.kube.Actions())
	b.reportAt(began.Add(time.Minute))
	if len(b.kube.Actions()) != writes {
		t.Errorf("though nothing has changed: %v", b.kube.Actions()[writes:])
	}

	b.driver = b.restart()
	b.reportAt(began.Add(2 * time.Minute))
	if now, nowSeen := b.condition("camera"); now != first || nowSeen != seen {
		t.Errorf("after a restart %+v, %s; before %+v, %s", now, nowSeen, first, seen)
	}
	b.reportAt(began.Add(7 * time.Minute))
	if now, nowSeen := b.condition("camera"); now != first || !strings.Contains(nowSeen, "03:11:05Z") {
		t.Errorf("renewed after a restart %+v, %s", now, nowSeen)
	}

	b.away, b.lookedAt = true, time.Now().Add(-2*agentPatience)
	b.reportAt(began.Add(8 * time.Minute))
	if got, _ := b.condition("camera"); got.Status != metav1.ConditionUnknown || got.Reason != claims.NoAgent {
		t.Errorf("without the agent: %+v", got)
	}
}

// TestSlowWrites: kubelet's calls do not wait for all claims to be written.
func TestSlowWrites(t *testing.T) {
	late := allocated("late", "20M")
	b := newBed(t, late)
	for i := range 10 {
		c := allocated(fmt.Sprint("c", i), "1M")
		if err := b.kube.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
		b.prepare(c)
	}
	b.kube.PrependReactor("patch", "resourceclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
		time.Sleep(20 * time.Millisecond)
		return false, nil, nil
	})
	prepared := make(chan error, 1)
	go func() {
		_, err := b.PrepareResourceClaims(t.Context(), []*resource.ResourceClaim{late})
		prepared <- err
	}()
	b.reportAt(time.Now())
	select {
	case err := <-prepared:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a call has waited for all writes")
	}
}

// TestForget: of a claim that the API server does not have any more nothing stays once its pod has ended.
func TestForget(t *testing.T) {
	camera := allocated("camera", "20M")
	b := newBed(t, camera)
	b.prepare(camera)
	b.runs("camera", 20e6)
	if err := b.kube.ResourceV1().ResourceClaims("shop").Delete(t.Context(), "camera", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.reportAt(time.Now())
	}
	if len(b.ledger) != 1 {
		t.Error("it is forgotten while its pod runs")
	}
	b.agent.Containers = nil
	b.reportAt(time.Now())
	if kept, err := claims.Load(claims.LedgerFile(b.folder)); err != nil || len(kept) != 0 || len(b.ledger) != 0 {
		t.Errorf("noted after its end: %v, %v", kept, err)
	}
}

// TestFailingWrites: a write that fails is tried again after a pause, and after a look at what is there
// where the API server has refused it.
func TestFailingWrites(t *testing.T) {
	conflict := apierrors.NewConflict(resource.Resource("resourceclaims"), "camera", errors.New("changed"))
	invalid := apierrors.NewInvalid(resource.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), "camera", nil)
	for _, c := range []struct {
		err error
		// again is whether it is tried again at once, read whether it is read before.
		again, read bool
	}{{conflict, true, true}, {invalid, false, true}, {errors.New("refused"), false, false}} {
		t.Run(fmt.Sprintf("%T", c.err), func(t *testing.T) {
			camera := allocated("camera", "20M")
			b := newBed(t, camera)
			b.prepare(camera)
			failing := true
			b.kube.PrependReactor("patch", "resourceclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
				return failing, nil, c.err
			})
			now := time.Now()
			b.reportAt(now)
			failing = false
			reads := func() (n int) {
				for _, a := range b.kube.Actions() {
					if a.GetVerb() == "get" {
						n++
					}
				}
				return n
			}
			before := reads()
			b.reportAt(now.Add(interval))
			written := func() bool {
				c, err := b.kube.ResourceV1().ResourceClaims("shop").Get(t.Context(), "camera", metav1.GetOptions{})
				return err == nil && len(c.Status.Devices) == 1
			}
			if again := written(); again != c.again {
				t.Errorf("written at once: %v", again)
			}
			b.reportAt(now.Add(writePause + interval))
			if !written() {
				t.Error("not written after the pause")
			}
			if read := reads()-before > 2; read != c.read { // the test has read it twice
				t.Errorf("read before it was written again: %v", read)
			}
		})
	}
}

// TestBroken: an error that nothing recovers from ends the driver, others do not.
func TestBroken(t *testing.T) {
	b := newBed(t)
	ended := make(chan error, 1)
	go func() { ended <- b.run(t.Context(), func([]claims.Device) error { return nil }) }()
	b.HandleError(t.Context(), fmt.Errorf("a slice is too large: %w", kubeletplugin.ErrRecoverable), "publish")
	select {
	case err := <-ended:
		t.Fatalf("ended by what is recovered from: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	b.HandleError(t.Context(), errors.New("no socket"), "DRA gRPC server failed")
	if err := <-ended; err == nil || err.Error() != "DRA gRPC server failed: no socket" {
		t.Errorf("ended with %v", err)
	}
}

// TestRenamed: on a node that has got another name claims of the old one stay in force and have their conditions, until
// their pods have ended and the API server has forgotten them.
func TestRenamed(t *testing.T) {
	camera := allocated("camera", "60M")
	b := newBed(t, camera)
	b.prepare(camera)
	b.runs("camera", 60e6)
	agent := b.driver.agent
	restart := func() {
		d, err := newDriver("doorway", b.folder, agent, b.kube, b.log)
		if err != nil {
			t.Fatal(err)
		}
		b.driver = d
	}
	restart()
	now := time.Now()
	b.reportAt(now)
	if found, _ := b.condition("camera"); found.Status != metav1.ConditionTrue {
		t.Errorf("the claim is %+v", found)
	}
	pool := resources(b.node, b.ledger.Devices(b.view)).Pools["doorway"]
	if offered := pool.Slices[0].Devices[0].Capacity[egressBandwidth].Value; offered.String() != "95M" {
		t.Errorf("it offers %s", offered.String())
	}
	if err := b.kube.ResourceV1().ResourceClaims("shop").Delete(t.Context(), "camera", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restart()
	b.reportAt(now)
	b.reportAt(now)
	if len(b.ledger) != 1 {
		t.Error("the claim of a pod that runs is forgotten")
	}
	b.agent.Containers = nil
	b.reportAt(now)
	if len(b.ledger) != 0 {
		t.Errorf("claims of no pod: %+v", b.ledger)
	}
}
