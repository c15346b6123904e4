//go:build cluster

package k8s

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// amounts are bandwidths by device and capacity, "POOL/DEVICE/CAPACITY".
type amounts map[string]int64

// change is a new state of a slice, which offers bandwidth, or of a claim, which has bandwidth.
type change struct {
	version uint64
	object  string
	offers  bool
	amounts amounts
}

// record is what watches said of slices, claims and pods.
type record struct {
	mu      sync.Mutex
	changes []change
	// bound has the nodes of pods, in the order of order; refused the scheduler's words for those that fit none.
	bound, refused map[string]string
	order          []string
	// claims are by the names of their pods.
	claims map[string]claimRef
	err    error
}

// claimRef is how kubelet names a claim.
type claimRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// event is a line of the API server's answer to a watch.
type event struct {
	Type   string
	Object struct {
		Kind     string
		Metadata struct {
			Name, Namespace, UID, ResourceVersion string
			OwnerReferences                       []struct{ Name string }
		}
		Spec struct {
			NodeName string
			Pool     struct{ Name string }
			// Devices are a slice's, or what a claim asks.
			Devices json.RawMessage
		}
		Status struct {
			Conditions []condition
			Allocation struct {
				Devices struct {
					Results []struct {
						Pool, Device     string
						ConsumedCapacity map[string]string
					}
				}
			}
		}
	}
}

