package driver

import (
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	resource "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/share/policy"
)

// TestAnnotated: what the admission policy takes for a minimum is one for templates and for claims, or its pod would wait for
// ever.
func TestAnnotated(t *testing.T) {
	manifest, err := os.ReadFile("../../../../packaging/kubernetes/weir-annotations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\.matches\("(.+)"\)`).FindSubmatch(manifest)
	if found == nil {
		t.Fatal("the policy has no expression")
	}
	policyTakes := regexp.MustCompile(string(found[1])).MatchString // CEL and Go have RE2's language
	check := func(text string) error {
		bps, err := policy.ParseRate(text)
		if err == nil {
			amount := *quantity.NewQuantity(int64(bps), quantity.DecimalSI)
			_, err = rate(map[resource.QualifiedName]quantity.Quantity{egressBandwidth: amount}, egressBandwidth)
		}
		return err
	}
	for _, text := range []string{"1kbit", "1000bit", "20mbit", "6.5mbit", "0.5mbit", "0.001mbit", "0.05gbit", "1000000kbit", "999999.999999999gbit", "999999999999999bit"} {
		if err := check(text); err != nil || !policyTakes(text) {
			t.Errorf("%s stays an annotation (%v)", text, err)
		}
	}
	for _, text := range []string{"", "20", "20M", "20Mbit", "0mbit", "0.0mbit", "0.5bit", "500bit", "0.5kbit", "0.0001mbit", "99999999gbit", "1.mbit", "20mbit\n", "-1mbit"} {
		if policyTakes(text) {
			t.Errorf("%q becomes a claim", text)
		}
	}
	const symbols = "00000.123456789"
	units, taken := []string{"bit", "kbit", "mbit", "gbit", "tbit", "M", ""}, 0
	for range 100_000 {
		number := make([]byte, 1+rand.IntN(20))
		for i := range number {
			number[i] = symbols[rand.IntN(len(symbols))]
		}
		text := string(number) + units[rand.IntN(len(units))]
		if !policyTakes(text) {
			continue
		}
		taken++
		if err := check(text); err != nil {
			t.Fatalf("%s becomes a claim: %v", text, err)
		}
	}
	if taken < 1000 {
		t.Errorf("the policy takes %d texts", taken)
	}
}

func TestResources(t *testing.T) {
	got := resources("gateway", []claims.Device{
		{Name: "eth0", Uplink: "eth0", Default: true, Capacity: claims.Rates{EgressBPS: 95e6, IngressBPS: 40e6}, Receives: true},
		{Name: "uplink-1", Uplink: "Br.7", Capacity: claims.Rates{EgressBPS: 1 << 63}},
	}).Pools["gateway"].Slices[0].Devices
	if first := got[0]; *first.Attributes["uplink"].StringValue != "eth0" || !*first.Attributes["default"].BoolValue || !*first.AllowMultipleAllocations {
		t.Errorf("got %+v", first)
	}
	for name, want := range map[resource.QualifiedName]string{egressBandwidth: "95M", ingressBandwidth: "40M"} {
		capacity := got[0].Capacity[name]
		if capacity.Value.String() != want || !capacity.RequestPolicy.Default.IsZero() {
			t.Errorf("%s is %v", name, capacity)
		}
	}
	second := got[1]
	value := second.Capacity[egressBandwidth].Value
	if _, receives := second.Capacity[ingressBandwidth]; receives || *second.Attributes["default"].BoolValue || value.String() != "1P" {
		t.Errorf("got %+v", second)
	}
}

func TestReadClaim(t *testing.T) {
	id := types.UID("11111111-2222-3333-4444-555555555555")
	made := func(change func(*resource.ResourceClaim)) *resource.ResourceClaim {
		c := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid"}}
		c.Status.ReservedFor = []resource.ResourceClaimConsumerReference{{Resource: "pods", Name: "web", UID: "pod"}}
		c.Status.Allocation = &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: []resource.DeviceRequestAllocationResult{
			{Driver: "gpu.example.com", Device: "gpu"},
			{Driver: claims.Driver, Pool: "gateway", Device: "eth0", Request: "r", ShareID: &id, ConsumedCapacity: map[resource.QualifiedName]quantity.Quantity{
				egressBandwidth: quantity.MustParse("20M"), ingressBandwidth: quantity.MustParse("1000500m"),
			}},
			{Driver: claims.Driver, Device: "eth1", AdminAccess: new(true)},
		}}}
		change(c)
		return c
	}
	got, err := readClaim(made(func(*resource.ResourceClaim) {}))
	want := claims.Share{Pool: "gateway", Device: "eth0", ID: string(id), Rates: claims.Rates{EgressBPS: 20e6, IngressBPS: 1001}}
	if err != nil || got.UID != "uid" || got.Pod != (claims.Pod{UID: "pod", Name: "web"}) || len(got.Shares) != 1 || got.Shares[0] != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for want, change := range map[string]func(*resource.ResourceClaim){
		"claim shop/c: it is reserved for 2 pods": func(c *resource.ResourceClaim) {
			c.Status.ReservedFor = append(c.Status.ReservedFor, c.Status.ReservedFor[0])
		},
		"less than 1 kbit/s: 20M is 20 Mbit/s": func(c *resource.ResourceClaim) {
			c.Status.Allocation.Devices.Results[1].ConsumedCapacity[egressBandwidth] = quantity.MustParse("20m")
		},
		"reserved for podgroups web": func(c *resource.ResourceClaim) { c.Status.ReservedFor[0].Resource = "podgroups" },
		"Kubernetes 1.36 or newer":   func(c *resource.ResourceClaim) { c.Status.Allocation.Devices.Results[1].ShareID = nil },
		"egressBandwidth -1 is no rate": func(c *resource.ResourceClaim) {
			c.Status.Allocation.Devices.Results[1].ConsumedCapacity[egressBandwidth] = quantity.MustParse("-1")
		},
		"ingressBandwidth 2P is no rate": func(c *resource.ResourceClaim) {
			c.Status.Allocation.Devices.Results[1].ConsumedCapacity[ingressBandwidth] = quantity.MustParse("2P")
		},
	} {
		if _, err := readClaim(made(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
