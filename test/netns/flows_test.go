//go:build netns

package netns

import (
	"context"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/harness"
)

// TestFlowsAreSeen: the flows of a container whose class is auto are told, with a
// verdict, and packets of them are counted in its classes; those of others are not
// looked at, and asking for them says what to do.
func TestFlowsAreSeen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	seen := b.Add("seen", labels("class", "auto"))
	plain := b.Add("plain", nil)
	agent := b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	b.Send(seen, harness.TCP)
	b.Send(plain, harness.TCP)
	b.WarmUp()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	flows, err := agent.Client.Flows(ctx, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	bulk := v1.Flow{}
	for _, f := range flows {
		if f.Container != "seen" {
			t.Errorf("flow %+v", f)
		}
		if f.SentBytes > bulk.SentBytes {
			bulk = f
		}
	}
	if bulk.SentBytes < 100_000 || bulk.ReceivedPackets == 0 || bulk.Stage != 2 || bulk.Protocol != "tcp" || bulk.Class == v1.ClassNone {
		t.Errorf("the bulk flow is %+v", bulk)
	}
	c := agent.Container("seen")
	var counted uint64
	for _, one := range c.Classes {
		counted += one.SentBytes
	}
	// EF above its maximum is counted as BE.
	if c.State != v1.StateOK || counted < 100_000 || class(t, c, bulk.Class).SentBytes == 0 {
		t.Errorf("%s: %s, classes %+v: want what it sent, of it some in %s", c.State, c.Reason, c.Classes, bulk.Class)
	}
	if _, err := agent.Client.Flows(ctx, "plain", 0); err == nil {
		t.Error("flows of a container without classes")
	}
}
