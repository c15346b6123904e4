package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Events are a stream of JSON objects, one a line, that goes on until the
// reader or the agent leaves:
//
//	GET /v1/events?since=SEQ    those after the event with that number
//	GET /v1/events?follow=false end with the last one
//
// or server-sent events, as browsers read them (html.spec.whatwg.org, section 9.2),
// for who accepts text/event-stream. Their ids are the numbers; Last-Event-ID is like
// since. Where not all that came after that number is kept, a reset comes first: who
// keeps a copy of what runs has to ask for all of it again.
//
// The agent waits for no reader. One that is so slow that events are dropped is
// told how many by an event of its own.

const (
	// streamTimeout bounds how long one event may take to be read.
	streamTimeout = 30 * time.Second
	// aliveInterval is how long a stream of server-sent events is silent at most, so
	// that both sides notice if the other is gone.
	aliveInterval = 15 * time.Second
	// retryMS is how long a reader waits before it connects again, in milliseconds.
	retryMS = 1000
)

// eventWriter is one way to write events.
type eventWriter interface {
	// begin writes what comes before the events; lost says that not all are kept that
	// the reader asked for.
	begin(lost bool) error
	write(v1.Event) error
	// alive says that there is nothing to say.
	alive() error
}

func (a *API) events(w http.ResponseWriter, r *http.Request) {
	since, follow, err := eventsQuery(r)
	if err != nil {
		a.bound(w)
		a.refuse(w, r, &badRequestError{err})
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
	var writer eventWriter = lineEvents{json.NewEncoder(w)}
	kind := "application/x-ndjson"
	if acceptsServerSent(r) {
		writer, kind = &serverSent{w: w}, "text/event-stream"
		w.Header().Set("Cache-Control", "no-store")
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	if err := writer.begin(since > 0 && !a.agent.Events().Keeps(since)); err != nil {
		a.log.Debug("send events", "error", err)
		return
	}
	a.stream(r, control, writer, since, follow)
}

// stream writes events as they come.
func (a *API) stream(r *http.Request, control *http.ResponseController, writer eventWriter, since uint64, follow bool) {
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		// Also for the end of the stream, which may come long after the last event.
		_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
		batch := a.agent.Events().Since(since)
		if batch.Missed > 0 {
			batch.Events = append([]v1.Event{missed(batch.Events[0], batch.Missed)}, batch.Events...)
		}
		for _, event := range batch.Events {
			_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
			if err := writer.write(event); err != nil {
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
		case <-alive.C:
			if writer.alive() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// lineEvents writes a JSON object for each event, one a line.
type lineEvents struct{ encoder *json.Encoder }

func (l lineEvents) begin(bool) error           { return nil } // missed events are counted
func (l lineEvents) write(event v1.Event) error { return l.encoder.Encode(event) }
func (l lineEvents) alive() error               { return nil }

// serverSent writes server-sent events. JSON has no line ends in it.
type serverSent struct {
	w     http.ResponseWriter
	reset bool // the last thing written was a reset
}

func (s *serverSent) begin(lost bool) error {
	_, err := fmt.Fprintf(s.w, "retry: %d\n\n", retryMS)
	if err == nil && lost {
		_, err = fmt.Fprint(s.w, "event: reset\ndata: {}\n\n")
		s.reset = true
	}
	return err
}

func (s *serverSent) write(event v1.Event) error {
	name := string(event.Kind)
	if event.Kind == v1.EventMissed {
		if s.reset {
			return nil
		}
		name = "reset"
	}
	s.reset = event.Kind == v1.EventMissed
	data, err := json.Marshal(event)
	if err == nil {
		_, err = fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", event.Seq, name, data)
	}
	return err
}

func (s *serverSent) alive() error {
	_, err := fmt.Fprint(s.w, ":\n\n")
	return err
}

func acceptsServerSent(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
			return true
		}
	}
	return false
}

// missed stands for the events before next that are not kept any more.
func missed(next v1.Event, count uint64) v1.Event {
	return v1.Event{
		Seq: next.Seq - 1, At: next.At, Kind: v1.EventMissed, Missed: count,
		Message: fmt.Sprintf("%d events are not kept any more", count),
	}
}

// eventsQuery reads where a stream begins. Last-Event-ID comes before since, which is
// in the address that a reader connects to again.
func eventsQuery(r *http.Request) (since uint64, follow bool, err error) {
	query := r.URL.Query()
	follow = true
	name, text := "since", query.Get("since")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		name, text = "Last-Event-ID", last
	}
	if text != "" {
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, false, fmt.Errorf("%s=%q is not the number of an event", name, text)
		}
	}
	if text := query.Get("follow"); text != "" {
		if follow, err = strconv.ParseBool(text); err != nil {
			return 0, false, fmt.Errorf("follow=%q is neither true nor false", text)
		}
	}
	return since, follow, nil
}
