package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/weir-project/weir/internal/k8s/claims"
)

// egressKbps is the extended resource that a node offers where the API server does not count capacity of devices, as
// before Kubernetes 1.36: of its first uplink, in kbit/s. A pod that requests it has that as its minimum.
const egressKbps core.ResourceName = claims.AnnotationPrefix + "egress-kbps"

const (
	eventExtended = "WeirExtendedResource"
	// probeInterval is the pause between looks whether the API server counts by now.
	probeInterval = 10 * time.Minute
	offerHint     = "it takes the rights of packaging/kubernetes/weir-before-1.36.yaml, too; if no pod requests it any more, remove it from the nodes (docs/kubernetes.md)"
)

// countsCapacity reports whether the API server counts capacity of devices, by a slice that it is not to keep: one that
// does not count has no such slices, or leaves out what it does not know.
func countsCapacity(ctx context.Context, kube kubernetes.Interface, node string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	probe := &resource.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "weir-probe-"}}
	probe.Spec = resource.ResourceSliceSpec{
		Driver: claims.Driver, NodeName: &node, Pool: resource.ResourcePool{Name: "probe", Generation: 1, ResourceSliceCount: 1},
		Devices: resources("probe", []claims.Device{{Name: "probe", Uplink: "probe"}}).Pools["probe"].Slices[0].Devices,
	}
	made, err := kube.ResourceV1().ResourceSlices().Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the API server whether it counts capacity of devices: %w", err)
	}
	return made.Spec.Devices[0].AllowMultipleAllocations != nil, nil
}

// onlyEgress returns the extended resource among others.
func onlyEgress(list core.ResourceList) core.ResourceList {
	if amount, has := list[egressKbps]; has {
		return core.ResourceList{egressKbps: amount}
	}
	return nil
}

// requestOf returns how much of the extended resource a pod has: its containers and sidecars at the same time, or one
// that runs before them.
func requestOf(p *core.Pod) quantity.Quantity {
	var sum, most quantity.Quantity
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		amount := c.Resources.Requests[egressKbps].DeepCopy()
		if c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways {
			sum.Add(amount)
			continue
		}
		amount.Add(sum)
		if amount.Cmp(most) > 0 {
			most = amount
		}
	}
	for i := range p.Spec.Containers {
		sum.Add(p.Spec.Containers[i].Resources.Requests[egressKbps])
	}
	if most.Cmp(sum) > 0 {
		return most
	}
	return sum
}

// requested returns as a ledger what pods of the node requested of the extended resource, of an uplink.
func requested(pods map[string]*core.Pod, uplink string) claims.Ledger {
	ledger := claims.Ledger{}
	for _, p := range pods {
		amount := requestOf(p)
		if amount.Sign() <= 0 || p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed {
			continue
		}
		uid := string(p.UID)
		ledger[uid] = claims.Claim{
			UID: uid, Namespace: p.Namespace, Name: p.Name, Pod: claims.Pod{UID: uid, Name: p.Name},
			Shares: []claims.Share{{Device: claims.DeviceName(uplink), Rates: claims.Rates{EgressBPS: 1000 * uint64(amount.Value())}}},
		}
	}
	return ledger
}

// noteRequests notes what pods of the node request, for weir-k8s. Claims that are prepared stay.
func (d *driver) noteRequests() error {
	next, _ := d.ledger.Split()
	maps.Copy(next, requested(d.pods.list(), d.view.Uplinks[0].Name))
	return d.keep(next)
}

// offer notes what pods request, and writes into the status of the node how much of the extended resource it has. Where
// the API server counts capacity of devices, a node that has the resource keeps it: pods that request it may come from
// other nodes, and start nowhere without it.
func (d *driver) offer(ctx context.Context, now time.Time) {
	if d.view == nil || len(d.view.Uplinks) == 0 || !d.pods.informer.HasSynced() {
		return
	}
	if err := d.noteRequests(); err != nil {
		d.log.Warn("cannot note what pods requested; trying again", "error", err)
		return
	}
	node := d.rates.get()
	if node == nil || now.Before(d.offerAfter) {
		return
	}
	_, has := node.Status.Capacity[egressKbps]
	kbps := d.ledger.RequestableBPS(d.view) / 1000
	if !has && !d.extended || offers(node.Status.Capacity, kbps) && offers(node.Status.Allocatable, kbps) {
		return
	}
	if err := d.patchStatus(ctx, kbps); err != nil {
		d.log.Warn("cannot offer "+string(egressKbps)+"; trying again", "error", err, "hint", offerHint)
		d.offerAfter = now.Add(writePause)
		if !d.extended && apierrors.IsForbidden(err) {
			d.offerAfter = now.Add(probeInterval) // the rights are gone, the resource is not
		}
	} else if !has {
		d.rates.recorder.Event(node, core.EventTypeNormal, eventExtended, fmt.Sprintf("the API server does not count capacity of devices: the node offers %s", egressKbps))
	}
}

func offers(list core.ResourceList, kbps uint64) bool {
	amount, has := list[egressKbps]
	return has && amount.CmpInt64(int64(kbps)) == 0
}

// patchStatus writes the amount of the extended resource into the status of the node.
func (d *driver) patchStatus(ctx context.Context, kbps uint64) error {
	amount := map[core.ResourceName]string{egressKbps: strconv.FormatUint(kbps, 10)}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": amount, "allocatable": amount}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = d.kube.CoreV1().Nodes().Patch(ctx, d.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// probe finds out what to offer, as soon as the API server answers, unless ctx ends before.
func (d *driver) probe(ctx context.Context) {
	for complained := false; ; complained = true {
		counts, err := countsCapacity(ctx, d.kube, d.node)
		if err == nil {
			d.extended, d.probedAt = !counts, time.Now()
			return
		}
		if !complained && ctx.Err() == nil {
			d.log.Warn("waiting for the API server", "error", err, "hint", rightsHint)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(writePause):
		}
	}
}

// probeAgain ends a driver of an API server that counts capacity by now: the next one offers devices.
func (d *driver) probeAgain(ctx context.Context, now time.Time) error {
	if now.Sub(d.probedAt) < probeInterval {
		return nil
	}
	d.probedAt = now
	if counts, err := countsCapacity(ctx, d.kube, d.node); err == nil && counts {
		return errors.New("the API server counts capacity of devices by now: start again")
	}
	return nil
}
