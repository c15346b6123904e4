package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/test/must"
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

// TestDoctorTellsOfOffloads: a card that could take packets is named, and no warning without something that has it do so.
func TestDoctorTellsOfOffloads(t *testing.T) {
	const table, card = "nftables flow table fw fast at eth0", "ethtool -K eth0 hw-tc-offload off, ethtool -K eth1 hw-tc-offload off"
	cards := []string{"eth0", "eth1"}
	for name, tc := range map[string]struct {
		taken, cards []string
		err          error
		want         result
		says         []string
	}{
		"nothing":     {nil, nil, nil, resultOK, nil},
		"a card":      {nil, cards, nil, resultOK, []string{card}},
		"a table":     {[]string{table}, nil, nil, resultLimited, []string{table}},
		"both":        {[]string{table}, cards, nil, resultLimited, []string{table, card}},
		"not allowed": {nil, nil, os.ErrPermission, resultLimited, []string{"permission"}},
	} {
		got := examineOffload(tc.taken, tc.cards, tc.err)
		if got.Check != "offload" || got.Result != tc.want || strings.Contains(got.Detail, "hw-tc-offload") != (tc.cards != nil) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, part := range tc.says {
			if !strings.Contains(got.Detail, part) {
				t.Errorf("%s: %+v, want it to say %q", name, got, part)
			}
		}
	}
}

// TestDoctorTellsOfPrograms: a program that does not load is named, and without a required one Weir
// cannot run.
func TestDoctorTellsOfPrograms(t *testing.T) {
	refused, none := errors.New("load weir_tap: invalid argument"), error(nil)
	for _, tc := range []struct {
		required, optional error
		programs, guards   result
		fails              bool
	}{
		{none, none, resultOK, resultOK, false},
		{refused, none, resultMissing, resultOK, true},
		{none, refused, resultOK, resultLimited, false},
		{refused, refused, resultMissing, resultLimited, true},
	} {
		got := examinePrograms(func() (required, optional error) { return tc.required, tc.optional })
		if len(got) != 2 || got[0].Result != tc.programs || got[1].Result != tc.guards || (verdict(got) != nil) != tc.fails {
			t.Errorf("required %v, optional %v: %+v, verdict %v", tc.required, tc.optional, got, verdict(got))
		}
		for _, f := range got {
			if (f.Result != resultOK) != strings.Contains(f.Detail, "load weir_tap: invalid argument") {
				t.Errorf("required %v, optional %v: %+v", tc.required, tc.optional, f)
			}
		}
	}
}

// Of engines it says what the agent has of them, whose sockets may be others than the usual.
func TestDoctorAsksTheAgentForEngines(t *testing.T) {
	sources := []v1.Source{{Name: "static", Connected: true}, {Name: "docker", Connected: true}}
	if got := examineEngines(sources, true); !slices.Equal(got, []finding{{"docker", resultOK, "the agent watches it"}}) {
		t.Errorf("one is connected, the other switched off: %+v", got)
	}
	sources[1] = v1.Source{Name: "docker", Reason: "connect to docker at /x.sock: no answer"}
	if got := examineEngines(sources, true); len(got) != 1 || got[0].Result != resultLimited || !strings.HasSuffix(got[0].Detail, "at /x.sock: no answer") {
		t.Errorf("one is lost: %+v", got)
	}
	if got := examineEngines(nil, false); len(got) != 2 || !strings.Contains(got[0].Detail, "/var/run/docker.sock") {
		t.Errorf("without an agent: %+v", got)
	}
}

// On a node of Kubernetes, and on no other host, it names the file that has CNI's bandwidth plugin.
func TestDoctorTellsOfCNI(t *testing.T) {
	node := []v1.Source{{Name: "kubernetes"}}
	if got := examineCNI([]v1.Source{{Name: "docker"}}, "/etc/cni/net.d/10-a.conflist"); got != nil {
		t.Errorf("without Kubernetes: %+v", got)
	}
	if got := examineCNI(node, ""); len(got) != 1 || got[0].Result != resultOK {
		t.Errorf("without the plugin: %+v", got)
	}
	if got := examineCNI(node, "/etc/cni/net.d/10-a.conflist"); len(got) != 1 || got[0].Result != resultLimited || !strings.Contains(got[0].Detail, "out of /etc/cni/net.d/10-a.conflist") {
		t.Errorf("with the plugin: %+v", got)
	}
}

// On a node whose agent has never heard of pods, as with NRI disabled, it says what to do.
func TestDoctorMissesPods(t *testing.T) {
	root := t.TempDir()
	docker := []v1.Source{{Name: "docker", Connected: true}}
	if got := addKubernetes(docker, root); len(got) != 1 {
		t.Errorf("without kubelet: %+v", got)
	}
	must.Succeed(t, os.Mkdir(filepath.Join(root, "kubepods.slice"), 0o755))
	got := examineEngines(addKubernetes(docker, root), true)
	if len(got) != 2 || got[1].Check != "kubernetes" || got[1].Result != resultLimited || !strings.Contains(got[1].Detail, "disable = false") {
		t.Errorf("no weir-k8s: %+v", got)
	}
	connected := []v1.Source{{Name: "kubernetes", Connected: true}}
	if got := examineEngines(addKubernetes(connected, root), true); !slices.Equal(got, []finding{{"kubernetes", resultOK, "the agent watches it"}}) {
		t.Errorf("weir-k8s is connected: %+v", got)
	}
}

// weir doctor says whether what containers are promised is in force.
func TestDoctorNamesWhatIsNotInForce(t *testing.T) {
	find := func(a *fakeAgent) finding {
		t.Helper()
		a.status.Uplinks = nil // routes of this machine are another check
		seen, err := client.Unix(a.serve(t)).Snapshot(t.Context())
		for _, f := range examineAgent(seen, err) {
			if f.Check == "policies" {
				return f
			}
		}
		t.Fatal("doctor does not look at policies")
		return finding{}
	}
	if f := find(busyHost()); f.Result != resultLimited ||
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
	if f := examineAgent(v1.Snapshot{}, errors.New("no agent")); strings.Contains(fmt.Sprint(f), "policies") {
		t.Errorf("without an agent: %v", f)
	}
}
