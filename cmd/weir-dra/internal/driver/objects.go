package driver

import (
	"errors"
	"fmt"

	resource "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/share/policy"
)

// Names in ResourceSlices and in claims.
const (
	egressBandwidth  resource.QualifiedName = claims.EgressBandwidth
	ingressBandwidth resource.QualifiedName = claims.IngressBandwidth
	uplinkAttribute  resource.QualifiedName = "uplink"
	defaultAttribute resource.QualifiedName = "default"
)

// resources returns the uplinks of a node as its pool of devices.
func resources(node string, list []claims.Device) resourceslice.DriverResources {
	devices := make([]resource.Device, 0, len(list))
	for _, d := range list {
		device := resource.Device{
			Name:                     d.Name,
			AllowMultipleAllocations: new(true),
			Attributes: map[resource.QualifiedName]resource.DeviceAttribute{
				uplinkAttribute:  {StringValue: &d.Uplink},
				defaultAttribute: {BoolValue: &d.Default},
			},
			Capacity: map[resource.QualifiedName]resource.DeviceCapacity{egressBandwidth: capacity(d.Capacity.EgressBPS)},
		}
		if d.Receives {
			device.Capacity[ingressBandwidth] = capacity(d.Capacity.IngressBPS)
		}
		devices = append(devices, device)
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}
}

// capacity returns a rate as a capacity, of which a claim that does not ask for it has none: without a
// default it would have all.
func capacity(bps uint64) resource.DeviceCapacity {
	return resource.DeviceCapacity{
		Value:         *quantity.NewQuantity(int64(min(bps, policy.MaxRateBPS)), quantity.DecimalSI),
		RequestPolicy: &resource.CapacityRequestPolicy{Default: quantity.NewQuantity(0, quantity.DecimalSI)},
	}
}

// ours returns what the scheduler allocated of this driver's devices to a claim. Access by an
// administrator takes nothing.
func ours(c *resource.ResourceClaim) (list []resource.DeviceRequestAllocationResult) {
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == claims.Driver && (r.AdminAccess == nil || !*r.AdminAccess) {
			list = append(list, r)
		}
	}
	return list
}

// readClaim returns a claim that is allocated and reserved for a pod.
func readClaim(c *resource.ResourceClaim) (claims.Claim, error) {
	claim := claims.Claim{UID: string(c.UID), Namespace: c.Namespace, Name: c.Name}
	fail := func(format string, args ...any) (claims.Claim, error) {
		return claim, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, fmt.Errorf(format, args...))
	}
	if n := len(c.Status.ReservedFor); n != 1 {
		return fail("it is reserved for %d pods: a minimum belongs to one; give each a claim of its own, by a ResourceClaimTemplate", n)
	}
	pod := c.Status.ReservedFor[0]
	if pod.APIGroup != "" || pod.Resource != "pods" {
		return fail("it is reserved for %s %s: a minimum belongs to a pod", pod.Resource, pod.Name)
	}
	claim.Pod = claims.Pod{UID: string(pod.UID), Name: pod.Name}
	for _, r := range ours(c) {
		share := claims.Share{Pool: r.Pool, Device: r.Device}
		if r.ShareID == nil {
			return fail("the API server does not count capacity: it takes Kubernetes 1.36 or newer with DRAConsumableCapacity")
		}
		share.ID = string(*r.ShareID)
		var errs [2]error
		share.EgressBPS, errs[0] = rate(r.ConsumedCapacity, egressBandwidth)
		share.IngressBPS, errs[1] = rate(r.ConsumedCapacity, ingressBandwidth)
		if err := errors.Join(errs[:]...); err != nil {
			return fail("%w", err)
		}
		claim.Shares = append(claim.Shares, share)
	}
	return claim, nil
}

// leastBPS is the least minimum: whoever asks for less has written 20m, which is 0.02, for 20M.
const leastBPS = 1000

// rate returns a consumed capacity in bits per second; 0 if there is none.
func rate(consumed map[resource.QualifiedName]quantity.Quantity, name resource.QualifiedName) (uint64, error) {
	q := consumed[name]
	if q.Sign() > 0 && q.CmpInt64(leastBPS) < 0 {
		return 0, fmt.Errorf("%s %s is less than 1 kbit/s: 20M is 20 Mbit/s, 20m a fiftieth of a bit", name, q.String())
	}
	if q.Sign() < 0 || q.CmpInt64(policy.MaxRateBPS) > 0 {
		return 0, fmt.Errorf("%s %s is no rate", name, q.String())
	}
	return uint64(q.Value()), nil // rounded up
}

// devicesOf returns what kubelet has to know of a claim that is prepared.
func devicesOf(c *resource.ResourceClaim) (list []kubeletplugin.Device) {
	for _, r := range ours(c) {
		list = append(list, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID})
	}
	return list
}
