//go:build netns

package netns

import (
	"fmt"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// class finds one of a container's traffic classes.
func class(t *testing.T, c v1.Container, name v1.Class) v1.ClassShare {
	t.Helper()
	for _, one := range c.Classes {
		if one.Class == name {
			return one
		}
	}
	t.Fatalf("%s has no class %s: %+v", c.Name, name, c.Classes)
	return v1.ClassShare{}
}

// TestClassKeepsOthersShares: a container may claim any class, and others have their
// shares, also when all claim it.
func TestClassKeepsOthersShares(t *testing.T) {
	t.Parallel()
	flood := harness.Load{Protocol: traffic.UDP, RateBPS: 40 * mbit}
	for _, test := range []struct {
		name        string
		competitors []competitor
	}{
		{"one is EF", []competitor{{labels("class", "ef"), flood}, {nil, flood}, {labels("weight", "200"), flood}}},
		{"EF without a limit", []competitor{{labels("class", "ef", "ef-max", "100%"), flood}, {nil, flood}, {labels("weight", "200"), flood}}},
		{"EF with a maximum", []competitor{{labels("class", "ef", "ef-max", "100%", "max", "4mbit"), flood}, {nil, flood}}},
		{"everybody is EF", []competitor{
			{labels("class", "ef", "ef-max", "100%"), flood}, {labels("class", "ef", "weight", "300"), flood}, {labels("class", "ef", "min", "8mbit"), flood},
		}},
		{"AF and BE", []competitor{{labels("class", "af"), flood}, {labels("class", "be"), flood}, {labels("class", "ef"), flood}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			agent, _ := compete(t, b, harness.AgentOptions{Rate: "20mbit"}, test.competitors...)
			for name, c := range agent.Containers() {
				if c.State != v1.StateOK {
					t.Errorf("%s is %s: %s", name, c.State, c.Reason)
				}
			}
			b.CheckSharesFor(20*mbit, claims(20*mbit, test.competitors...), 3*time.Second)
		})
	}
}

// TestEFWaitsForNobody: what a container that is EF sends within its maximum waits for
// not bulk and is not dropped, and that is seen.
func TestEFWaitsForNobody(t *testing.T) {
	b := newBed(t)
	voice := b.Add("voice", labels("class", "ef"))
	plain := b.Add("plain", nil)
	bulk := b.Add("bulk", nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	b.Send(bulk, harness.Load{Protocol: traffic.TCP, Connections: 16})
	b.Send(plain, harness.Load{Protocol: traffic.UDP, RateBPS: 30 * mbit})
	b.WarmUp()
	// A sender that is held up sends at once what it missed: at this rate a third of a
	// second of it is within EF's burst.
	const voiceBPS = 0.2 * mbit
	b.Send(voice, harness.Load{Protocol: traffic.UDP, RateBPS: voiceBPS, PayloadBytes: 158})
	agent.AwaitContainer("voice", "with a delay of EF", 8*time.Second, func(c v1.Container) bool {
		return len(c.Classes) > 0 && c.Classes[0].DelayP99MS > 0
	})
	m := b.MeasureFor(2500 * time.Millisecond) // another period of measured delays
	got := agent.Container("voice")
	ef := class(t, got, v1.ClassEF)
	t.Logf("EF: median %.2f ms, 99th percentile %.2f ms, %.3f Mbit/s, %d dropped; others wait %.2f ms",
		ef.DelayP50MS, ef.DelayP99MS, float64(ef.RateBPS)/mbit, ef.DroppedPackets, agent.Container("plain").DelayP50MS)
	if got.State != v1.StateOK || ef.DroppedPackets > 0 || ef.SentPackets == 0 || class(t, got, v1.ClassBE).SentPackets > 0 {
		t.Errorf("voice is %+v", got)
	}
	if m.BPS[0] < 0.97*voiceBPS || float64(ef.RateBPS) < 0.95*voiceBPS {
		t.Errorf("%.3f Mbit/s arrive, %.3f are seen", m.BPS[0]/mbit, float64(ef.RateBPS)/mbit)
	}
	if others := agent.Container("plain").DelayP50MS; ef.DelayP50MS > others/4 {
		t.Errorf("EF waits %.2f ms, plain traffic %.2f ms", ef.DelayP50MS, others)
	}
}

// TestClassChangesLoseNothing: a container's class changes while it sends less than its
// share, and others more than theirs; all that it sends arrives.
func TestClassChangesLoseNothing(t *testing.T) {
	b := newBed(t)
	changing := b.Add("changing", nil)
	bulk := b.Add("bulk", nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: "30mbit"})
	b.Send(bulk, harness.Load{Protocol: traffic.UDP, RateBPS: 60 * mbit})
	b.WarmUp()
	sequence := startSequence(t, b, changing)
	for range 3 {
		for _, class := range []string{"auto", "ef", "af", "ef", "none", "auto", "be"} {
			b.MustWeir("set", "changing", "--class", class)
			time.Sleep(60 * time.Millisecond)
		}
	}
	b.Await("the last class alone", 5*time.Second, func() (bool, string) {
		left := queueing(t, b)
		_, af := left["class htb 7e11:1010"]
		_, ef := left["class htb 7e11:5010"]
		got := agent.Container("changing")
		return !af && !ef && got.Policy.Class == v1.ClassBE && got.State == v1.StateOK, fmt.Sprintf("%+v, queues %v", got, left)
	})
	sequence.stopInAnyOrder(t)
}
