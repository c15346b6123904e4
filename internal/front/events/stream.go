package events

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Query is what a request for a stream of events asks for:
//
//	GET /v1/events?since=SEQ    the events after the one with that number
//	GET /v1/events?follow=false end with the last one
type Query struct {
	Since  uint64
	Follow bool
}

// ParseQuery parses a request. The header Last-Event-ID overrides since, because a browser
// reconnects with the original URL.
func ParseQuery(r *http.Request) (Query, error) {
	query := r.URL.Query()
	q := Query{Follow: true}
	name, text := "since", query.Get("since")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		name, text = "Last-Event-ID", last
	}
	var err error
	if text != "" {
		if q.Since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return q, fmt.Errorf("%s=%q is not the number of an event", name, text)
		}
	}
	if text := query.Get("follow"); text != "" {
		if q.Follow, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("follow=%q is neither true nor false", text)
		}
	}
	return q, nil
}

const (
	// eventTime limits the write of one event.
	eventTime = 30 * time.Second
	// aliveInterval is the interval of keep-alives, by which both sides notice a lost peer.
	aliveInterval = 15 * time.Second
)

// Writer writes events in one format.
type Writer[E any] interface {
	// Write writes an event; missed is how many events before it were dropped.
	Write(event E, missed uint64) error
	// Alive writes a keep-alive, if the format has one.
	Alive() error
}

// Stream writes events until the reader disconnects or the daemon stops. It returns the
// write error, if any.
func Stream[E any](w http.ResponseWriter, r *http.Request, ring *Ring[E], q Query, writer Writer[E]) error {
	control := http.NewResponseController(w)
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		// Also for the end of the stream, possibly long after the last event.
		_ = control.SetWriteDeadline(time.Now().Add(eventTime))
		batch := ring.Since(q.Since)
		for i, event := range batch.Events {
			_ = control.SetWriteDeadline(time.Now().Add(eventTime))
			missed := batch.Missed
			if i > 0 {
				missed = 0
			}
			if err := writer.Write(event, missed); err != nil {
				return err
			}
			q.Since = *ring.number(&event)
		}
		if err := control.Flush(); err != nil {
			return err
		}
		if len(batch.Events) > 0 {
			continue
		}
		if batch.Closed || !q.Follow {
			return nil
		}
		select {
		case <-batch.More:
		case <-alive.C:
			if err := writer.Alive(); err != nil {
				return err
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
