package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// One sample a second is kept of what the loop publishes, until the agent stops.
func TestRecord(t *testing.T) {
	b := newBench(t, 100e6)
	web := b.start("web")
	synctest.Test(t, func(t *testing.T) {
		b.publish(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		go recordHistory(ctx, &b.Agent.history, b.board)
		time.Sleep(3500 * time.Millisecond)
		cancel()
		synctest.Wait()
		time.Sleep(time.Minute)
		view := web.container.view(b.containers.owners())
		if got := b.History().Of(&view).Shares[0].Samples; len(got) != 3 || got[0].EntitledBPS != 100e6 || got[2].At.Sub(got[1].At) != time.Second {
			t.Errorf("%+v", got)
		}
	})
}
