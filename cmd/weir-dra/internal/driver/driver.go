// Package driver is weir-dra: a driver of Kubernetes' dynamic resource allocation, of which the
// bandwidth of a node's uplinks is the resource.
//
// Problem: a minimum by annotation is known to the agent of one node only. The scheduler places the pod
// where it may not fit.
//
// Method: each uplink of the agent is a device that many claims share (consumable capacity). Kubelet
// asks the driver to prepare the claims of a pod before the pod starts. The driver checks against the
// agent that they fit, and notes them in a file (internal/k8s/claims), from which weir-k8s gives the
// pod its minimum. It watches the agent twice a second, publishes what has changed of the uplinks, and
// writes into the status of each claim whether the kernel has it. It also watches the pods of the node: it notes
// changed annotations for weir-k8s in a second file, and tells a pod by an event why it has not what they ask for. The
// rates that annotations of the node say it notes in a third file, which the agent reads.
//
// Where the API server does not count capacity of devices, the bandwidth of the first uplink is an extended resource of
// the node instead. What a pod requests of it is noted like a claim, when the pod is bound to the node.
//
// Limits: a claim belongs to one pod. The driver does not watch claims that are not prepared yet, since
// each node would get those of all nodes: until then an uplink's capacity may fall below what the
// scheduler has allocated of it, and the claim is refused when it is prepared.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"time"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/node"
	"github.com/weir-project/weir/internal/k8s/claims"
)

const (
	// interval is the pause between looks at the agent: a condition is to follow within a second.
	interval = 500 * time.Millisecond
	// agentTimeout bounds a look.
	agentTimeout = 900 * time.Millisecond
	// agentPatience is how long an agent may be away before its word counts as old: a restart is shorter.
	agentPatience = 5 * time.Second
)

const rightsHint = "weir-dra takes the rights of packaging/kubernetes/weir.yaml"

// driver implements kubeletplugin.DRAPlugin. Its goroutine (run) owns all state.
type driver struct {
	node   string
	folder string
	agent  *client.Client
	kube   kubernetes.Interface
	log    *slog.Logger
	calls  chan func(context.Context)
	// broken has the error that ends the driver.
	broken chan error

	ledger claims.Ledger
	// view is what the agent said last, at lookedAt, which begins with the driver; nil if it has not answered
	// for agentPatience, or never.
	view      *claims.View
	lookedAt  time.Time
	published []claims.Device
	reports   reports
	pods      *pods
	rates     *nodeRates
	// wake ends the pause between looks at the agent.
	wake chan struct{}
	// extended: the API server does not count capacity of devices, as was seen at probedAt.
	extended bool
	probedAt time.Time
	// writeAfter is when the next attempt may be made to write the status of claims, offerAfter that of the node.
	writeAfter, offerAfter time.Time
}

func newDriver(nodeName, folder string, agent *client.Client, kube kubernetes.Interface, log *slog.Logger) (*driver, error) {
	ledger, err := claims.Load(claims.LedgerFile(folder))
	if err != nil {
		return nil, err
	}
	wake := make(chan struct{}, 1)
	signal := func() { notify(wake) }
	pods, err := newPods(nodeName, folder, kube, signal, log)
	if err != nil {
		return nil, err
	}
	rates, err := newNodeRates(nodeName, folder, kube, pods.recorder, signal, log)
	if err != nil {
		return nil, err
	}
	return &driver{
		node: nodeName, folder: folder, agent: agent, kube: kube, log: log, calls: make(chan func(context.Context)),
		broken: make(chan error, 1), ledger: ledger, lookedAt: time.Now(), reports: reports{}, pods: pods, rates: rates, wake: wake,
	}, nil
}

