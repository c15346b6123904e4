package bench

import (
	"bufio"
	"context"
	"encoding/json"
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
	// maxPages is the number of pages that the dashboard accepts at the same moment.
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
	for range c.Pages {
		page := &http.Client{Transport: &http.Transport{DialContext: dial}}
		w.run(ctx, page, func() error { return look(ctx, page) })
	}
	if c.ScrapeInterval > 0 {
		socket := agent.dir.Socket()
		scraper := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		w.run(ctx, scraper, func() error {
			return every(ctx, c.ScrapeInterval, func() error {
				began := time.Now()
				_, err := read(ctx, scraper, "http://weir/metrics")
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

// look requests a snapshot, then one a second in one response, and new events after each, as a page that is seen does
// (web/src/app.tsx, api.ts), until ctx ends.
func look(ctx context.Context, page *http.Client) error {
	const api = "http://" + dashboardAddress + "/v1/"
	lastEvent := uint64(0)
	take := func(text []byte, err error) error {
		var seen struct{ Status v1.Status }
		if err == nil {
			err = json.Unmarshal(text, &seen)
		}
		if err != nil {
			return fmt.Errorf("read a snapshot: %w", err)
		}
		if seen.Status.LastEvent == lastEvent {
			return nil
		}
		_, err = read(ctx, page, fmt.Sprintf("%sevents?since=%d&follow=false", api, lastEvent))
		lastEvent = seen.Status.LastEvent
		return err
	}
	if err := take(read(ctx, page, api+"snapshot")); err != nil {
		return err
	}
	body, err := open(ctx, page, api+"snapshot?follow=true")
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := bufio.NewReader(body); ; {
		if err := take(lines.ReadBytes('\n')); err != nil {
			return err
		}
	}
}

// read requests a URL and returns the body of the response.
func read(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	body, err := open(ctx, client, url)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// open requests a URL and returns the body of the response, which the caller closes.
func open(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return response.Body, nil
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