// watch records the changes of slices, claims and pods until the test ends.
func (c *cluster) watch() *record {
	c.t.Helper()
	r := &record{bound: map[string]string{}, refused: map[string]string{}, claims: map[string]claimRef{}}
	for _, path := range []string{claimAPI + "resourceslices", claimAPI + "resourceclaims", "/api/v1/" + inShop + "pods"} {
		var list struct {
			Metadata struct{ ResourceVersion string }
		}
		c.must("GET", path, nil, &list)
		go func() {
			version, err := list.Metadata.ResourceVersion, error(nil)
			for err == nil {
				version, err = c.watchFrom(path, version, r)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.err = errors.Join(r.err, fmt.Errorf("the watch of %s ended: %w", path, err))
		}()
	}
	return r
}

// watchFrom records what happens after a version, until the API server ends the watch, as it does with one whose reader is
// slow. It returns the version to go on from: none is missed, since the API server refuses one that it has forgotten.
func (c *cluster) watchFrom(path, version string, r *record) (last string, err error) {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "https://"+c.address+path+"?watch=1&resourceVersion="+version, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Authorization": {"Bearer admin"}}
	answer, err := c.client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	lines := json.NewDecoder(answer.Body)
	for {
		var line json.RawMessage
		if lines.Decode(&line) != nil {
			return version, nil
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return "", err
		}
		if err := r.add(&e); err != nil {
			return "", err
		}
		version = e.Object.Metadata.ResourceVersion
	}
}

// add records an event.
func (r *record) add(e *event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &e.Object
	version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil || e.Type == "ERROR" {
		return fmt.Errorf("%+v: %w", e, err)
	}
	seen := amounts{}
	note := func(pool, device, capacity, value string) {
		bps, errNow := parseQuantity(value)
		seen[pool+"/"+device+"/"+capacity] += bps
		err = cmp.Or(err, errNow)
	}
	switch o.Kind {
	case "Pod":
		if name := o.Metadata.Name; o.Spec.NodeName != "" && r.bound[name] == "" {
			r.bound[name] = o.Spec.NodeName
			r.order = append(r.order, name)
			delete(r.refused, name)
		} else if r.bound[name] == "" {
			for _, found := range o.Status.Conditions {
				if found.Reason == "Unschedulable" {
					r.refused[name] = found.Message
				}
			}
		}
		return nil
	case "ResourceClaim":
		pod := o.Metadata.Name
		for _, owner := range o.Metadata.OwnerReferences {
			pod = owner.Name
		}
		r.claims[pod] = claimRef{o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID}
		for _, result := range o.Status.Allocation.Devices.Results {
			for capacity, value := range result.ConsumedCapacity {
				note(result.Pool, result.Device, capacity, value)
			}
		}
	case "ResourceSlice":
		var devices []struct {
			Name     string
			Capacity map[string]struct{ Value string }
		}
		err = json.Unmarshal(o.Spec.Devices, &devices)
		for _, device := range devices {
			for capacity, value := range device.Capacity {
				note(o.Spec.Pool.Name, device.Name, capacity, value.Value)
			}
		}
	}
	if e.Type == "DELETED" {
		seen = nil
	}
	r.changes = append(r.changes, change{version, o.Metadata.UID, o.Kind == "ResourceSlice", seen})
	return err
}

// parseQuantity returns the value of a whole quantity in the API server's notation.
func parseQuantity(text string) (int64, error) {
	digits := strings.TrimRight(text, "kMGT")
	value, err := strconv.ParseInt(digits, 10, 64)
	for range strings.Index(" kMGT", text[len(digits):]) {
		value *= 1000
	}
	return value, err
}

// overPromises replays what was recorded in the order of the API server's versions, and returns each moment at which claims
// came to have more of a device than its slice offers.
func (r *record) overPromises() (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	inOrder := slices.SortedFunc(slices.Values(r.changes), func(a, b change) int { return cmp.Compare(a.version, b.version) })
	objects, offered, promised := map[string]amounts{}, amounts{}, amounts{}
	over := map[string]bool{}
	for _, c := range inOrder {
		sums := promised
		if c.offers {
			sums = offered
		}
		touched := map[string]bool{}
		for key, bps := range objects[c.object] {
			sums[key] -= bps
			touched[key] = true
		}
		for key, bps := range c.amounts {
			sums[key] += bps
			touched[key] = true
		}
		objects[c.object] = c.amounts
		for key := range touched {
			if is := promised[key] > offered[key]; is && !over[key] {
				found = append(found, fmt.Sprintf("version %d: %s: %d promised, %d offered", c.version, key, promised[key], offered[key]))
			}
			over[key] = promised[key] > offered[key]
		}
	}
	return found
}

// sums returns what is offered and promised now, of all nodes that fit, and how many offer something.
func (r *record) sums(fits func(pool string) bool) (offered, promised int64, nodes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]change{}
	for _, c := range r.changes {
		if c.version >= last[c.object].version {
			last[c.object] = c
		}
	}
	for _, c := range last {
		for key, bps := range c.amounts {
			pool, _, _ := strings.Cut(key, "/")
			switch {
			case !fits(pool):
			case c.offers:
				offered += bps
				nodes++
			default:
				promised += bps
			}
		}
	}
	return offered, promised, nodes
}

// counts returns how many of the pods that have a prefix are bound, and how many fit no node.
func (r *record) counts(prefix string) (bound, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.bound {
		if strings.HasPrefix(name, prefix) {
			bound++
		}
	}
	for name := range r.refused {
		if strings.HasPrefix(name, prefix) {
			refused++
		}
	}
	return bound, refused
}

// claimsOf returns the pods of a node in the order in which they were bound, and their claims and what those have.
func (r *record) claimsOf(node string) (pods []string, list []claimRef, sizes []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := map[string]int64{}
	for _, c := range r.changes {
		has[c.object] = 0
		for _, bps := range c.amounts {
			has[c.object] += bps
		}
	}
	for _, pod := range r.order {
		if ref := r.claims[pod]; r.bound[pod] == node && has[ref.UID] > 0 {
			pods, list, sizes = append(pods, pod), append(list, ref), append(sizes, has[ref.UID])
		}
	}
	return pods, list, sizes
}

// deviceOf returns the device of a node.
func (r *record) deviceOf(node string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.changes {
		for key := range c.amounts {
			if parts := strings.Split(key, "/"); c.offers && parts[0] == node {
				return parts[1]
			}
		}
	}
	return ""
}

// failure returns why a watch ended.
func (r *record) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
