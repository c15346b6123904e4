//go:build netns

package netns

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// toPort finds the flow to a port of the neighbour.
func toPort(b *harness.Bed, t *testing.T, port uint16) (v1.Flow, bool) {
	t.Helper()
	var flows []v1.Flow
	must.Succeed(t, json.Unmarshal([]byte(b.MustWeir("flows", "-o", "json")), &flows))
	at := slices.IndexFunc(flows, func(f v1.Flow) bool {
		responder, err := netip.ParseAddrPort(f.Responder)
		return err == nil && responder.Port() == port && f.Protocol == "udp"
	})
	if at < 0 {
		return v1.Flow{}, false
	}
	return flows[at], true
}

// awaitClass waits until the flow to a port is of a class.
func awaitClass(t *testing.T, b *harness.Bed, port uint16, want v1.Class) {
	t.Helper()
	b.Await(fmt.Sprintf("a flow to port %d of class %s", port, want), 10*time.Second, func() (bool, string) {
		f, _ := toPort(b, t, port)
		return f.Class == want, fmt.Sprintf("%+v", f)
	})
}

// TestReplaceTheClassifier: a reload has flows judged by another classifier, and those
// that are known keep their class. One that is missing, broken or too deep changes
// nothing: that before goes on, and is the one that is told.
func TestReplaceTheClassifier(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	phone := b.Add("phone", labels("class", "auto"))
	dir := t.TempDir()
	path := filepath.Join(dir, "classifier.json")
	settings := func(more map[string]any) map[string]any {
		all := map[string]any{"uplink": b.Host.UplinkName, "rate": "20mbit"}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings(nil)})
	known := &application{port: 53, class: v1.ClassEF, payloadBytes: 160, bps: mbit}
	timedApplications(t, b, phone, []*application{known})
	awaitClass(t, b, 53, v1.ClassEF)
	if got := agent.Status().Classifier; got.Source != "built-in" || got.InForceSince.IsZero() {
		t.Errorf("in force is %+v", got)
	}

	model := b.MustWeir("classify", "explain", "-o", "json")
	must.Succeed(t, os.WriteFile(path, []byte(model), 0o600))
	b.WriteConfig(settings(map[string]any{"classifier": path, "levels": map[string]any{"SERVICES": "BE"}}))
	b.MustWeir("reload")
	check := func(when string) {
		t.Helper()
		if got := agent.Status().Classifier; got.Source != path || len(got.SHA256) != 64 || !slices.Equal(got.Levels, []string{"SERVICES=BE"}) {
			t.Errorf("%s: in force is %+v", when, got)
		}
	}
	check("replaced")
	if text := b.MustWeir("flows"); !strings.Contains(text, "classifier: "+path) || !strings.Contains(text, "with SERVICES=BE; in force for") {
		t.Errorf("weir flows says\n%s", text)
	}
	later := &application{port: 123, class: v1.ClassBE, payloadBytes: 160, bps: mbit}
	timedApplications(t, b, phone, []*application{later})
	awaitClass(t, b, 123, v1.ClassBE)
	awaitClass(t, b, 53, v1.ClassEF)

	deep := `{"weights":[1,0,0,0,0,0,0,0,0,0]}`
	for range 40 {
		deep = fmt.Sprintf(`{"feature":"dst_port","at":1,"branches":[{"weights":[1,0,0,0,0,0,0,0,0,0]},%s]}`, deep)
	}
	stage := fmt.Sprintf(`{"features":["dst_port"],"trees":[%s]}`, deep)
	for what, broken := range map[string]struct{ data, want string }{
		"cut off":  {model[:len(model)/2], "is cut off"},
		"no tree":  {"port = 53: EF\n", "invalid character"},
		"too deep": {`{"format":1,"types":["VOIP","GAME","SERVICES","CHAT","MULTIMEDIA","WEB","INTERACTIVE","EMAIL","BULK","P2P"],"stages":[` + stage + "," + stage + "]}", "deeper than 32 tests"},
		"missing":  {"", "no such file"},
	} {
		other := filepath.Join(dir, "other.json")
		if broken.data == "" {
			if err := os.Remove(other); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(other, []byte(broken.data), 0o600); err != nil {
			t.Fatal(err)
		}
		b.WriteConfig(settings(map[string]any{"classifier": other}))
		if refused := b.Weir("reload"); refused.Code != 1 || !strings.Contains(refused.Stderr, broken.want) || !strings.Contains(refused.Stderr, other) {
			t.Errorf("%s: %+v", what, refused)
		}
		check(what)
	}
	again := &application{port: 161, class: v1.ClassBE, payloadBytes: 160, bps: mbit}
	timedApplications(t, b, phone, []*application{again})
	awaitClass(t, b, 161, v1.ClassBE)

	// A new agent goes on with it, and one that cannot have it does not start.
	b.WriteConfig(settings(map[string]any{"classifier": path, "levels": map[string]any{"SERVICES": "BE"}}))
	agent.Stop()
	agent = b.StartAgent(harness.AgentOptions{UplinksInConfig: true, KeepConfig: true})
	b.Await("the classifier, in force", 10*time.Second, func() (bool, string) {
		got := agent.Status().Classifier
		return !got.InForceSince.IsZero(), fmt.Sprintf("%+v", got)
	})
	check("another agent")
	agent.Stop()
	b.WriteConfig(settings(map[string]any{"classifier": filepath.Join(dir, "none.json")}))
	if refused := b.RefusedAgent(harness.AgentOptions{UplinksInConfig: true, KeepConfig: true}); refused.Code != 1 || !strings.Contains(refused.Stderr, "read classifier: open") {
		t.Errorf("an agent without its classifier: %+v", refused)
	}
}

