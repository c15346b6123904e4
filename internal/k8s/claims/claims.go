// Package claims is the ledger of the bandwidth that Kubernetes' scheduler promised on a node.
//
// Problem: the scheduler promises what a node publishes, and the agent admits minimums of containers of
// all engines. Between the scheduler's choice and the start of a pod the same bandwidth may be
// promised twice: to another pod by a second scheduler, or to a container of Docker.
//
// Method: an uplink publishes as capacity what prepared claims have of it and what is left, which is
// what the agent can still admit, less what claims have whose pods are not admitted yet. A claim is
// refused when its pod starts and less than that is left. The minimum then comes to the agent with the
// pod, as one by annotation does, and the agent decides once more: what the kernel has always fits.
//
// Source: KEP-5075 (consumable capacity), default since Kubernetes 1.36.
//
// Limits: the agent learns of a claim when its pod starts, and may admit a container before that: the
// pod is then rejected and its claim not guaranteed. A pod's minimum counts at each uplink of the
// host, as any container's does, whichever uplink it is claimed of.
package claims

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Claim is a minimum of one pod: a ResourceClaim that is prepared on this node, or what the pod requests of the extended
// resource, whose UID is then the pod's.
type Claim struct {
	UID       string  `json:"uid"`
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Pod       Pod     `json:"pod"`
	Shares    []Share `json:"shares"`
}

// Pod is a pod of the claim's namespace.
type Pod struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

// Share is what the scheduler allocated to a claim of a device, which stands for an uplink (DeviceName).
// Pool and ID are its names for it.
type Share struct {
	Pool   string `json:"pool"`
	Device string `json:"device"`
	ID     string `json:"id,omitempty"`
	Rates
}

// Rates are minimums in both directions.
type Rates struct {
	EgressBPS  uint64 `json:"egress_bps"`
	IngressBPS uint64 `json:"ingress_bps"`
}

func (r Rates) plus(o Rates) Rates {
	return Rates{r.EgressBPS + o.EgressBPS, r.IngressBPS + o.IngressBPS}
}

// minus returns the difference, at least 0.
func (r Rates) minus(o Rates) Rates {
	return Rates{r.EgressBPS - min(o.EgressBPS, r.EgressBPS), r.IngressBPS - min(o.IngressBPS, r.IngressBPS)}
}

// View is what the agent has at one moment.
type View struct {
	Uplinks    []v1.MeasuredUplink
	Containers []v1.Container
}

// free returns what further minimums can have of an uplink.
func free(u *v1.MeasuredUplink) Rates {
	r := Rates{EgressBPS: u.FreeBPS}
	if u.In != nil {
		r.IngressBPS = u.In.FreeBPS
	}
	return r
}

// uplink returns the uplink that a device stands for; nil if the agent has none.
func (v *View) uplink(device string) *v1.MeasuredUplink {
	for i := range v.Uplinks {
		if DeviceName(v.Uplinks[i].Name) == device {
			return &v.Uplinks[i]
		}
	}
	return nil
}

// container returns the pod of a claim as the agent has it; nil if it does not run.
func (v *View) container(c Claim) *v1.Container {
	name := c.Namespace + "/" + c.Pod.Name
	for i := range v.Containers {
		if v.Containers[i].Name == name && v.Containers[i].Runtime == v1.RuntimeKubernetes {
			return &v.Containers[i]
		}
	}
	return nil
}

// Runs reports whether the agent has the pod of a claim.
func (v *View) Runs(c Claim) bool { return v.container(c) != nil }

// admitted returns the minimums of a claim's pod that the agent has admitted at an uplink.
func (v *View) admitted(c Claim, uplink string) (r Rates) {
	pod := v.container(c)
	if pod == nil {
		return r
	}
	if s := pod.ShareAt(uplink); s != nil {
		r.EgressBPS = s.AdmittedBPS
	}
	if pod.In != nil {
		if s := pod.In.ShareAt(uplink); s != nil {
			r.IngressBPS = s.AdmittedBPS
		}
	}
	return r
}

// Ledger holds the claims that are prepared on this node, by their UIDs.
type Ledger map[string]Claim

