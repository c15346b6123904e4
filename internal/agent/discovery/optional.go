package discovery

import (
	"context"
	"os"
	"time"
)

// Optional waits for the socket of an engine that may be installed or started later, and then runs
// its source. It sends no events before.
type Optional struct {
	Source
	// Path is the socket to wait for.
	Path string
	// Interval is the time between two checks; 0 means optionalInterval.
	Interval time.Duration
}

// optionalInterval is the default time between two checks for the socket.
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
