package driver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/share/policy"
)

// Reasons of events.
const (
	eventNotInForce = "WeirNotInForce"
	eventClaimed    = "WeirMinimumClaimed"
)

const (
	// saveInterval is the shortest time between two files of annotations.
	saveInterval = 100 * time.Millisecond
	// eventInterval is when an event is repeated that still holds: API servers keep events for an hour.
	eventInterval = 30 * time.Minute
)

// pods are those of the node, as the API server has them.
type pods struct {
	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
	recorder record.EventRecorder
	sink     record.EventBroadcaster
	kube     kubernetes.Interface
	folder   string
	log      *slog.Logger
	// changed: annotations are to be saved.
	changed chan struct{}
	// lastEvents are by the pods' UIDs, pending those that the last look, at lookedAt, found.
	lastEvents map[types.UID]emitted
	pending    map[types.UID]event
	lookedAt   time.Time
}

// event is what a Kubernetes event of a pod says.
type event struct{ reason, message string }

// emitted is an event with its time.
type emitted struct {
	event
	at time.Time
}

func newPods(nodeName, folder string, kube kubernetes.Interface, wake func(), log *slog.Logger) (*pods, error) {
	p := &pods{kube: kube, folder: folder, log: log, changed: make(chan struct{}, 1), lastEvents: map[types.UID]emitted{}}
	p.factory = informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(stripPod),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=" + nodeName }))
	p.informer = p.factory.Core().V1().Pods().Informer()
	p.sink = record.NewBroadcaster()
	p.recorder = p.sink.NewRecorder(scheme.Scheme, core.EventSource{Component: "weir", Host: nodeName})
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify(p.changed); wake() },
		DeleteFunc: func(any) { notify(p.changed); wake() },
		UpdateFunc: func(before, after any) {
			if !reflect.DeepEqual(annotationsOf(before), annotationsOf(after)) {
				notify(p.changed)
			}
		},
	})
	if err == nil {
		err = p.informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			log.Warn("cannot watch the pods of this node; trying again", "error", err, "hint", rightsHint)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watch the pods of this node: %w", err)
	}
	return p, nil
}

// stripPod keeps the annotations for Weir, what was requested of its resource, and what names the pod: a pod may be large.
func stripPod(object any) (any, error) {
	p, is := object.(*core.Pod)
	if !is {
		return object, nil
	}
	annotations := maps.Clone(p.Annotations)
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		_, ours := claims.LabelOf(name)
		return !ours
	})
	kept := &core.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Annotations: annotations,
	}, Status: core.PodStatus{Phase: p.Status.Phase}}
	if amount := requestOf(p); !amount.IsZero() {
		kept.Spec.Containers = []core.Container{{Resources: core.ResourceRequirements{Requests: core.ResourceList{egressKbps: amount}}}}
	}
	return kept, nil
}

func annotationsOf(object any) map[string]string {
	if p, is := object.(*core.Pod); is {
		return p.Annotations
	}
	return nil
}

// start watches the pods until the returned function is called.
func (p *pods) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	p.sink.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: p.kube.CoreV1().Events("")})
	p.factory.Start(ctx.Done())
	var saver sync.WaitGroup
	saver.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
			p.save(ctx)
		}
	})
	return func() {
		cancel()
		saver.Wait()
		p.factory.Shutdown()
		p.sink.Shutdown()
	}
}

// notify leaves a signal in a channel of one, unless there is one.
func notify(signals chan<- struct{}) {
	select {
	case signals <- struct{}{}:
	default:
	}
}

// save writes the annotations of all pods of the node for weir-k8s whenever they have changed, until ctx ends. Those
// of a pod without any are written, too: it may have had some when it started.
func (p *pods) save(ctx context.Context) {
	var saved claims.Annotations
	for {
		next, pause := claims.Annotations{}, saveInterval
		for _, pod := range p.list() {
			next[string(pod.UID)] = claims.LabelsOf(pod.Annotations)
		}
		if !reflect.DeepEqual(next, saved) {
			if err := next.Save(claims.AnnotationsFile(p.folder)); err != nil {
				p.log.Warn("pods keep the annotations that they had; trying again", "error", err)
				notify(p.changed)
				pause = writePause
			} else {
				saved = next
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
	}
}

// list returns the pods of the node, by namespace and name.
func (p *pods) list() map[string]*core.Pod {
	found := map[string]*core.Pod{}
	for _, object := range p.informer.GetStore().List() {
		if pod, is := object.(*core.Pod); is {
			found[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	return found
}

// emitEvents says as an event of a pod why it has not what it asks for: when two looks in turn have found the same
// fault, since much changes while a pod starts; again when it comes back; and while it lasts each eventInterval.
func (p *pods) emitEvents(containers []v1.Container, ledger claims.Ledger, now time.Time) {
	if now.Sub(p.lookedAt) < interval/2 { // a call of kubelet came between
		return
	}
	p.lookedAt = now
	found := map[types.UID]event{}
	list := p.list()
	for i := range containers {
		pod := list[containers[i].Name]
		if pod == nil || containers[i].Runtime != v1.RuntimeKubernetes {
			continue
		}
		fault, is := faultOf(&containers[i], pod, ledger)
		if !is {
			continue
		}
		found[pod.UID] = fault
		last := p.lastEvents[pod.UID]
		if p.pending[pod.UID] == fault && (last.event != fault || now.Sub(last.at) > eventInterval) {
			p.recorder.Event(pod, core.EventTypeWarning, fault.reason, fault.message)
			p.lastEvents[pod.UID] = emitted{fault, now}
		}
	}
	maps.DeleteFunc(p.lastEvents, func(uid types.UID, _ emitted) bool {
		_, now := found[uid]
		_, before := p.pending[uid]
		return !now && !before
	})
	p.pending = found
}

// faultOf returns why a pod lacks a part of its policy; false if it has all.
func faultOf(c *v1.Container, pod *core.Pod, ledger claims.Ledger) (event, bool) {
	if c.State == v1.StateRejected || c.State == v1.StateDegraded {
		return event{eventNotInForce, c.Reason}, true
	}
	claimed := ledger.Labels(string(pod.UID))
	annotated := claims.LabelsOf(pod.Annotations)
	for _, label := range slices.Sorted(maps.Keys(claimed)) {
		if asked, has := annotated[label]; has && !sameRate(asked, claimed[label]) {
			return event{eventClaimed, fmt.Sprintf("annotation %s%s: %s has no effect: the pod's minimums are those of its claim",
				claims.AnnotationPrefix, strings.TrimPrefix(label, policy.Prefix), asked)}, true
		}
	}
	return event{}, false
}

// sameRate reports whether two texts are the same rate.
func sameRate(a, b string) bool {
	x, errX := policy.ParseRate(a)
	y, errY := policy.ParseRate(b)
	return errX == nil && errY == nil && x == y
}