// Split returns the ResourceClaims, and what pods request of the extended resource.
func (l Ledger) Split() (prepared, requests Ledger) {
	prepared, requests = Ledger{}, Ledger{}
	for uid, c := range l {
		if c.UID == c.Pod.UID {
			requests[uid] = c
		} else {
			prepared[uid] = c
		}
	}
	return prepared, requests
}

// ofPod returns the minimums of a pod of each device: the sums of all its claims.
func (l Ledger) ofPod(uid string) map[string]Rates {
	sums := map[string]Rates{}
	for _, c := range l {
		if c.Pod.UID != uid {
			continue
		}
		for _, s := range c.Shares {
			sums[s.Device] = sums[s.Device].plus(s.Rates)
		}
	}
	return sums
}

// promised returns what claims have of an uplink, and the part of it that their pods have yet to get.
func (l Ledger) promised(u *v1.MeasuredUplink, v *View) (all, due Rates) {
	device := DeviceName(u.Name)
	seen := map[string]bool{}
	for _, c := range l {
		if seen[c.Pod.UID] {
			continue
		}
		seen[c.Pod.UID] = true
		wanted := l.ofPod(c.Pod.UID)[device]
		all, due = all.plus(wanted), due.plus(wanted.minus(v.admitted(c, u.Name)))
	}
	return all, due
}

// Admit adds a claim. It refuses one that an uplink has too little left for, in words for users, and
// every one while the agent does not answer (v is nil). A claim that the ledger has stays.
func (l Ledger) Admit(c Claim, v *View) error {
	if reflect.DeepEqual(l[c.UID], c) {
		return nil
	}
	if err := l.check(c, v); err != nil {
		return fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	l[c.UID] = c
	return nil
}

// check returns why a claim cannot be admitted.
func (l Ledger) check(c Claim, v *View) error {
	if v == nil {
		return errors.New("the agent does not answer")
	}
	after := maps.Clone(l)
	after[c.UID] = c
	wanted, ofPod := Ledger{c.UID: c}.ofPod(c.Pod.UID), after.ofPod(c.Pod.UID)
	for _, device := range slices.Sorted(maps.Keys(wanted)) {
		u := v.uplink(device)
		if u == nil {
			return fmt.Errorf("the agent has no uplink for device %s", device)
		}
		for other, r := range ofPod {
			if r != ofPod[device] {
				return fmt.Errorf("pod %s would have different minimums of %s and %s: a pod has the same at each uplink that it claims", c.Pod.Name, device, other)
			}
		}
		_, due := l.promised(u, v)
		_, dueThen := after.promised(u, v)
		extra, left := dueThen.minus(due), free(u).minus(due)
		refuse := func(what string, wantBPS, leftBPS uint64) error {
			return fmt.Errorf("minimum %s%s cannot be guaranteed: %s is left at uplink %s",
				policy.FormatRate(wantBPS), what, policy.FormatRateWithin(leftBPS), u.Name)
		}
		switch {
		case extra.EgressBPS > left.EgressBPS:
			return refuse("", wanted[device].EgressBPS, left.EgressBPS)
		case extra.IngressBPS > left.IngressBPS:
			return refuse(" of received traffic", wanted[device].IngressBPS, left.IngressBPS)
		}
	}
	return nil
}

// Labels returns the minimums of a pod as labels, for both directions: an empty one stands for no
// minimum. A pod without claims has none of them. Minimums of different uplinks, which a claim and a request of one
// pod may be, become the larger one: a pod has the same at each uplink.
func (l Ledger) Labels(podUID string) map[string]string {
	write := func(bps uint64) string {
		if bps == 0 {
			return ""
		}
		return policy.FormatRate(bps)
	}
	sums := l.ofPod(podUID)
	if len(sums) == 0 {
		return nil
	}
	var most Rates
	for _, r := range sums {
		most = Rates{max(most.EgressBPS, r.EgressBPS), max(most.IngressBPS, r.IngressBPS)}
	}
	return map[string]string{policy.LabelMin: write(most.EgressBPS), policy.LabelInMin: write(most.IngressBPS)}
}
