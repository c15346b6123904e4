//go:build netns

package ovsdb

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// TestTakeover: the queue of a promise outlives the controller that made it. One that has long stood by
// and takes over keeps it until the ledger has had time to tell of its promises, and not longer.
func TestTakeover(t *testing.T) {
	before := keepPromised
	keepPromised = time.Second
	t.Cleanup(func() { keepPromised = before })
	address, vsctl, _ := database(t)
	c, err := connect(t.Context(), address)
	must.Succeed(t, err)
	defer c.Close()
	const promised = qos.MaxQueues + 3
	manager := func(masters *bool, queues ...qos.Queue) *Manager {
		return New(Options{
			Address: address, RateBPS: 1e8, Queues: qos.Shares{EFMax: 0.5, AFMin: 0.3}.Map(),
			Promised: func(topology.Port) []qos.Queue { return slices.Clone(queues) },
			Controls: func(topology.DPID) bool { return *masters }, Log: slog.New(slog.DiscardHandler),
		})
	}
	isThere := func() bool { return strings.Contains(vsctl("list", "qos"), fmt.Sprintf("%d=", promised)) }

	first, second := true, false
	master, standby := manager(&first, qos.Queue{ID: promised, MinBPS: 5e6}), manager(&second)
	must.Succeed(t, master.reconcile(t.Context(), c))
	if !isThere() {
		t.Fatalf("no queue was made: %s", vsctl("list", "qos"))
	}
	must.Succeed(t, standby.reconcile(t.Context(), c))
	time.Sleep(2 * keepPromised)
	first, second = false, true
	began := time.Now()
	for range 3 { // the database's mirror may be late
		must.Succeed(t, standby.reconcile(t.Context(), c))
	}
	if time.Since(began) < keepPromised && !isThere() {
		t.Error("the queue went with the takeover")
	}
	for end := time.Now().Add(10 * time.Second); isThere(); time.Sleep(50 * time.Millisecond) {
		must.Succeed(t, standby.reconcile(t.Context(), c))
		if time.Now().After(end) {
			t.Fatal("the queue of a promise that no ledger has stays")
		}
	}
	if took := time.Since(began); took < keepPromised {
		t.Errorf("it went after %v, before the ledger had time", took)
	}
}
