package cli

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// TestDoctorTellsOfProxies: ports that docker-proxy serves are named, with what to do.
func TestDoctorTellsOfProxies(t *testing.T) {
	if err := proxied(nil); err != nil {
		t.Errorf("none: %v", err)
	}
	err := proxied([]kernel.ProxiedPort{
		{Host: netip.MustParseAddrPort("[fd00::1]:80"), Container: netip.MustParseAddrPort("172.17.0.2:8080")},
		{Host: netip.MustParseAddrPort("[fd00::1]:443"), Container: netip.MustParseAddrPort("172.17.0.3:8443")},
	})
	for _, part := range []string{"[fd00::1]:80 of 172.17.0.2:8080, [fd00::1]:443 of 172.17.0.3:8443", `"userland-proxy": false`, "give the network IPv6"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want it to say %q", err, part)
		}
	}
}

// weir doctor says whether what containers are promised is in force.
func TestDoctorNamesWhatIsNotInForce(t *testing.T) {
	find := func(a *fakeAgent) finding {
		t.Helper()
		a.status.Uplinks = nil // routes of this machine are another check
		for _, f := range examineAgent(t.Context(), a.serve(t)) {
			if f.Check == "policies" {
				return f
			}
		}
		t.Fatal("doctor does not look at policies")
		return finding{}
	}
	if f := find(busyHost()); f.Result != resultLess ||
		!strings.HasSuffix(f.Detail, "nobody-can-remember (rejected), vpn (degraded); weir ps says why") || strings.Contains(f.Detail, "web") {
		t.Errorf("two are not in force: %+v", f)
	}

	many := busyHost()
	for i := range many.containers {
		many.containers[i].State, many.containers[i].Reason = v1.StateOK, ""
	}
	if f := find(many); f.Result != resultOK || f.Detail != "all that run have what they are promised" {
		t.Errorf("all are in force: %+v", f)
	}
	member := v1.Container{ID: "m", Name: "member", State: v1.StateDegraded, Reason: "it shares the network of web", CountedWith: "0123456789abcdef"}
	many.containers = append(many.containers, member)
	if f := find(many); f.Result != resultOK {
		t.Errorf("a member of a pod has no policy: %+v", f)
	}
	for i := range 7 {
		many.containers = append(many.containers, v1.Container{ID: fmt.Sprint(i), Name: fmt.Sprintf("late%d", i), State: v1.StateRejected})
	}
	if f := find(many); !strings.HasSuffix(f.Detail, "late4 (rejected), 2 more; weir ps says why") {
		t.Errorf("many are not in force: %+v", f)
	}
	if f := examineAgent(t.Context(), t.TempDir()+"/none.sock"); strings.Contains(fmt.Sprint(f), "policies") {
		t.Errorf("without an agent: %v", f)
	}
}
