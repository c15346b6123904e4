package claims

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

func claim(name string, shares ...Share) Claim {
	return Claim{UID: name, Namespace: "shop", Name: name, Pod: Pod{UID: "uid-" + name, Name: "web-" + name}, Shares: shares}
}

func share(uplink string, egress, ingress uint64) Share {
	return Share{Pool: "node", Device: DeviceName(uplink), Rates: Rates{egress, ingress}}
}

// view has two uplinks, of which one shares what it receives, and the pod web-a.
func view(admittedBPS uint64) *View {
	return &View{
		Uplinks: []v1.MeasuredUplink{{Name: "eth0", FreeBPS: 12_345_678, In: &v1.MeasuredIncoming{FreeBPS: 7e6}}, {Name: "Br.7", FreeBPS: 5e6}},
		Containers: []v1.Container{
			{Name: "shop/web-a", Runtime: "docker"},
			{Name: "shop/web-a", Runtime: v1.RuntimeKubernetes, State: v1.StateOK, Direction: v1.Direction{
				Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: admittedBPS, EntitledBPS: admittedBPS}},
			}},
		},
	}
}

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		name  string
		has   Ledger
		claim Claim
		want  string // a part of the error; "" if there is none
	}{
		{"all that is left", nil, claim("b", share("eth0", 12_345_678, 7e6)), ""},
		{"too much", nil, claim("b", share("eth0", 12_345_679, 0)), "claim shop/b: minimum 12345679bit cannot be guaranteed: 12.3mbit is left at uplink eth0"},
		{"too much in", nil, claim("b", share("eth0", 0, 8e6)), "minimum 8mbit of received traffic cannot be guaranteed: 7mbit is left at uplink eth0"},
		{"in, where that is not shared", nil, claim("b", share("Br.7", 0, 1)), "0bit is left at uplink Br.7"},
		{"no such uplink", nil, claim("b", share("eth9", 1, 0)), "the agent has no uplink for device eth9"},
		{"in two parts", nil, claim("b", share("eth0", 7e6, 0), share("eth0", 7e6, 0)), "minimum 14mbit cannot"},
		{"beside a pod that runs", Ledger{"a": claim("a", share("eth0", 9e6, 0))}, claim("b", share("eth0", 12e6, 0)), ""},
		{"beside a claim that is due", Ledger{"c": claim("c", share("eth0", 9e6, 0))}, claim("b", share("eth0", 4e6, 0)), "3.34mbit is left"},
		{"nothing, where nothing is left", Ledger{"c": claim("c", share("eth0", 99e6, 0))}, claim("b", share("eth0", 0, 0)), ""},
		{"of a pod that runs", nil, claim("a", share("eth0", 9e6, 0)), ""},
		{"again", Ledger{"b": claim("b", share("eth0", 99e6, 0))}, claim("b", share("eth0", 99e6, 0)), ""},
		{"again, another amount", Ledger{"b": claim("b", share("eth0", 12e6, 0))}, claim("b", share("eth0", 11e6, 0)), ""},
		{"different at two uplinks", nil, claim("b", share("eth0", 2, 0), share("Br.7", 1, 0)), "pod web-b would have different minimums of eth0 and uplink-"},
		{"the same at two uplinks", nil, claim("b", share("eth0", 2, 0), share("Br.7", 2, 0)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Ledger{}
			maps.Copy(l, c.has)
			err := l.Admit(c.claim, view(9e6))
			if err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, has := l[c.claim.UID]; has != (err == nil) {
				t.Errorf("the ledger is %v", l)
			}
		})
	}
}

func TestAdmitWithoutAgent(t *testing.T) {
	c := claim("b", share("eth0", 1, 0))
	if err := (Ledger{}).Admit(c, nil); err == nil || err.Error() != "claim shop/b: the agent does not answer" {
		t.Errorf("got %v", err)
	}
	if err := (Ledger{"b": c}).Admit(c, nil); err != nil {
		t.Errorf("of a claim that is prepared: %v", err)
	}
}

func TestDevices(t *testing.T) {
	l := Ledger{"a": claim("a", share("eth0", 9e6, 1e6)), "c": claim("c", share("Br.7", 6e6, 0))}
	want := []Device{
		// Of the pod a 9 Mbit/s are admitted, and the 1 that comes in is due.
		{Name: "eth0", Uplink: "eth0", Default: true, Capacity: Rates{9e6 + 12_345_678, 7e6}, Receives: true},
		// The uplink has become slower than what was promised of it.
		{Name: DeviceName("Br.7"), Uplink: "Br.7", Capacity: Rates{6e6, 0}},
	}
	got := l.Devices(view(9e6))
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, d := range want {
		if !label.MatchString(d.Name) {
			t.Errorf("%s is no DNS label", d.Name)
		}
	}
}

