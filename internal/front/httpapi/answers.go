package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Answers are how a daemon's API answers: with JSON, and with problem details (RFC 9457) in the case
// of an error.
type Answers struct {
	Log *slog.Logger
	// Status returns the HTTP status of an error.
	Status func(error) int
	// Timeout bounds a request whose route has no other bound.
	Timeout time.Duration
	// Cost returns how many requests a request counts as for the rate limit of its caller; nil: one.
	Cost func(*http.Request) int
}

func (a *Answers) cost(r *http.Request) int {
	if a.Cost == nil {
		return 1
	}
	return a.Cost(r)
}

// Serve returns a handler that answers with what serve returns. The context of a request ends after
// timeout, and its body has at most maxBytes.
func (a *Answers) Serve(timeout time.Duration, maxBytes int64, serve func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		r = r.WithContext(ctx)
		a.Bound(w, timeout)
		r.Body = http.MaxBytesReader(w, r.Body, maxBytes)
		body, err := serve(w, r)
		if err != nil {
			a.Refuse(w, r, a.Status(err), err)
			return
		}
		a.note(r, WriteJSON(w, http.StatusOK, "application/json", body))
	}
}

// Bound sets the time in which a request that takes at most timeout is read and answered. net/http
// reads on while a request is handled, and treats a client that sends nothing by then as gone, so
// both deadlines are after the answer.
func (a *Answers) Bound(w http.ResponseWriter, timeout time.Duration) {
	control, end := http.NewResponseController(w), time.Now().Add(timeout+a.Timeout)
	_ = control.SetReadDeadline(end)
	_ = control.SetWriteDeadline(end)
}

// Refuse answers with an error.
func (a *Answers) Refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	a.Log.Debug("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	a.note(r, WriteProblem(w, status, err.Error()))
}

func (a *Answers) note(r *http.Request, err error) {
	if err != nil {
		a.Log.Debug("answer a request", "path", r.URL.Path, "error", err)
	}
}

// WriteProblem writes an error as problem details. Its error means that the client is gone.
func WriteProblem(w http.ResponseWriter, status int, message string) error {
	return WriteJSON(w, status, "application/problem+json", v1.Error{
		Title: http.StatusText(status), Status: status, Detail: message, Message: message,
	})
}

// WriteJSON writes a body as JSON of a content type. Its error means that the client is gone.
func WriteJSON(w http.ResponseWriter, status int, kind string, body any) error {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(body)
}
