// Package templates makes the ResourceClaimTemplates that pods with annotations of Weir refer to.
//
// Problem: who writes weir.dev/min on a pod wants the scheduler to count it, without writing a template for
// each amount into each namespace. An admission policy (packaging/kubernetes/weir-annotations.yaml) makes
// the pod refer to a template that is named by the amount, but a policy can create nothing.
//
// Method: one of the instances, the leader, watches pods, and creates the missing templates that pods refer to.
// Existing templates are neither compared nor removed.
package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/lease"
	"github.com/weir-project/weir/internal/share/policy"
)

const (
	// prefix begins the names of templates: a minimum of what a pod sends follows.
	prefix = "weir-min-"
	// deviceClass is that of a node's first uplink.
	deviceClass = "bandwidth.weir.dev"
	// namespace has the lease of the leader.
	namespace = "kube-system"
	// leaseName is the lease's.
	leaseName = "weir-templates"
)

// template is one that pods refer to.
type template struct{ namespace, name string }

// create makes templates until ctx ends, each only while check, which says why this instance is not the leader, returns nil:
// ctx ends late if the machine slept.
func create(ctx context.Context, kube kubernetes.Interface, check func() error, log *slog.Logger) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[template]())
	defer queue.ShutDown()
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(strip))
	pods := factory.Core().V1().Pods().Informer()
	// Of a pod that has one, an update tells nothing new: claims of pods do not change.
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		for _, t := range wanted(object) {
			queue.Add(t)
		}
	}}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	go func() { <-ctx.Done(); queue.ShutDown() }()
	for {
		t, over := queue.Get()
		if over {
			return nil
		}
		switch err := ensure(ctx, kube, check, t); {
		case err == nil:
			queue.Forget(t)
		case errors.Is(err, errAmount), apierrors.IsNotFound(err): // of a namespace that is gone
			log.Warn("cannot make a template", "namespace", t.namespace, "name", t.name, "error", err)
			queue.Forget(t)
		default:
			log.Warn("cannot make a template; trying again", "namespace", t.namespace, "name", t.name, "error", err)
			queue.AddRateLimited(t)
		}
		queue.Done(t)
	}
}

// strip leaves of a pod what templates are made by: a cluster has many pods.
func strip(object any) (any, error) {
	if p, is := object.(*core.Pod); is {
		return &core.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
			Spec:       core.PodSpec{ResourceClaims: p.Spec.ResourceClaims},
		}, nil
	}
	return object, nil
}

// wanted returns the templates that a pod refers to.
func wanted(object any) (list []template) {
	p, is := object.(*core.Pod)
	if !is {
		return nil
	}
	for _, c := range p.Spec.ResourceClaims {
		if name := c.ResourceClaimTemplateName; name != nil && strings.HasPrefix(*name, prefix) {
			list = append(list, template{p.Namespace, *name})
		}
	}
	return list
}

// errAmount is of a name that stands for no minimum.
var errAmount = errors.New("not a minimum")

// ensure creates a template unless there is one of its name.
func ensure(ctx context.Context, kube kubernetes.Interface, check func() error, t template) error {
	bps, err := policy.ParseRate(strings.TrimPrefix(t.name, prefix))
	if err != nil {
		return fmt.Errorf("%w: %w", errAmount, err)
	}
	if err := check(); err != nil {
		return fmt.Errorf("not the leader any more: %w", err)
	}
	_, err = kube.ResourceV1().ResourceClaimTemplates(t.namespace).Create(ctx, &resource.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: t.name, Labels: map[string]string{"app.kubernetes.io/managed-by": "weir"}},
		Spec: resource.ResourceClaimTemplateSpec{Spec: resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: []resource.DeviceRequest{{
			Name: "uplink",
			Exactly: &resource.ExactDeviceRequest{
				DeviceClassName: deviceClass,
				Capacity: &resource.CapacityRequirements{Requests: map[resource.QualifiedName]quantity.Quantity{
					claims.EgressBandwidth: *quantity.NewQuantity(int64(bps), quantity.DecimalSI), // at most policy.MaxRateBPS
				}},
			},
		}}}}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Run creates templates while this instance is the leader, until ctx ends.
func Run(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this instance's name: %w", err)
	}
	held := lease.New(lease.Options{
		Do: requests(kube.CoordinationV1().RESTClient()), IsMissing: apierrors.IsNotFound, Namespace: namespace, Name: leaseName, Identity: name,
	})
	if held.Acquire(ctx, func(why error) { log.Info("waits to make templates of claims", "name", name, "reason", why) }) != nil {
		return nil
	}
	log.Info("makes templates of claims", "name", name)
	leading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- create(leading, kube, held.Check, log)
		stop()
	}()
	lost := held.Keep(leading)
	stop()
	if err := <-ended; err != nil || lost == nil {
		return err
	}
	return fmt.Errorf("lost the lease: %w", lost) // to be started again
}

// requests returns requests of an API server by a client.
func requests(client rest.Interface) func(ctx context.Context, method, path string, body, into any) error {
	return func(ctx context.Context, method, path string, body, into any) error {
		request := client.Verb(method).AbsPath(path)
		if body != nil {
			text, err := json.Marshal(body)
			if err != nil {
				return fmt.Errorf("encode a request: %w", err)
			}
			request.SetHeader("Content-Type", "application/json").Body(text)
		}
		answer, err := request.SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil || into == nil {
			return err
		}
		return json.Unmarshal(answer, into)
	}
}