// TestSplit: what is left is offered both to claims and to requests of the extended resource, what pods have of it once.
func TestSplit(t *testing.T) {
	request := Claim{UID: "uid-r", Namespace: "shop", Name: "r", Pod: Pod{UID: "uid-r", Name: "r"}, Shares: []Share{share("eth0", 2e6, 0)}}
	l := Ledger{"a": claim("a", share("eth0", 9e6, 0)), "c": claim("c", share("eth0", 1e6, 0)), "uid-r": request}
	prepared, requests := l.Split()
	if len(prepared) != 2 || len(requests) != 1 || !reflect.DeepEqual(requests["uid-r"], request) {
		t.Errorf("got %v and %v", prepared, requests)
	}
	const left = 12_345_678 - 1e6 - 2e6
	if got := l.Devices(view(9e6))[0].Capacity.EgressBPS; got != 10e6+left {
		t.Errorf("the device has %d", got)
	}
	if got := l.RequestableBPS(view(9e6)); got != 2e6+left {
		t.Errorf("the extended resource has %d", got)
	}
	if got := l.RequestableBPS(&View{}); got != 0 {
		t.Errorf("without an uplink it has %d", got)
	}
}

func TestJudge(t *testing.T) {
	change := func(by func(*View, *v1.Container)) *View {
		v := view(9e6)
		by(v, &v.Containers[1])
		return v
	}
	for _, c := range []struct {
		name    string
		view    *View
		share   Share
		want    string // status and reason
		message string
	}{
		{"in force", view(9e6), share("eth0", 9e6, 0), "True InForce", "9mbit at uplink eth0"},
		{"no minimum", view(0), share("eth0", 0, 0), "True InForce", "no minimum at uplink eth0"},
		{"no agent", nil, share("eth0", 9e6, 0), "Unknown NoAgent", "does not answer"},
		{"no uplink", view(9e6), share("eth9", 9e6, 0), "False NoUplink", "no uplink for device eth9"},
		{"no pod", change(func(v *View, _ *v1.Container) { v.Containers = nil }), share("eth0", 9e6, 0), "False PodNotStarted", "no pod shop/web-a"},
		{"refused", change(func(_ *View, c *v1.Container) {
			c.State, c.Reason, c.Shares[0].AdmittedBPS = v1.StateRejected, "only 5mbit is free", 0
		}), share("eth0", 9e6, 0), "False Refused", "the pod has 0bit of its minimum of 9mbit: only 5mbit is free"},
		{"cut", change(func(_ *View, c *v1.Container) { c.Shares[0].EntitledBPS = 3e6 }), share("eth0", 9e6, 0), "False Cut", "has 3mbit of"},
		{"not controlled", change(func(_ *View, c *v1.Container) { c.Shares[0].Controlled = false }), share("eth0", 9e6, 0), "False Degraded", "has 0bit of"},
		{"degraded", change(func(_ *View, c *v1.Container) { c.State, c.Reason = v1.StateDegraded, "a filter" }), share("eth0", 9e6, 0), "False Degraded", "the pod is degraded: a filter"},
		{"in is not shared", view(9e6), share("eth0", 9e6, 1e6), "False Degraded", "of its minimum of 1mbit of received traffic"},
		{"both in force", change(func(_ *View, c *v1.Container) {
			c.In = &v1.Direction{Shares: []v1.Share{{Uplink: "eth0", Controlled: true, AdmittedBPS: 2e6, EntitledBPS: 1e6}}}
		}), share("eth0", 9e6, 1e6), "True InForce", "9mbit and 1mbit of received traffic at uplink eth0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := claim("a", c.share)
			got := Ledger{"a": a}.Judge(a, c.share, c.view)
			if got.Status+" "+got.Reason != c.want || !strings.Contains(got.Message, c.message) {
				t.Errorf("got %+v, want %s, %s", got, c.want, c.message)
			}
		})
	}
}

func TestConditionTimes(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	yes, no := Condition{Status: True, Reason: InForce}, Condition{Status: False, Reason: Cut}
	told := no.After(Condition{}, at(1))
	if !told.Differs(Condition{}) || told.Since != at(1) || !told.LastSeen.IsZero() {
		t.Errorf("at first: %+v", told)
	}
	told = yes.After(told, at(2))
	if told.Since != at(2) || told.LastSeen != at(2) {
		t.Errorf("in force: %+v", told)
	}
	later := yes.After(told, at(301))
	if later.Differs(told) || later.Since != at(2) || later.LastSeen != at(301) {
		t.Errorf("still in force: %+v", later)
	}
	if !yes.After(later, at(302)).Differs(told) {
		t.Error("Kubernetes is not told for five minutes that it is in force")
	}
	if lost := no.After(later, at(302)); lost.Since != at(302) || lost.LastSeen != at(301) || !lost.Differs(told) {
		t.Errorf("lost: %+v", lost)
	}
}