// run watches the agent until ctx ends. publish passes devices on to the API server.
func (d *driver) run(ctx context.Context, publish func([]claims.Device) error) error {
	defer d.pods.start(ctx)()
	defer d.rates.start(ctx)()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		now := time.Now()
		if err := d.look(ctx); err == nil {
			d.rates.apply(ctx, d.agent, d.view.Uplinks, now)
			if err := d.publish(ctx, publish, now); err != nil {
				return err
			}
		} else if d.view == nil && now.Sub(d.lookedAt) > agentPatience {
			d.rates.applyAlone()
		}
		if d.view != nil || now.Sub(d.lookedAt) > agentPatience {
			d.report(ctx, time.Now())
		}
		if d.view != nil {
			d.pods.emitEvents(d.view.Containers, d.ledger, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.broken:
			return err
		case <-tick.C:
		case <-d.wake:
		case call := <-d.calls:
			call(ctx)
		}
	}
}

// publish tells the API server what the node offers: its devices or the extended resource, or both after a move from that
// to devices.
func (d *driver) publish(ctx context.Context, devices func([]claims.Device) error, now time.Time) error {
	d.offer(ctx, now)
	if d.extended {
		return d.probeAgain(ctx, now)
	}
	list := d.ledger.Devices(d.view)
	if reflect.DeepEqual(list, d.published) {
		return nil
	}
	if err := devices(list); err != nil {
		return fmt.Errorf("publish the uplinks: %w", err)
	}
	d.published = list
	return nil
}

// do runs a call in the driver's goroutine.
func (d *driver) do(ctx context.Context, call func(context.Context)) error {
	done := make(chan struct{})
	select {
	case d.calls <- func(ctx context.Context) { call(ctx); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look asks the agent for its state.
func (d *driver) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	seen, err := d.agent.Snapshot(ctx)
	switch {
	case err == nil:
		if d.view == nil {
			d.log.Info("connected to the agent", "uplinks", len(seen.Status.Uplinks))
		}
		d.view, d.lookedAt = &claims.View{Uplinks: node.Uplinks(&seen), Containers: seen.Containers}, time.Now()
	case d.view != nil && time.Since(d.lookedAt) > agentPatience:
		d.log.Warn("lost the agent; what it put into force stays", "error", err)
		d.view = nil
	}
	return err
}

// PrepareResourceClaims is called before a pod with claims starts. An answered error is shown with the
// pod, and kubelet tries again.
func (d *driver) PrepareResourceClaims(ctx context.Context, list []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	var failed error
	err := d.do(ctx, func(ctx context.Context) {
		var view *claims.View // what is old admits nothing
		if d.look(ctx) == nil {
			view = d.view
		}
		next := maps.Clone(d.ledger)
		for _, c := range list {
			claim, err := readClaim(c)
			if err == nil {
				err = next.Admit(claim, view)
			}
			if err != nil {
				d.log.Warn("refused a claim", "error", err)
				results[c.UID] = kubeletplugin.PrepareResult{Err: fmt.Errorf("weir: %w", err)}
				continue
			}
			results[c.UID] = kubeletplugin.PrepareResult{Devices: devicesOf(c)}
		}
		failed = d.keep(next)
	})
	if err == nil {
		err = failed
	}
	return results, err
}

// UnprepareResourceClaims is called when the pods of claims have ended.
func (d *driver) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	var failed error
	err := d.do(ctx, func(context.Context) {
		next := maps.Clone(d.ledger)
		for _, c := range list {
			delete(next, string(c.UID))
			results[c.UID] = nil
		}
		failed = d.keep(next)
	})
	if err == nil {
		err = failed
	}
	return results, err
}

// keep makes a ledger the driver's, once it is on disk.
func (d *driver) keep(next claims.Ledger) error {
	if reflect.DeepEqual(next, d.ledger) {
		return nil
	}
	if err := next.Save(claims.LedgerFile(d.folder)); err != nil {
		return err
	}
	d.ledger = next
	return nil
}

// HandleError is called for errors in the background. Those that nothing recovers from end the driver,
// which is started again.
func (d *driver) HandleError(_ context.Context, err error, msg string) {
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		select {
		case d.broken <- fmt.Errorf("%s: %w", msg, err):
		default:
		}
		return
	}
	d.log.Error(msg, "error", err, "hint", "claims of bandwidth take Kubernetes 1.36 or newer; "+rightsHint)
}

// WatchHealthStatus: whether a claim is in force is in its status.
func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
