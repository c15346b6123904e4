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

// TestRatesText: annotations of a node become a text of the agent's file, or an error that names each wrong annotation.
func TestRatesText(t *testing.T) {
	for _, tc := range []struct {
		annotations map[string]string
		want, says  string
	}{
		{map[string]string{"weir.dev/min": "20mbit", "weir.dev/rates": "1", "other/rate": "x"}, "", ""},
		{map[string]string{"weir.dev/rate": "50mbit"}, "- interface: \"auto\"\n  rate: \"50mbit\"\n", ""},
		{map[string]string{"weir.dev/in-rate": "auto"}, "- interface: \"auto\"\n  in_rate: \"auto\"\n", ""},
		{
			map[string]string{"weir.dev/rate.eth0": "50M", "weir.dev/in-rate": "9M", "weir.dev/rate.wlan0.7": "2M"},
			"- interface: \"auto\"\n  in_rate: \"9M\"\n- interface: \"eth0\"\n  rate: \"50M\"\n- interface: \"wlan0.7\"\n  rate: \"2M\"\n", "",
		},
		{map[string]string{"weir.dev/rate.eth1": "1M"}, "- interface: \"eth1\"\n  rate: \"1M\"\n", ""}, // may come back
		{map[string]string{"weir.dev/rate.auto": "1M"}, "", "annotation weir.dev/rate.auto: auto is not the name of a device: write one, or weir.dev/rate for the first uplink"},
		{map[string]string{"weir.dev/in-rate.eth0123456789012": "1M"}, "", "is not the name of a device"},
		{map[string]string{"weir.dev/rate": "fast"}, "", `annotation weir.dev/rate: "fast" is not a rate; write a number and a unit`},
		{map[string]string{"weir.dev/rate": "auto"}, "", `"auto" is not a rate; write`},
		{ // of which the later one counts where both are of one uplink
			map[string]string{"weir.dev/rate": "1M", "weir.dev/rate.ap0": "2M", "weir.dev/rate.eth0": "3M"},
			"- interface: \"auto\"\n  rate: \"1M\"\n- interface: \"ap0\"\n  rate: \"2M\"\n- interface: \"eth0\"\n  rate: \"3M\"\n", "",
		},
	} {
		rates, err := ratesOf(tc.annotations)
		text := ratesText(rates)
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
				t.Errorf("the event of the node is %q, want %q", got, want)
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

// ratesBed has a node with annotations, and an agent that counts reloads and refuses one rate.
type ratesBed struct {
	*bed
	events *record.FakeRecorder
	shared []v1.MeasuredUplink
	now    time.Time
}

func newRatesBed(t *testing.T) *ratesBed {
	b := &ratesBed{bed: newBed(t), events: record.NewFakeRecorder(10), shared: []v1.MeasuredUplink{{Name: "eth0", RateBPS: 50e6}}, now: time.Now()}
	b.rates.recorder = b.events
	return b
}

// annotate sets the annotations of the node.
func (b *ratesBed) annotate(annotations map[string]string) {
	b.t.Helper()
	if err := b.rates.informer.GetStore().Add(&core.Node{ObjectMeta: metav1.ObjectMeta{Name: "gateway", Annotations: annotations}}); err != nil {
		b.t.Fatal(err)
	}
}

// pass applies the annotations after a time, and checks the file's text and the number of the agent's reloads.
func (b *ratesBed) pass(what string, after time.Duration, has string, reloads int32) {
	b.t.Helper()
	b.now = b.now.Add(after)
	before := b.reloads.Load()
	b.rates.apply(b.t.Context(), b.driver.agent, b.shared, b.now)
	b.expect(what, has)
	if got := b.reloads.Load() - before; got != reloads {
		b.t.Errorf("%s: %d reloads, want %d", what, got, reloads)
	}
}

// expect compares the file with a part of its text; an empty one for no file.
func (b *ratesBed) expect(what, has string) {
	b.t.Helper()
	text, err := os.ReadFile(claims.RatesFile(b.folder))
	if (has == "") != os.IsNotExist(err) || !strings.Contains(string(text), has) {
		b.t.Errorf("%s: the file has %q, %v, want %q", what, text, err, has)
	}
}

// said returns the node's events since the last call.
func (b *ratesBed) said() (list string) {
	for len(b.events.Events) > 0 {
		list += <-b.events.Events
	}
	return list
}

// TestRatesRetried: the agent reads the file once after each start of weir-dra, and refused rates each minute.
func TestRatesRetried(t *testing.T) {
	b := newRatesBed(t)
	b.annotate(map[string]string{annotationRate: "50mbit"})
	b.pass("the first time", 0, "50mbit", 1)
	b.pass("again", time.Second, "50mbit", 0)
	b.rates = b.restart().rates
	b.rates.recorder = b.events
	b.annotate(map[string]string{annotationRate: "50mbit"})
	b.pass("after a start", 0, "50mbit", 1)
	b.pass("again after a start", time.Second, "50mbit", 0)

	b.refuses.Store(true)
	b.annotate(map[string]string{annotationRate: "200gbit"})
	b.pass("refused", 0, "50mbit", 2) // the second time with what was accepted
	if got := b.said(); !strings.Contains(got, "the agent refuses the annotations weir.dev/rate: ") || !strings.HasSuffix(got, unchanged) {
		t.Errorf("the event of the node is %q", got)
	}
	b.pass("within the minute", 50*time.Second, "50mbit", 0)
	b.pass("after a minute", 11*time.Second, "50mbit", 2)
	b.refuses.Store(false)
	b.pass("no longer refused", 61*time.Second, "200gbit", 1)

	b.refusesAll.Store(true)
	b.annotate(map[string]string{annotationRate: "60mbit"})
	b.pass("a configuration that is refused", time.Second, "200gbit", 2)
	if got := b.said(); !strings.Contains(got, "the agent refuses its configuration even with the previous rates: correct the ConfigMap weir") || strings.Contains(got, annotationRate) {
		t.Errorf("the event of the node is %q", got)
	}
	b.refusesAll.Store(false)
	b.pass("and is corrected", 61*time.Second, "60mbit", 1)
	if b.rates.fault != "" {
		t.Errorf("it says %q", b.rates.fault)
	}
}

// TestRatesAlone: annotations change the file also of an agent that is not there, but for rates that it has refused; it reads
// them when it is there.
func TestRatesAlone(t *testing.T) {
	b := newRatesBed(t)
	b.annotate(map[string]string{annotationRate: "50mbit"})
	b.pass("the first time", 0, "50mbit", 1)
	b.refuses.Store(true)
	b.annotate(map[string]string{annotationRate: "200gbit"})
	b.pass("refused", 0, "50mbit", 2)
	b.rates.applyAlone()
	b.expect("refused before", "50mbit")
	b.annotate(map[string]string{annotationRate: "fast"})
	b.rates.applyAlone()
	b.expect("no rate", "50mbit")
	b.annotate(map[string]string{annotationRate: "40mbit"})
	b.rates.applyAlone()
	b.expect("another rate", "40mbit")
	b.annotate(nil)
	b.rates.applyAlone()
	b.expect("no annotation", "")
	b.refuses.Store(false)
	b.pass("the agent is back", time.Second, "", 1)
}

// TestRatesNotInForce: a node is told of rates that its agent does not have, and those of other devices stay noted.
func TestRatesNotInForce(t *testing.T) {
	b := newRatesBed(t)
	b.annotate(map[string]string{"weir.dev/rate.eth0": "50mbit", "weir.dev/in-rate": "auto"})
	b.pass("the first time", 0, "eth0", 1)
	b.pass("settled", 4*time.Second, "eth0", 0)
	if got := b.said(); got != "" {
		t.Errorf("the event of the node is %q", got)
	}
	b.shared[0].RateBPS = 20e6
	b.pass("another rate", time.Second, "eth0", 0)
	if got := b.said(); !strings.Contains(got, "annotation weir.dev/rate.eth0: the agent has eth0 at 20mbit and not 50mbit: start it with --rates-file="+b.rates.file) {
		t.Errorf("the event of the node is %q", got)
	}
	b.shared[0].Name = "wwan0"
	b.pass("another device", time.Second, "eth0", 0)
	if got := b.said(); !strings.Contains(got, "annotation weir.dev/rate.eth0: the agent shares no uplink eth0: write the name of one of wwan0, or add") {
		t.Errorf("the event of the node is %q", got)
	}
	b.annotate(map[string]string{"weir.dev/in-rate": "9mbit"})
	b.pass("received traffic", time.Second, "9mbit", 1)
	b.pass("which is not shared", 4*time.Second, "9mbit", 0)
	if got := b.said(); !strings.Contains(got, "annotation weir.dev/in-rate: the agent has wwan0 at 0") {
		t.Errorf("the event of the node is %q", got)
	}
}

// TestRatesOfFirstUplink: a rate with a name goes before one without when its device becomes the first uplink, direction by
// direction.
func TestRatesOfFirstUplink(t *testing.T) {
	b := newRatesBed(t)
	b.annotate(map[string]string{annotationRate: "50mbit", annotationInRate: "40mbit", annotationRate + ".wwan0": "20mbit"})
	incoming := &v1.MeasuredIncoming{RateBPS: 40e6}
	b.shared[0].In = incoming
	said := func(what, want string) {
		t.Helper()
		b.pass(what, 0, "wwan0", 0)
		b.pass(what, 4*time.Second, "wwan0", 0)
		if got := b.said(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: the event of the node is %q, want %q", what, got, want)
		}
	}
	b.pass("the first time", 0, "wwan0", 1)
	said("eth0 is the first uplink", "annotation weir.dev/rate.wwan0: the agent shares no uplink wwan0")
	b.shared[0] = v1.MeasuredUplink{Name: "wwan0", RateBPS: 20e6, In: incoming}
	said("wwan0 is the first uplink", "")
	b.shared[0].RateBPS = 50e6
	said("it has the other rate", "annotation weir.dev/rate.wwan0: the agent has wwan0 at 50mbit and not 20mbit")
	b.shared[0].RateBPS, incoming.RateBPS = 20e6, 30e6
	said("it receives less", "annotation weir.dev/in-rate: the agent has wwan0 at 30mbit and not 40mbit")
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