func TestRuns(t *testing.T) {
	if v := view(0); !v.Runs(claim("a")) || v.Runs(claim("b")) {
		t.Error("a runs and b does not")
	}
}

func TestLabels(t *testing.T) {
	l := Ledger{"a": claim("a", share("eth0", 20e6, 0), share("Br.7", 20e6, 0)), "b": claim("b", share("eth0", 0, 3e6))}
	for uid, want := range map[string]map[string]string{
		"uid-a": {"weir.min": "20mbit", "weir.in.min": ""},
		"uid-b": {"weir.min": "", "weir.in.min": "3mbit"},
		"uid-c": nil,
	} {
		if got := l.Labels(uid); !maps.Equal(got, want) {
			t.Errorf("of %s: %v", uid, got)
		}
	}
	// A request of the first uplink beside a claim of another one, in whatever order a map has them.
	l["uid-a"] = Claim{UID: "uid-a", Pod: Pod{UID: "uid-a"}, Shares: []Share{share("wwan0", 30e6, 0)}}
	for range 20 {
		if got := l.Labels("uid-a")["weir.min"]; got != "30mbit" {
			t.Errorf("with a request it has %s", got)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.json")
	if l, err := Load(path); err != nil || l == nil || len(l) != 0 {
		t.Errorf("without a file: %v, %v", l, err)
	}
	for text, want := range map[string]string{"null": "", "{": "read the claims in " + path} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Load(path); err == nil != (want == "") || err == nil && l == nil || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %s: %v, %v", text, l, err)
		}
	}
	annotations := Annotations{"uid": {"weir.min": "1mbit"}}
	other := AnnotationsFile(filepath.Dir(path))
	if other == LedgerFile(filepath.Dir(path)) {
		t.Errorf("both files are %s", other)
	}
	if err := annotations.Save(other); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadAnnotations(other); err != nil || !reflect.DeepEqual(got, annotations) {
		t.Errorf("annotations: %v, %v", got, err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder is a ledger")
	}
	if err := (Ledger{}).Save(filepath.Join(path, "claims.json")); err == nil {
		t.Error("a ledger is written into a file")
	}
	if err := (Ledger{}).Save(t.TempDir()); err == nil {
		t.Error("a folder is replaced")
	}
}

// TestSaveRates: the file has one text or the other, and nothing stays beside it.
func TestSaveRates(t *testing.T) {
	folder := t.TempDir()
	path := RatesFile(folder)
	for _, text := range []string{"", "a", "b", "", ""} {
		if err := SaveRates(path, text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		list, _ := os.ReadDir(folder)
		if string(got) != text || os.IsNotExist(err) != (text == "") || len(list) > 1 {
			t.Errorf("%q: the file has %q, %v, beside %v", text, got, err, list)
		}
	}
	if err := SaveRates(filepath.Join(folder, "none", "rates.yaml"), "a"); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}

func TestLabelsOf(t *testing.T) {
	got := LabelsOf(map[string]string{
		"weir.dev/in.min": "1mbit", "kubernetes.io/egress-bandwidth": "2M", "kubernetes.io/ingress-bandwidth": "3M",
		"weir.min": "4mbit", "weir.dev": "x", "kubernetes.io/config.source": "api",
	})
	want := map[string]string{"weir.in.min": "1mbit", "kubernetes.io/egress-bandwidth": "2M", "kubernetes.io/ingress-bandwidth": "3M"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Kubelet's own path of a driver's folder.
func TestFolder(t *testing.T) {
	if got := Folder(KubeletFolder); got != "/var/lib/kubelet/plugins/weir.dev" {
		t.Errorf("the folder is %s", got)
	}
}

// TestClockSetBack: a clock that was ahead leaves no time in the future, which would pass a condition off as fresh when
// weir-dra is gone.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, status := range []string{True, Unknown} {
		ahead := Condition{Status: status, Since: now.Add(time.Hour), LastSeen: now.Add(time.Hour)}
		back := Condition{Status: status}.After(ahead, now)
		if !back.Since.Equal(now) || !back.LastSeen.Equal(now) || !back.Differs(ahead) {
			t.Errorf("%s is %+v, written again: %v", status, back, back.Differs(ahead))
		}
	}
	if slow := (Condition{Status: True, Since: now, LastSeen: now}); slow.After(slow, now.Add(-time.Second)).Differs(slow) {
		t.Error("a second writes each condition again")
	}
}
