package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Readers of an agent during a run: dashboard pages and Prometheus.

const (
	// dashboardAddress is the agent's dashboard, in the host's network namespace.
	dashboardAddress = "127.0.0.1:7480"
	// pageInterval is the interval at which a page requests a snapshot.
	pageInterval = time.Second
	// maxPages is the number of pages that the dashboard accepts, each with an event stream and
	// requests.
	maxPages = 120
)

// watchers are the pages and scrapers of a run.
type watchers struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	err     error           // the first
	scrapes []time.Duration // how long each took
}

// watch starts a case's pages and scrapes, until end is called.
func (b *Bed) watch(ctx context.Context, c Case, agent *weir) *watchers {
	ctx, cancel := context.WithCancel(ctx)
	w := &watchers{cancel: cancel}
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	for i := range c.Pages {
		page := &http.Client{Transport: &http.Transport{DialContext: dial}}
		w.run(ctx, page, func() error { return follow(ctx, page) })
		w.run(ctx, page, func() error {
			// Pages are not opened at the same instant.
			select {
			case <-time.After(time.Duration(i) * pageInterval / time.Duration(c.Pages)):
			case <-ctx.Done():
			}
			return every(ctx, pageInterval, func() error { return read(ctx, page, "http://"+dashboardAddress+"/v1/snapshot") })
		})
	}
	if c.ScrapeInterval > 0 {
		socket := agent.dir.Socket()
		scraper := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		w.run(ctx, scraper, func() error {
			return every(ctx, c.ScrapeInterval, func() error {
				began := time.Now()
				err := read(ctx, scraper, "http://weir/metrics")
				w.mu.Lock()
				defer w.mu.Unlock()
				w.scrapes = append(w.scrapes, time.Since(began))
				return err
			})
		})
	}
	return w
}

func (w *watchers) run(ctx context.Context, client *http.Client, look func() error) {
	w.wait.Go(func() {
		defer client.CloseIdleConnections()
		if err := look(); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.err = errors.Join(w.err, fmt.Errorf("look at the agent: %w", err))
		}
	})
}

// end closes all pages and returns their first error. It may be called twice.
func (w *watchers) end() error {
	w.cancel()
	w.wait.Wait()
	return w.err
}

// every calls do now and after each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// follow reads the event stream until it ends.
func follow(ctx context.Context, page *http.Client) error {
	return get(ctx, page, "http://"+dashboardAddress+"/v1/events", "text/event-stream")
}

func read(ctx context.Context, client *http.Client, url string) error {
	return get(ctx, client, url, "*/*")
}

// get requests a URL and reads the response to its end.
func get(ctx context.Context, client *http.Client, url, kind string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", kind)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// turnP99MS returns the 99th percentile of the control loop's turn intervals in milliseconds,
// rounded up to the histogram bucket's bound; above the last bucket, the total time of all turns.
func turnP99MS(before, after v1.Turns) float64 {
	count := after.Count - before.Count
	if count == 0 {
		return 0
	}
	for i, bucket := range after.Buckets {
		seen := bucket.Count
		if i < len(before.Buckets) {
			seen -= before.Buckets[i].Count
		}
		if seen*100 >= count*99 {
			return bucket.UpToSeconds * 1000
		}
	}
	return (after.SumSeconds - before.SumSeconds) * 1000
}

// middle returns the median of durations in milliseconds; of an even number the larger middle one.
func middle(of []time.Duration) float64 {
	if len(of) == 0 {
		return 0
	}
	return measure.Milliseconds(slices.Sorted(slices.Values(of))[len(of)/2])
}
