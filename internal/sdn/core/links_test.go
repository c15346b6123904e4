package core

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// TestLLDPInParts: in a large network no tick makes the LLDP of all switches, and every
// switch has sent its own at the end of each round, however late ticks come.
func TestLLDPInParts(t *testing.T) {
	const switches = 100
	interval := time.Second
	c := New(Config{Queues: DefaultQueues(), MaxFlows: 10, LLDPInterval: interval, StatsInterval: time.Hour})
	now := boundsNow
	for d := range topology.DPID(switches) {
		c.Connected(now, Description{Features: &openflow.FeaturesReply{DatapathID: uint64(d + 1)}, Ports: []openflow.PortDesc{{PortNo: 1}}})
	}
	sent := map[topology.DPID]int{}
	tick := func(after time.Duration) (switchesOfTick int) {
		now = now.Add(after)
		of := map[topology.DPID]bool{}
		for _, command := range c.Tick(now) {
			if _, ok := command.Message.(*openflow.PacketOut); ok && !of[command.Switch] {
				of[command.Switch] = true
				sent[command.Switch]++
			}
		}
		return len(of)
	}
	tick(0)
	for round := range 3 {
		for i := range LLDPParts {
			if n := tick(interval / LLDPParts); n > switches/LLDPParts+1 {
				t.Fatalf("round %d, tick %d: LLDP of %d switches at once", round, i, n)
			}
		}
	}
	for range 3 { // a machine that is too busy for more
		tick(interval)
	}
	for d := range topology.DPID(switches) {
		if n := sent[d+1]; n < 5 || n > 7 {
			t.Errorf("switch %d sent LLDP %d times in six rounds", d+1, n)
		}
	}
}
