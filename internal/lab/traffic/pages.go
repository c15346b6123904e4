package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// Pages is a small web server with a bounded number of workers and a bounded queue
// before them, as those of small devices have: a user who finds the queue full is sent
// away with 503.
type Pages struct {
	// Workers answer one request each at a time, in Work of time.
	Workers int
	Work    time.Duration
	// Queue is how many requests may wait for a worker.
	Queue int
	// Bytes is the size of a page.
	Bytes int
}

// ServedBy is the header of pages with the name of their server's host.
const ServedBy = "Served-By"

// Serve answers until ctx ends. /healthy is answered at once.
func (p Pages) Serve(ctx context.Context, listener net.Listener) error {
	places := make(chan struct{}, p.Workers+p.Queue)
	workers := make(chan struct{}, p.Workers)
	page := make([]byte, p.Bytes)
	for i := range page {
		page[i] = '.'
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("serve pages: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
		default:
			http.Error(w, "too many users", http.StatusServiceUnavailable)
			return
		}
		defer func() { <-places }()
		_, _ = io.Copy(io.Discard, r.Body) // what the user sends is read, and may not be whole
		select {
		case workers <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		time.Sleep(p.Work)
		<-workers
		w.Header().Set(ServedBy, host)
		_, _ = w.Write(page) // the user may have left
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve pages: %w", err)
	}
	return nil
}

// CountedConn is a connection whose received bytes are counted.
type CountedConn struct {
	net.Conn
	Bytes *atomic.Uint64
}

// Read implements [net.Conn].
func (c *CountedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.Bytes.Add(uint64(n))
	return n, err
}
