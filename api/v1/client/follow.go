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
	// retryInterval is how long Follow first waits before it reconnects. The wait doubles
	// up to maxRetryInterval.
	retryInterval    = time.Second
	maxRetryInterval = 30 * time.Second
	// maxSilence is the silence after which a connection counts as lost. The agent sends
	// keep-alives more often.
	maxSilence = 45 * time.Second
	// maxEventBytes limits the size of one event.
	maxEventBytes = 1 << 20
)

// Follower has the callbacks of Follow. An error of Reset or Event ends it.
type Follower struct {
	// Reset reports that events were lost. A caller with a copy of the state should get a
	// new Snapshot.
	Reset func() error
	Event func(v1.Event) error
	// Lost reports why the connection was lost, before Follow reconnects. It may be nil.
	Lost func(error)
}

// Follow calls f with the events after number since (0: all kept events) and with new
// events as they happen. It reconnects after restarts of the agent or network failures,
// until ctx ends or a callback returns an error.
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

// endedError is an error of a callback, which ends Follow.
type endedError struct{ error }

// followOnce follows events over one connection. since is the number of the last event
// received.
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

// serverSent is a server-sent event while its lines arrive.
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

// pass calls f with a complete event and stores its number.
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
