package driver

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// TestRatesText: what annotations of a node become in the agent's file, and what users are told is wrong with them.
func TestRatesText(t *testing.T) {
	uplinks := []string{"eth0", "wlan0.7"}
	for _, tc := range []struct {
		annotations map[string]string
		want, says  string
	}{
		{map[string]string{"weir.dev/min": "20mbit", "weir.dev/rates": "1", "other/rate": "x"}, "", ""},
		{map[string]string{"weir.dev/rate": "50mbit"}, "- interface: \"auto\"\n  rate: \"50mbit\"\n", ""},
		{map[string]string{"weir.dev/in-rate": "auto"}, "- interface: \"auto\"\n  in_rate: \"auto\"\n", ""},
		{
			map[string]string{"weir.dev/rate.eth0": "50M", "weir.dev/in-rate": "9M", "weir.dev/rate.wlan0.7": "2M"},
			"- interface: \"auto\"\n  rate: \"50M\"\n  in_rate: \"9M\"\n- interface: \"wlan0.7\"\n  rate: \"2M\"\n", "",
		},
		{map[string]string{"weir.dev/rate": "fast"}, "", `annotation weir.dev/rate: "fast" is not a rate; write a number and a unit`},
		{map[string]string{"weir.dev/rate": "auto"}, "", `"auto" is not a rate; write`},
		{map[string]string{"weir.dev/rate.eth1": "1M"}, "", "annotation weir.dev/rate.eth1: the agent shares no uplink eth1: write the name of one of eth0, wlan0.7"},
		{map[string]string{"weir.dev/rate": "1M", "weir.dev/rate.eth0": "1M"}, "", "annotation weir.dev/rate.eth0: another one says the same of that uplink"},
	} {
		text, err := ratesText(tc.annotations, uplinks)
		_, got, _ := strings.Cut(text, "\nuplinks:\n")
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v: %q, %v, want %q, %q", tc.annotations, text, err, tc.want, tc.says)
		}
	}
}

// TestRates: a node's rates are noted for the agent; wrong ones, and those of a node that the API server does not have
// any more, change nothing.
func TestRates(t *testing.T) {
	b := newBed(t)
	events := record.NewFakeRecorder(10)
	b.rates.recorder = events
	apply := func(annotations map[string]string, want string) {
		t.Helper()
		store := b.rates.informer.GetStore()
		if annotations == nil {
			_ = store.Replace(nil, "")
		} else if err := store.Add(&core.Node{ObjectMeta: metav1.ObjectMeta{Name: "gateway", Annotations: annotations}}); err != nil {
			t.Fatal(err)
		}
		b.rates.apply(t.Context(), b.driver.agent, []v1.MeasuredUplink{{Name: "eth0"}}, time.Now())
		text, err := os.ReadFile(claims.RatesFile(b.folder))
		if got := string(text); (want == "") != os.IsNotExist(err) || !strings.Contains(got, want) {
			t.Errorf("with %v the file has %q, %v", annotations, got, err)
		}
	}
	said := func(want string) {
		t.Helper()
		select {
		case got := <-events.Events:
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("the node is told %q, want %q", got, want)
			}
		default:
			if want != "" {
				t.Errorf("the node is not told %q", want)
			}
		}
	}
	apply(map[string]string{}, "")
	apply(map[string]string{annotationRate: "50mbit"}, `rate: "50mbit"`)
	apply(map[string]string{annotationRate: "fast"}, `rate: "50mbit"`)
	said("Warning WeirRateRefused annotation weir.dev/rate")
	apply(map[string]string{annotationRate: "fast"}, `rate: "50mbit"`)
	said("") // it is told already
	apply(nil, `rate: "50mbit"`)
	b.away = true
	apply(map[string]string{annotationRate: "60mbit"}, `rate: "50mbit"`)
	b.away = false
	apply(map[string]string{annotationRate: "60mbit"}, `rate: "60mbit"`)
	apply(map[string]string{annotationRate: "fast"}, `rate: "60mbit"`)
	said("WeirRateRefused")
	apply(map[string]string{}, "")
	said("")
}

// withRequest returns a pod that requests bandwidth.
func withRequest(name string, kbps ...string) *core.Pod {
	pod := annotated(name, nil)
	for _, amount := range kbps {
		pod.Spec.Containers = append(pod.Spec.Containers, core.Container{Resources: core.ResourceRequirements{
			Requests: core.ResourceList{egressKbps: quantity.MustParse(amount), core.ResourceCPU: quantity.MustParse("1")},
		}})
	}
	return pod
}

// TestRequested: a pod has the minimum that its containers request together, or one that runs before them, unless it has
// ended.
func TestRequested(t *testing.T) {
	first, ended := withRequest("first", "3k", "4k"), withRequest("ended", "1k")
	always := core.ContainerRestartPolicyAlways
	first.Spec.InitContainers = withRequest("", "6k", "2k", "5k").Spec.Containers
	first.Spec.InitContainers[1].RestartPolicy = &always
	ended.Status.Phase = core.PodSucceeded
	before := withRequest("before", "1k")
	before.Spec.InitContainers = withRequest("", "8k").Spec.Containers
	pods := map[string]*core.Pod{}
	for _, pod := range []*core.Pod{first, ended, before, withRequest("none")} {
		stripped, _ := stripPod(pod)
		pods[pod.Name] = stripped.(*core.Pod)
	}
	ledger := requested(pods, "eth0")
	for uid, want := range map[string]string{"pod-first": "9mbit", "pod-before": "8mbit", "pod-ended": "", "pod-none": ""} {
		if got := ledger.Labels(uid)["weir.min"]; got != want {
			t.Errorf("%s has %q, want %q", uid, got, want)
		}
	}
}

// TestProbe: an API server without slices, and one that leaves out what it does not know, do not count.
func TestProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*resource.ResourceSlice) error
		counts bool
		says   string
	}{
		"counts":    {func(*resource.ResourceSlice) error { return nil }, true, ""},
		"leaves it": {func(s *resource.ResourceSlice) error { s.Spec.Devices[0].AllowMultipleAllocations = nil; return nil }, false, ""},
		"has none": {func(*resource.ResourceSlice) error {
			return apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}, "")
		}, false, ""},
		"is away": {func(*resource.ResourceSlice) error { return errors.New("refused") }, false, "whether it counts capacity of devices: refused"},
	} {
		b := newBed(t)
		b.kube.PrependReactor("create", "resourceslices", func(action kubetesting.Action) (bool, runtime.Object, error) {
			slice := action.(kubetesting.CreateAction).GetObject().(*resource.ResourceSlice).DeepCopy()
			return true, slice, tc.answer(slice)
		})
		counts, err := countsCapacity(t.Context(), b.kube, "gateway")
		if counts != tc.counts || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("one that %s: %v, %v", name, counts, err)
		}
	}
}
