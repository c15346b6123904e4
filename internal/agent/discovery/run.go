package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Run runs all sources concurrently until ctx ends, then returns nil. A source that fails for good
// is reported as Disconnected and does not end the others. When all sources have failed, Run
// returns their errors.
func Run(ctx context.Context, sources []Source, events chan<- Event) error {
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(sources))
	)
	for i, source := range sources {
		wg.Go(func() {
			err := source.Run(ctx, events)
			if err == nil || ctx.Err() != nil {
				return
			}
			errs[i] = fmt.Errorf("watch %s: %w", source.Name(), err)
			Send(ctx, source, events, Event{Disconnected: err})
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// Send sends an event of a source. It reports false if ctx ended before there was room for the event.
func Send(ctx context.Context, source Source, events chan<- Event, e Event) bool {
	e.Source = source.Name()
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
