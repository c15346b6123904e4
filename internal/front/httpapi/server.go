package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	// headerTimeout bounds how long a request may take to arrive, and idleTimeout how
	// long a connection may wait for the next one.
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeaderBytes bounds what a request may say before its body.
	maxHeaderBytes = 32 << 10
)

// NewServer returns a server of an API, with the bounds that a connection has before it
// comes to a route. How long an answer may take, the routes say.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
