package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	// retryInterval is how long Follow waits before it connects again, at first, and
	// maxRetryInterval at last.
	retryInterval    = time.Second
	maxRetryInterval = 30 * time.Second
	// maxSilence is how long an agent says nothing at most: it says that it is there.
	maxSilence = 45 * time.Second
	// maxEventBytes bounds one event.
	maxEventBytes = 1 << 20
)

// Follower is what Follow calls. An error of Reset or Event ends it.
type Follower struct {
	// Reset: events are lost. Who keeps a copy of what runs asks for a Snapshot.
	Reset func() error
	Event func(v1.Event) error
	// Lost says why there is no connection, before Follow tries again. It may be nil.
	Lost func(error)
}

// Follow calls f with the events after the one with number since (0: with all that are
// kept), and with what happens from then on, over restarts of the agent and of the
// network, until ctx ends or f does not want to go on.
func (c *Client) Follow(ctx context.Context, since uint64, f Follower) error {
	wait := retryInterval
	for {
		before := since
		err := c.followOnce(ctx, &since, f)
		var ended *endedError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &ended):
			return ended.error
		case f.Lost != nil:
			f.Lost(err)
		}
		if since != before {
			wait = retryInterval
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, maxRetryInterval)
	}
}

// endedError is that a Follower does not want to go on.
type endedError struct{ error }

// followOnce follows over one connection. since is the number of the last event.
func (c *Client) followOnce(ctx context.Context, since *uint64, f Follower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(maxSilence, cancel)
	defer silence.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if *since > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(*since, 10))
	}
	response, err := c.send(ctx, http.MethodGet, "/v1/events", nil, header)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventBytes)
	var event serverSent
	for lines.Scan() {
		silence.Reset(maxSilence)
		if lines.Text() != "" {
			event.take(lines.Text())
			continue
		}
		if err := event.pass(since, f); err != nil {
			return err
		}
		event = serverSent{}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the agent's events: %w", err)
	}
	return fmt.Errorf("read the agent's events: %w", io.EOF)
}

// serverSent is one server-sent event as it arrives, line by line.
type serverSent struct{ kind, id, data string }

func (e *serverSent) take(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		e.kind = value
	case "id":
		e.id = value
	case "data":
		e.data = value
	}
}

// pass gives a whole event to f and keeps its number.
func (e *serverSent) pass(since *uint64, f Follower) error {
	if e.data == "" {
		return nil
	}
	if e.kind == "reset" {
		if err := f.Reset(); err != nil {
			return &endedError{err}
		}
	} else {
		var event v1.Event
		if err := json.Unmarshal([]byte(e.data), &event); err != nil {
			return fmt.Errorf("read the agent's events: %w", err)
		}
		if err := f.Event(event); err != nil {
			return &endedError{err}
		}
	}
	if number, err := strconv.ParseUint(e.id, 10, 64); err == nil {
		*since = number
	}
	return nil
}