// TestDelayOfAFlow: weir flows says how long the packets of each flow waited: of one that
// fills its container's share long, of one that goes first not.
func TestDelayOfAFlow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	phone := b.Add("phone", labels("class", "auto"))
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	names := &application{port: 53, class: v1.ClassEF, payloadBytes: 160, bps: mbit}
	files := &application{port: 69, class: v1.ClassBE, payloadBytes: 1200, bps: 30 * mbit}
	timedApplications(t, b, phone, []*application{names, files})
	b.Await("delays of both flows", 30*time.Second, func() (bool, string) {
		first, _ := toPort(b, t, 53)
		bulk, _ := toPort(b, t, 69)
		return first.DelayMS > 0 && bulk.DelayMS > 2*first.DelayMS,
			fmt.Sprintf("names %+v\nfiles %+v\nclasses %+v", first, bulk, agent.Container("phone").Classes)
	})
	if text := b.MustWeir("flows", "phone"); !strings.Contains(text, "DELAY") || !strings.Contains(text, "ms") {
		t.Errorf("weir flows says\n%s", text)
	}
}

// TestEFAboveItsMaximum: a flow that sends more EF than goes first is told as it happens:
// by ps, by explain, and by an event when it begins and when it is over.
func TestEFAboveItsMaximum(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	phone := b.Add("phone", labels("class", "auto", "ef-max", "1mbit"))
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	names := &application{port: 53, class: v1.ClassEF, payloadBytes: 160, bps: 1.8 * mbit}
	timedApplications(t, b, phone, []*application{names})
	c, _ := agent.AwaitContainer("phone", "EF above its maximum", 15*time.Second, func(c v1.Container) bool {
		ef := v1.ClassShare{}
		if len(c.Classes) > 0 {
			ef = c.Classes[0]
		}
		return ef.Held && ef.ExcessBPS > 0
	})
	if ef, be := class(t, c, v1.ClassEF), class(t, c, v1.ClassBE); ef.ExcessBytes == 0 || be.SentBytes == 0 || c.State != v1.StateOK {
		t.Errorf("%s: EF %+v, BE %+v", c.State, ef, be)
	}
	for command, want := range map[string]string{
		"explain phone": "lose EF, each for 250ms at a time",
		"ps":            "of its EF is above 1mbit and served as be",
		"top --once":    " held: ",
	} {
		if text := b.MustWeir(strings.Fields(command)...); !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("weir %s lacks %q:\n%s", command, want, text)
		}
	}
	if err := names.timed.Stop(); err != nil {
		t.Error(err)
	}
	b.Await("events of its EF", 20*time.Second, func() (bool, string) {
		text := b.MustWeir("events")
		held := strings.Index(text, "ef held phone: it sends more EF than the 1mbit that go first")
		return held >= 0 && strings.Contains(text[held:], "ef released phone"), text
	})
	if c := agent.Container("phone"); class(t, c, v1.ClassEF).Held {
		t.Errorf("it sends nothing, and is said to have too much: %+v", c.Classes)
	}
}
