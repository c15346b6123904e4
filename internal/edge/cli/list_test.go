package cli

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
)

// TestClaims: explain adds up what a minimum takes: users are the minimum, and what nodes promise
// is the sum of its columns.
func TestClaims(t *testing.T) {
	var b strings.Builder
	err := printExplanation(&b, edge.Explanation{Service: edge.Service{Name: "shop", MinBPS: 20e6, Claims: []edge.Claim{
		{Node: "a", UsersBPS: 10e6, SentBPS: 10e6, PromisedBPS: 20e6, InForceBPS: 20e6, Places: []edge.Place{
			{Where: "uplink", PromisedBPS: 20e6, State: v1.PromiseInForce}, {Where: "link eth1 of switch a1", PromisedBPS: 10e6, State: v1.PromiseBroken, Reason: "cut"},
		}},
		{Node: "b", UsersBPS: 10e6, RelayedBPS: 10e6, AckBPS: 625e3, PromisedBPS: 8e6, InForceBPS: 8e6, Reason: "no room"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"Minimum 20mbit: what all users get together", "a 10mbit - - 10mbit - 20mbit",
		"b 10mbit 10mbit 625kbit - - 8mbit no room", "all 20mbit 10mbit 625kbit 10mbit - 28mbit",
		"a uplink 20mbit in force ", "a link eth1 of switch a1 10mbit broken ", " cut",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
}

// TestReceived: what users send is shown beside what they get, in instances, nodes and explanations.
func TestReceived(t *testing.T) {
	instance := edge.Instance{Service: "shop", Node: "a", Instance: "shop-1", MinBPS: 5e6, ServiceMinBPS: 20e6, InMinBPS: 2e6, ServiceInMinBPS: 8e6}
	for want, change := range map[string]func(*edge.Instance){
		"5mbit of 20mbit, in 2mbit of 8mbit": func(*edge.Instance) {},
		"in 2mbit of 8mbit":                  func(i *edge.Instance) { i.ServiceMinBPS = 0 },
		"-":                                  func(i *edge.Instance) { i.ServiceMinBPS, i.ServiceInMinBPS = 0, 0 },
	} {
		i := instance
		if change(&i); partOfMinimum(i) != want {
			t.Errorf("%q, want %q", partOfMinimum(i), want)
		}
	}
	var b strings.Builder
	nodes := []edge.Node{{Name: "a", Weir: true, UplinkBPS: 100e6, PromisedBPS: 20e6, FreeBPS: 75e6, InPromisedBPS: 8e6, InFreeBPS: 40e6}, {Name: "b", Weir: true, UplinkBPS: 100e6, FreeBPS: 95e6}}
	if err := printNodes(&b, nodes); err != nil {
		t.Fatal(err)
	}
	if err := printExplanation(&b, edge.Explanation{Service: edge.Service{Name: "shop", InMinBPS: 16e6, Claims: []edge.Claim{
		{Node: "a", In: true, SentBPS: 16e6, PromisedBPS: 16e6, Places: []edge.Place{{Where: "uplink in", PromisedBPS: 16e6, State: v1.PromiseInForce}}},
		{Node: "b", ForwardedBPS: 16e6, PromisedBPS: 16e6}, {Node: "b", In: true, UsersBPS: 16e6, RelayedBPS: 16e6, AckBPS: 1e6, PromisedBPS: 12e6, Reason: "no room"},
	}}}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"20mbit, in 8mbit 75mbit, in 40mbit", " 0bit 0bit 95mbit", "What proxies pass on of what users may send", "+SENT +FORWARDED +STARTING", "b - - - - 16mbit - 16mbit",
		"Minimum in 16mbit: what all users may send together", "+SENT +STARTING", "b 16mbit 16mbit 1mbit - - 12mbit no room", "all 16mbit 16mbit 1mbit 16mbit - 28mbit", "a uplink in 16mbit in force ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
}

// TestWaitingUsers: USERS of instances has those who wait, so that it adds up.
func TestWaitingUsers(t *testing.T) {
	var b strings.Builder
	if err := printInstances(&b, []edge.Instance{{Service: "shop", Instance: "shop-1", Users: 3, Waiting: 2}, {Service: "shop", Instance: "shop-2", Users: 4}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "  5 (2 wait)  ") || !strings.Contains(b.String(), "  4  ") {
		t.Errorf("it is\n%s", b.String())
	}
}

// TestWaits: a response time says what it is, if users wait longer than that.
func TestWaits(t *testing.T) {
	for want, s := range map[string]edge.Service{
		"-":               {ResponseEnd: edge.ResponseDelivered},
		"38ms first byte": {ResponseMS: 38, ResponseEnd: edge.ResponseFirstByte},
		"2395ms (95 % within 5439ms; 2357ms of the mean for delivery)": {
			ResponseMS: 2395, ResponseP95MS: 5439, DeliveryMS: 2357, ResponseEnd: edge.ResponseDelivered,
		},
	} {
		if got := response(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
