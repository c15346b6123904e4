// Package profile makes PiCasso's measurements of a service (section IV) automatic:
// how many users one instance can serve, how long it takes to start, how large it is,
// and so its specification.
package profile

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
)

// Crowd is a number of users who each ask for a page again and again, one request
// after the other (as ab, which the paper used, does).
type Crowd struct {
	URL   string
	Users int
	// Requests limits the number of requests of all users together; 0 means until the context ends.
	Requests int
	// For is the time during which users begin requests, if not 0. Requests begun by then are
	// completed, so that slow responses count too.
	For time.Duration
	// Timeout is the time after which a user gives up a request.
	Timeout time.Duration
	// Fresh: every request is a connection of its own, as ab does without -k.
	Fresh bool
	// Dial connects a user; nil: from this host.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tell is called with each request that counts, by one user at a time; may be nil.
	Tell func(took time.Duration, answered bool)
}

// Answers are the results of a crowd's requests.
type Answers struct {
	Requests int
	// Failed is the number of requests without a response in time or with a status other than 2xx.
	Failed int
	// Mean, Median and P95 are response times of successful requests, up to the last byte.
	Mean, Median, P95 time.Duration
	Bytes             int64
	Took              time.Duration
	// LastError is the reason of the last request without a response.
	LastError error
}

// SuccessPercent returns the percentage of successful requests; 0 without requests.
func (a Answers) SuccessPercent() float64 {
	if a.Requests == 0 {
		return 0
	}
	return 100 * float64(a.Requests-a.Failed) / float64(a.Requests)
}

// pause is the time a user waits after a failed request.
const pause = 20 * time.Millisecond

// Run sends requests until their number is reached or ctx ends. Requests aborted by ctx do not
// count.
func (c Crowd) Run(ctx context.Context) Answers {
	var (
		users sync.WaitGroup
		mu    sync.Mutex
		total Answers
		times []time.Duration
	)
	tickets := make(chan struct{})
	go func() {
		defer close(tickets)
		var over <-chan time.Time
		if c.For > 0 {
			over = time.After(c.For)
		}
		for i := 0; c.Requests == 0 || i < c.Requests; i++ {
			select {
			case tickets <- struct{}{}:
			case <-over:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	began := time.Now()
	for range c.Users {
		users.Go(func() {
			transport := &http.Transport{DialContext: c.Dial, MaxIdleConnsPerHost: 1, DisableKeepAlives: c.Fresh}
			defer transport.CloseIdleConnections()
			user := &http.Client{Transport: transport, Timeout: c.Timeout, CheckRedirect: stay}
			for range tickets {
				took, bytes, status, err := ask(ctx, user, c.URL)
				answered := err == nil && good(status)
				if ctx.Err() != nil && !answered {
					return
				}
				mu.Lock()
				total.Requests++
				total.Bytes += bytes
				if answered {
					times = append(times, took)
				} else {
					total.Failed++
				}
				if err != nil {
					total.LastError = err
				}
				if c.Tell != nil {
					c.Tell(took, answered)
				}
				mu.Unlock()
				if !answered {
					time.Sleep(pause)
				}
			}
		})
	}
	users.Wait()
	total.Took = time.Since(began)
	total.summarize(times)
	return total
}

func (a *Answers) summarize(times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	a.Mean = sum / time.Duration(len(times))
	a.Median = times[len(times)/2]
	a.P95 = times[len(times)*95/100]
}

// stay allows redirects only to the same instance, because a crowd at another site would be an
// attack.
func stay(next *http.Request, before []*http.Request) error {
	switch {
	case next.URL.Host != before[0].URL.Host:
		return fmt.Errorf("it sends users on to %s, which is not what is measured", next.URL.Host)
	case len(before) >= 10:
		return errors.New("it sends users on again and again")
	}
	return nil
}

func good(status int) bool { return status/100 == 2 }

func ask(ctx context.Context, user *http.Client, url string) (took time.Duration, bytes int64, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	response, err := user.Do(request)
	if err != nil {
		return 0, 0, 0, err
	}
	defer response.Body.Close()
	bytes, err = io.Copy(io.Discard, response.Body)
	return time.Since(began), bytes, response.StatusCode, err
}
