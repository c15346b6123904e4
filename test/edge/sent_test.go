//go:build docker

package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weir-project/weir/test/harness"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/sim"
)

// awaitSent waits until what is decided by says of a service that its proxy on one node
// sends, and its instance on another one (-1: none), and no other container.
func (c *cluster) awaitSent(t *testing.T, service string, proxy, instance int) {
	t.Helper()
	const muchBPS, littleBPS = 15e6, 3e6
	harness.Await(t, fmt.Sprintf("weir-edge knows who sends what users of node %d get", proxy), 30*time.Second, func() error {
		in := c.manager.lastInput(t)
		wrong := func(node, sender int, bps uint64) bool {
			return node == sender && bps < muchBPS || node != sender && bps > littleBPS
		}
		for _, d := range in.Demand {
			if d.Service == service && wrong(c.numberOf(t, d.Node), proxy, d.SentBPS) {
				return errNot(fmt.Sprintf("%+v", in.Demand))
			}
		}
		for _, i := range in.Instances {
			if i.Service == service && wrong(c.numberOf(t, i.Node), instance, i.SentBPS) {
				return errNot(fmt.Sprintf("%+v", in.Instances))
			}
		}
		return nil
	})
}

// lastInput is what the last round went by that was written down.
func (m *manager) lastInput(t *testing.T) engine.Input {
	t.Helper()
	whole, err := os.ReadFile(m.trace)
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:bytes.LastIndexByte(whole, '\n')+1] // another is being written
	lines := bytes.Split(bytes.TrimSpace(whole), []byte("\n"))
	var round sim.Round
	if err := json.Unmarshal(lines[len(lines)-1], &round); err != nil {
		t.Fatal(err)
	}
	return round.Input
}
