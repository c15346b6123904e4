package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	resource "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/weir-project/weir/internal/k8s/claims"
)

const (
	// writeTimeout bounds a request to the API server, writePause is how long none is made after one
	// that failed: the driver's other work waits for them.
	writeTimeout = 2 * time.Second
	writePause   = 5 * time.Second
)

// reports are the conditions of claims, by the claims' UIDs.
type reports map[string]*claimReport

// claimReport is one condition for each share of a claim.
type claimReport struct {
	claim      claims.Claim
	seen, told []claims.Condition
	// over: the API server does not have the claim any more.
	over bool
}

// details is the data of a device's status.
type details struct {
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// report judges all claims, not what pods request of the extended resource, and tells the API server what has changed. Kubelet's calls come in between: a
// write may take long.
func (d *driver) report(ctx context.Context, now time.Time) {
	maps.DeleteFunc(d.reports, func(uid string, r *claimReport) bool { return !reflect.DeepEqual(d.ledger[uid], r.claim) })
	prepared, _ := d.ledger.Split()
	for uid, c := range prepared {
		select {
		case call := <-d.calls:
			call(ctx)
		default:
		}
		if _, has := d.ledger[uid]; !has {
			continue // it has ended by that call
		}
		r := d.reports[uid]
		if r == nil {
			r = &claimReport{claim: c, seen: make([]claims.Condition, len(c.Shares))}
			d.reports[uid] = r
		}
		if r.over {
			d.forget(c)
			continue
		}
		if now.Before(d.writeAfter) || ctx.Err() != nil {
			continue
		}
		if err := d.reportClaim(ctx, c, r, now); err != nil {
			d.log.Warn("cannot write the status of a claim; trying again", "claim", c.Namespace+"/"+c.Name, "error", err)
			d.writeAfter = now.Add(writePause)
		}
	}
}

// forget drops a claim that the API server does not have any more, once its pod has ended. Kubelet would
// have told, but for one that has lost its own notes.
func (d *driver) forget(c claims.Claim) {
	if d.view == nil || d.view.Runs(c) {
		return
	}
	next := maps.Clone(d.ledger)
	delete(next, c.UID)
	if err := d.keep(next); err != nil {
		d.log.Warn("cannot forget a claim; trying again", "claim", c.Namespace+"/"+c.Name, "error", err)
	}
}

func (d *driver) reportClaim(ctx context.Context, c claims.Claim, r *claimReport, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if r.told == nil {
		before, err := d.readStatus(ctx, c)
		if err != nil || before == nil {
			r.over = err == nil
			return err
		}
		r.told = before
		copy(r.seen, before)
	}
	differs := false
	for i, s := range c.Shares {
		r.seen[i] = d.ledger.Judge(c, s, d.view).After(r.seen[i], now)
		differs = differs || r.seen[i].Differs(r.told[i])
	}
	if !differs {
		return nil
	}
	err := d.writeStatus(ctx, c, r.seen)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		r.told = nil // read the status before the next write
		return nil
	case apierrors.IsInvalid(err): // as of a claim that is allocated anew
		r.told = nil
	case err == nil:
		copy(r.told, r.seen)
	}
	return err
}

// readStatus returns the conditions that a claim has, which a driver before this one wrote; nil if the
// claim is not there any more, or is allocated anew.
func (d *driver) readStatus(ctx context.Context, c claims.Claim) ([]claims.Condition, error) {
	object, err := d.kube.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !holds(object, c) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]claims.Condition, len(c.Shares))
	for i, s := range c.Shares {
		for _, device := range object.Status.Devices {
			if device.Driver != claims.Driver || device.Pool != s.Pool || device.Device != s.Device || device.ShareID == nil || *device.ShareID != s.ID {
				continue
			}
			if had := meta.FindStatusCondition(device.Conditions, claims.Guaranteed); had != nil {
				list[i] = claims.Condition{Status: string(had.Status), Reason: had.Reason, Message: had.Message, Since: had.LastTransitionTime.Time}
			}
			var data details
			if device.Data != nil && json.Unmarshal(device.Data.Raw, &data) == nil {
				list[i].LastSeen = data.LastSeen
			}
		}
	}
	return list, nil
}

// holds reports whether a claim is allocated as it was when it was prepared.
func holds(object *resource.ResourceClaim, c claims.Claim) bool {
	if string(object.UID) != c.UID || object.Status.Allocation == nil {
		return false
	}
	list := ours(object)
	for _, s := range c.Shares {
		if !slices.ContainsFunc(list, func(r resource.DeviceRequestAllocationResult) bool {
			return r.ShareID != nil && string(*r.ShareID) == s.ID
		}) {
			return false
		}
	}
	return true
}

// writeStatus writes the conditions of a claim, unless another claim has its name by now.
func (d *driver) writeStatus(ctx context.Context, c claims.Claim, conditions []claims.Condition) error {
	status := apply.ResourceClaimStatus()
	for i, s := range c.Shares {
		data, err := json.Marshal(details{LastSeen: conditions[i].LastSeen.UTC().Truncate(time.Second)})
		if err != nil {
			return fmt.Errorf("write down the times: %w", err)
		}
		status = status.WithDevices(apply.AllocatedDeviceStatus().
			WithDriver(claims.Driver).WithPool(s.Pool).WithDevice(s.Device).WithShareID(s.ID).
			WithConditions(applymeta.Condition().
				WithType(claims.Guaranteed).WithStatus(metav1.ConditionStatus(conditions[i].Status)).
				WithReason(conditions[i].Reason).WithMessage(conditions[i].Message).
				WithLastTransitionTime(metav1.NewTime(conditions[i].Since))).
			WithData(runtime.RawExtension{Raw: data}))
	}
	_, err := d.kube.ResourceV1().ResourceClaims(c.Namespace).ApplyStatus(ctx,
		apply.ResourceClaim(c.Name, c.Namespace).WithUID(types.UID(c.UID)).WithStatus(status),
		metav1.ApplyOptions{FieldManager: claims.Driver, Force: true})
	return err
}
