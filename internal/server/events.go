package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Events are a stream of JSON objects, one a line, that goes on until the
// reader or the agent leaves:
//
//	GET /v1/events?since=SEQ    those after the event with that number
//	GET /v1/events?follow=false end with the last one
//
// The agent waits for no reader. One that is so slow that events are dropped is
// told how many by an event of its own.

// streamTimeout bounds how long one event may take to be read.
const streamTimeout = 30 * time.Second

func (a *API) events(w http.ResponseWriter, r *http.Request) {
	since, follow, err := eventsQuery(r)
	if err != nil {
		a.bound(w)
		a.refuse(w, r, &badRequestError{err})
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		// Also for the end of the stream, which may come long after the last event.
		_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
		batch := a.agent.Events().Since(since)
		if batch.Missed > 0 {
			batch.Events = append([]v1.Event{missed(batch.Events[0], batch.Missed)}, batch.Events...)
		}
		for _, event := range batch.Events {
			_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
			if err := encoder.Encode(event); err != nil {
				a.log.Debug("send events", "error", err)
				return
			}
			since = event.Seq
		}
		if control.Flush() != nil || len(batch.Events) == 0 && (batch.Closed || !follow) {
			return
		}
		if len(batch.Events) > 0 {
			continue
		}
		select {
		case <-batch.More:
		case <-r.Context().Done():
			return
		}
	}
}

// missed stands for the events before next that are not kept any more.
func missed(next v1.Event, count uint64) v1.Event {
	return v1.Event{
		Seq: next.Seq - 1, At: next.At, Kind: v1.EventMissed, Missed: count,
		Message: fmt.Sprintf("%d events are not kept any more", count),
	}
}

func eventsQuery(r *http.Request) (since uint64, follow bool, err error) {
	query := r.URL.Query()
	follow = true
	if text := query.Get("since"); text != "" {
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, false, fmt.Errorf("since=%q is not the number of an event", text)
		}
	}
	if text := query.Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return 0, false, fmt.Errorf("follow=%q is neither true nor false", text)
		}
	}
	return since, follow, nil
}
