package discovery

import (
	"context"
	"os"
	"time"
)

// Optional is a source that may not be there, now or ever: an engine that may be
// installed, or started, later. It says nothing until its socket is there.
type Optional struct {
	Source
	// Path is what has to be there, the engine's socket.
	Path string
	// Interval is how often to look; 0 means optionalInterval.
	Interval time.Duration
}

// optionalInterval is how soon an engine is noticed that was started after the
// agent.
const optionalInterval = 2 * time.Second

// Run implements Source.
func (o Optional) Run(ctx context.Context, events chan<- Event) error {
	interval := o.Interval
	if interval == 0 {
		interval = optionalInterval
	}
	for {
		if _, err := os.Stat(o.Path); err == nil {
			return o.Source.Run(ctx, events)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}
