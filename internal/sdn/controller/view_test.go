package controller

import (
	"strings"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

func TestSwitchState(t *testing.T) {
	good, bad := v1.SDNPort{Up: true, State: "ok"}, v1.SDNPort{Up: true, State: "degraded"}
	refused, down, patch := v1.SDNPort{Up: true, State: "refused"}, v1.SDNPort{State: "refused"}, v1.SDNPort{Up: true, Reason: "a patch port has no queue"}
	for name, c := range map[string]struct {
		s      core.Switch
		ports  []v1.SDNPort
		want   string
		reason string
	}{
		"ok":             {core.Switch{Connected: true}, []v1.SDNPort{good}, "ok", ""},
		"lost":           {core.Switch{Role: openflow.OFPCR_ROLE_SLAVE, Full: true}, []v1.SDNPort{bad}, "lost", ""},
		"standby":        {core.Switch{Connected: true, Role: openflow.OFPCR_ROLE_SLAVE}, []v1.SDNPort{bad}, "standby", ""},
		"full":           {core.Switch{Connected: true, Full: true}, nil, "table full", ""},
		"no queues":      {core.Switch{Connected: true, WithoutQueues: true}, []v1.SDNPort{good}, "degraded", "it refuses the action set_queue: packets are forwarded, and classes are not served in order"},
		"degraded ports": {core.Switch{Connected: true}, []v1.SDNPort{good, bad, bad}, "degraded", "the queues of 2 of 3 ports are not in force: see their reasons"},
		"refused ports":  {core.Switch{Connected: true}, []v1.SDNPort{good, refused, down, patch}, "degraded", "the queues of 1 of 4 ports are not in force: see their reasons"},
		"patch ports":    {core.Switch{Connected: true}, []v1.SDNPort{good, down, patch}, "ok", ""},
	} {
		if got, reason := switchState(c.s, c.ports); got != c.want || reason != c.reason {
			t.Errorf("%s: %s, %q, want %s, %q", name, got, reason, c.want, c.reason)
		}
	}
}

// TestCounterHelp: each counter of the metrics says what it counts, and nothing else is described.
func TestCounterHelp(t *testing.T) {
	all := New(Options{}).countersOf(core.Counters{})
	for _, c := range all {
		if counterHelp[c.Name] == "" {
			t.Errorf("%s has no help", c.Name)
		}
	}
	if len(counterHelp) != len(all) {
		t.Errorf("%d helps of %d counters", len(counterHelp), len(all))
	}
}

// TestFlowsOfEnds: those who know one end of a flow are told of it alone.
func TestFlowsOfEnds(t *testing.T) {
	all := func() []v1.SDNFlow {
		return []v1.SDNFlow{{Flow: "tcp 198.18.0.1:80 > 198.18.0.2:8080"}, {Flow: "udp [2001:db8::1]:53 > [2001:db8::2]:9"}, {Flow: "arp 02:00:00:00:00:01 > 02:00:00:00:00:02"}}
	}
	for ends, want := range map[string]int{"": 3, "198.18.0.1:80": 1, "198.18.0.1:8": 0, "[2001:db8::2]:9": 1, "[2001:db8::2]:9 198.18.0.2:8080": 2, "arp": 1} {
		if got := withEnds(all(), strings.Fields(ends)); len(got) != want {
			t.Errorf("%q: %+v", ends, got)
		}
	}
}
