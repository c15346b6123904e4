package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/events"
)

// Events are a stream of JSON objects, one a line, or server-sent events, as browsers read them
// (html.spec.whatwg.org, section 9.2), for requests that accept text/event-stream. Event IDs are
// sequence numbers. If events after the requested number are already dropped, a reset comes first:
// a reader that keeps a copy of the state then has to fetch all of it again.
//
// The agent waits for no reader. A reader that is too slow gets the number of dropped events in an
// event.

// retryMS is the reconnection delay sent to readers, in milliseconds.
const retryMS = 1000

func (a *API) events(w http.ResponseWriter, r *http.Request) {
	query, err := events.ParseQuery(r)
	if err != nil {
		a.bound(w)
		a.refuse(w, r, &badRequestError{err})
		return
	}
	ring := a.agent.Events()
	var writer events.Writer[v1.Event] = lineEvents{json.NewEncoder(w)}
	kind := "application/x-ndjson"
	if acceptsServerSent(r) {
		writer, kind = &serverSent{w: w}, "text/event-stream"
		w.Header().Set("Cache-Control", "no-store")
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	if s, ok := writer.(*serverSent); ok {
		err = s.begin(query.Since > 0 && !ring.Keeps(query.Since))
	}
	if err == nil {
		err = events.Stream(w, r, ring, query, writer)
	}
	if err != nil {
		a.log.Debug("cannot send events", "error", err)
	}
}

// lineEvents writes a JSON object for each event, one a line.
type lineEvents struct{ encoder *json.Encoder }

func (l lineEvents) Write(event v1.Event, missed uint64) error {
	if missed > 0 {
		if err := l.encoder.Encode(missedEvent(event, missed)); err != nil {
			return err
		}
	}
	return l.encoder.Encode(event)
}

func (l lineEvents) Alive() error { return nil }

// missedEvent returns an event that stands for the dropped events before next.
func missedEvent(next v1.Event, count uint64) v1.Event {
	return v1.Event{
		Seq: next.Seq - 1, At: next.At, Kind: v1.EventMissed, Missed: count,
		Message: fmt.Sprintf("%d events are not kept any more", count),
	}
}

// serverSent writes server-sent events. JSON has no line ends in it.
type serverSent struct {
	w     http.ResponseWriter
	reset bool // no event came after the last reset
}

// begin writes the head of the stream, and a reset if events that the reader needs are lost.
func (s *serverSent) begin(lost bool) error {
	_, err := fmt.Fprintf(s.w, "retry: %d\n\n", retryMS)
	if err == nil && lost {
		_, err = fmt.Fprint(s.w, "event: reset\ndata: {}\n\n")
		s.reset = true
	}
	return err
}

func (s *serverSent) Write(event v1.Event, missed uint64) error {
	if missed > 0 && !s.reset {
		if err := s.send("reset", missedEvent(event, missed)); err != nil {
			return err
		}
	}
	s.reset = false
	return s.send(string(event.Kind), event)
}

func (s *serverSent) send(name string, event v1.Event) error {
	data, err := json.Marshal(event)
	if err == nil {
		_, err = fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", event.Seq, name, data)
	}
	return err
}

func (s *serverSent) Alive() error {
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
