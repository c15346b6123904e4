package profile

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const response = 100 * time.Millisecond

// served is a crowd that was served or not.
func served(users int, yes bool) Level {
	l := Level{Users: users, Answers: Answers{Requests: 1000, P95: response}}
	if !yes {
		l.Failed = 11 // 98.9 %
	}
	return l
}

func TestServed(t *testing.T) {
	for _, test := range []struct {
		what string
		a    Answers
		want bool
	}{
		{"just", Answers{Requests: 1000, Failed: 10, P95: response}, true},
		{"too few answers", Answers{Requests: 1000, Failed: 11, P95: response}, false},
		{"too slow", Answers{Requests: 1000, P95: response + 1}, false},
		{"nobody asked", Answers{}, false},
	} {
		if got := (Level{Answers: test.a}).Served(response); got != test.want {
			t.Errorf("%s: %v", test.what, got)
		}
	}
}

// TestSearch: whatever an instance can serve is found within a tenth, and never more.
func TestSearch(t *testing.T) {
	wanted := []int{5, 10, 20, 50, 100, 200, 500, 1000}
	for capacity := range 1100 {
		var levels []Level
		for users := next(wanted, levels, response); users > 0; users = next(wanted, levels, response) {
			levels = insert(levels, served(users, users <= capacity))
			if len(levels) > 20 {
				t.Fatalf("capacity %d: it does not end", capacity)
			}
		}
		got, _ := limits(levels, response)
		if got > capacity || capacity <= 1000 && got < capacity-max(0, capacity/10) || capacity > 1000 && got != 1000 {
			t.Errorf("capacity %d: found %d", capacity, got)
		}
	}
}

// TestGap: a crowd that was served by luck above one that was not does not count.
func TestGap(t *testing.T) {
	yes, no := limits([]Level{served(5, true), served(10, false), served(20, true)}, response)
	if yes != 5 || no != 10 {
		t.Errorf("got %d and %d", yes, no)
	}
}

type local struct {
	server *httptest.Server
	ended  error
	closed *atomic.Int32
}

func (l *local) URL() string                                    { return l.server.URL }
func (l *local) Usage(context.Context) (float64, uint64, error) { return 1, 1 << 20, nil }
func (l *local) Ended(context.Context) error                    { return l.ended }
func (l *local) Close() error {
	l.closed.Add(1)
	l.server.Close()
	return nil
}

// queue serves as many at once, and refuses all others.
func queue(most int32) http.Handler {
	var inside atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer inside.Add(-1)
		if inside.Add(1) > most {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		time.Sleep(100 * time.Millisecond)
	})
}

func TestMeasure(t *testing.T) {
	var started, closed atomic.Int32
	reported := 0
	got, err := Measure(t.Context(), Options{
		Start: func(context.Context) (Instance, error) {
			started.Add(1)
			return &local{server: httptest.NewServer(queue(6)), closed: &closed}, nil
		},
		// All of a crowd have come before it ends, on a slow machine, too.
		Users: []int{2, 20}, Duration: 700 * time.Millisecond, Response: 5 * time.Second, Patience: 10 * time.Second, Starts: 3,
		Report: func(Level) { reported++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.MaxUsers != 6 || got.StartUp <= 0 || reported != len(got.Levels) || got.Levels[0].MemoryBytes != 1<<20 {
		t.Errorf("got %+v, %d reported", got, reported)
	}
	if started.Load() != 3 || closed.Load() != 3 {
		t.Errorf("%d started, %d closed", started.Load(), closed.Load())
	}
}

func TestMeasureNoAnswer(t *testing.T) {
	var closed atomic.Int32
	for _, test := range []struct {
		what     string
		instance *local
		says     string
	}{
		{"another page", &local{server: httptest.NewServer(http.NotFoundHandler())}, "404 Not Found"},
		{"ends", &local{server: gone(), ended: errors.New("it ended")}, "it ended"},
	} {
		test.instance.closed = &closed
		_, err := Measure(t.Context(), Options{
			Start: func(context.Context) (Instance, error) { return test.instance, nil },
			Users: []int{1}, Duration: time.Second, Response: time.Second, Patience: 2 * time.Second, Starts: 1,
		})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	if closed.Load() != 2 {
		t.Errorf("%d closed", closed.Load())
	}
}

// TestCrowdStays: users go where the instance sends them on itself, and nowhere else.
func TestCrowdStays(t *testing.T) {
	var elsewhere, here atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	mux := http.NewServeMux()
	mux.Handle("/away", http.RedirectHandler(other.URL, http.StatusFound))
	mux.Handle("/on", http.RedirectHandler("/", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.HandleFunc("/{$}", func(http.ResponseWriter, *http.Request) { here.Add(1) })
	s := httptest.NewServer(mux)
	defer s.Close()
	crowd := func(path string) Answers {
		return Crowd{URL: s.URL + path, Users: 2, Requests: 4, Timeout: 10 * time.Second}.Run(t.Context())
	}
	if got := crowd("/on"); got.Failed != 0 || here.Load() != 4 {
		t.Errorf("sent on to itself: %+v, %d came", got, here.Load())
	}
	if got := crowd("/away"); got.Failed != 4 || elsewhere.Load() != 0 || !strings.Contains(got.LastError.Error(), other.Listener.Addr().String()) {
		t.Errorf("sent elsewhere: %+v, %d came there", got, elsewhere.Load())
	}
	if got := crowd("/round"); got.Failed != 4 {
		t.Errorf("sent round in a circle: %+v", got)
	}
}

func gone() *httptest.Server {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s
}

// TestCrowdWaits: who began a request before the end waits for the answer, and it counts.
func TestCrowdWaits(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
	defer s.Close()
	got := Crowd{URL: s.URL, Users: 3, For: 900 * time.Millisecond, Timeout: 10 * time.Second}.Run(t.Context())
	if got.Requests != 3 || got.Failed != 0 || got.P95 < time.Second {
		t.Errorf("got %+v", got)
	}
}

// TestCrowdEnds: users of a server that does not answer, or refuses them, give up: their crowd ends in time.
func TestCrowdEnds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, url := range map[string]string{"silent": "http://" + silent.Addr().String(), "refused": gone().URL} {
		crowd := Crowd{URL: url, Users: 50, Requests: 1e6, For: 400 * time.Millisecond, Timeout: 300 * time.Millisecond, Fresh: true}
		if got := crowd.Run(t.Context()); got.Requests < crowd.Users || got.Failed != got.Requests || got.Took > crowd.For+crowd.Timeout+2*time.Second {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
