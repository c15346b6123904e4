package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errMissing  = errors.New("not found")
	errConflict = errors.New("the object has been modified")
	errAway     = errors.New("connection refused")
)

// server keeps one Lease as an API server does.
type server struct {
	mu       sync.Mutex
	is       *object
	version  int
	away     bool
	slow     time.Duration
	requests []string
}

func (s *server) do(ctx context.Context, method, path string, body, into any) error {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, method)
	name, named := strings.CutPrefix(path, "/apis/coordination.k8s.io/v1/namespaces/shop/leases")
	switch {
	case s.away:
		return errAway
	case named && name == "" && method == "POST" && s.is == nil:
	case name == "/edge" && method != "POST" && s.is == nil:
		return errMissing
	case name == "/edge" && method == "GET":
	case name == "/edge" && method == "PUT" && body.(object).Metadata.ResourceVersion == s.is.Metadata.ResourceVersion:
	default:
		return fmt.Errorf("%s %s: %w", method, path, errConflict)
	}
	if made, is := body.(object); is {
		s.version++
		made.Metadata.ResourceVersion = fmt.Sprint(s.version)
		s.is = &made
	}
	if into == nil {
		return nil
	}
	text, err := json.Marshal(s.is)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// change does something to the server.
func (s *server) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

func (s *server) candidate(identity string) *Lease {
	l := New(Options{Do: s.do, IsMissing: func(err error) bool { return errors.Is(err, errMissing) }, Namespace: "shop", Name: "edge",
		Identity: identity, Labels: map[string]string{"role": "lease"}})
	began := time.Now()
	l.sinceBoot = func() time.Duration { return time.Minute + time.Since(began) } // in the test's time
	return l
}

// run is a candidate that works whenever it holds the Lease, until stop is called. While cut is set its requests get no answer;
// one that comes before that is answered after lag.
func (l *Lease) run(ctx context.Context, said *[]string) (stop func(), cut *atomic.Bool, lag *atomic.Int64) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	cut, lag = &atomic.Bool{}, &atomic.Int64{}
	do := l.Do
	l.Do = func(ctx context.Context, method, path string, body, into any) error {
		if cut.Load() || ctx.Err() != nil {
			<-ctx.Done()
			return ctx.Err()
		}
		err := do(ctx, method, path, body, into)
		time.Sleep(time.Duration(lag.Load()))
		return err
	}
	go func() {
		defer close(ended)
		for l.Acquire(ctx, func(err error) { *said = append(*said, err.Error()) }) == nil {
			_ = l.Keep(ctx)
		}
	}()
	return func() { cancel(); <-ended }, cut, lag
}

// TestElection: of two candidates one holds the Lease, and the other one soon after that has ended or died; never both.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first, second := s.candidate("first"), s.candidate("second")
		var saidFirst, saidSecond []string
		pass := func(d time.Duration) {
			for range int(d / (100 * time.Millisecond)) {
				time.Sleep(100 * time.Millisecond)
				if first.Check() == nil && second.Check() == nil {
					t.Fatal("both hold it")
				}
			}
		}
		holds := func(what string, l, other *Lease) {
			t.Helper()
			synctest.Wait()
			if l.Check() != nil || other.Check() == nil {
				t.Fatalf("%s: %s: %v; %s: %v", what, l.Identity, l.Check(), other.Identity, other.Check())
			}
		}
		stopFirst, _, _ := first.run(t.Context(), &saidFirst)
		synctest.Wait()
		stopSecond, _, _ := second.run(t.Context(), &saidSecond)
		holds("at first", first, second)
		pass(time.Minute)
		holds("after a minute", first, second)
		if want := []string{"first holds the lease"}; !slices.Equal(saidSecond, want) || len(saidFirst) > 0 {
			t.Errorf("they say %q and %q", saidFirst, saidSecond)
		}
		if n := len(s.requests); n > 65 { // the holder does not look, the other one does not write
			t.Errorf("%d requests in a minute: %v", n, s.requests)
		}
		if s.is.Metadata.Labels["role"] != "lease" || s.is.Spec.LeaseTransitions != 0 {
			t.Errorf("it is %+v", s.is)
		}
		stopFirst()
		pass(retryInterval)
		holds("when the first has ended", second, first)
		stopFirst, cut, lag := first.run(t.Context(), &saidFirst)
		stopSecond()
		pass(retryInterval)
		holds("back", first, second)
		stopSecond, _, _ = second.run(t.Context(), &saidSecond)
		pass(time.Second)
		lag.Store(int64(9 * time.Second))
		pass(2 * retryInterval) // a renewal is under way
		cut.Store(true)
		pass(duration + 2*retryInterval)
		holds("when the first is cut off", second, first)
		cut.Store(false)
		lag.Store(0)
		pass(renewDeadline + retryInterval)
		holds("when it is not any more", second, first)
		stopFirst()
		holds("when it has ended", second, first)
		if s.is.Spec.LeaseTransitions != 3 || s.is.Spec.HolderIdentity != "second" {
			t.Errorf("it is %+v", s.is.Spec)
		}
		stopSecond()
		if s.is.Spec.HolderIdentity != "" {
			t.Errorf("given back it is %+v", s.is.Spec)
		}
	})
}

// TestKeep: Keep returns when the Lease is lost, ten seconds after the last renewal, whatever later requests do; and
// when its context ends, after which Check says that the Lease was given back.
func TestKeep(t *testing.T) {
	for what, fail := range map[string]func(*server){
		"fail":                        func(s *server) { s.away = true },
		"get no answer":               func(s *server) { s.slow = time.Hour },
		"fail, and each takes a time": func(s *server) { s.away, s.slow = true, 700*time.Millisecond },
		"fail, and the last one gets no answer": func(s *server) {
			s.away = true
			time.AfterFunc(7*time.Second, func() { s.change(func() { s.slow = time.Hour }) })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			l := s.candidate("edge")
			if err := l.Try(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s.change(func() { fail(s) })
			if err := l.Keep(t.Context()); err == nil || time.Since(began) != renewDeadline {
				t.Errorf("requests %s: %v after %v", what, err, time.Since(began))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := s.candidate("edge")
		if err := l.Try(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		if err := l.Keep(ctx); err != nil || s.is.Spec.HolderIdentity != "" {
			t.Errorf("%v, and it is %+v", err, s.is.Spec)
		}
		if err := l.Check(); !errors.Is(err, errReleased) {
			t.Errorf("after the end it says %v", err)
		}
	})
}

// TestRestart: a program that is killed and starts again with its name goes on at once.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		if err := s.candidate("edge").Try(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.candidate("edge").Try(t.Context()); err != nil || s.is.Spec.LeaseTransitions != 0 {
			t.Errorf("%v, %+v", err, s.is.Spec)
		}
	})
}

// TestAway: a holder works for ten seconds without the API server, also if that answers too late, and goes on when it is back;
// what others do to the Lease is made good, or respected.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := s.candidate("edge")
		if err := l.Check(); !errors.Is(err, errNew) {
			t.Errorf("before its first request it says %v", err)
		}
		var said []string
		stop, _, _ := l.run(t.Context(), &said)
		defer stop()
		is := func(what string, want error) {
			t.Helper()
			synctest.Wait()
			if err := l.Check(); (err == nil) != (want == nil) || want != nil && err.Error() != want.Error() {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		time.Sleep(time.Second)
		is("at first", nil)
		s.change(func() { s.away = true })
		time.Sleep(8 * time.Second)
		is("within the deadline", nil)
		time.Sleep(3 * time.Second)
		is("after it", errAway)
		s.change(func() { s.away = false })
		time.Sleep(retryInterval)
		is("back", nil)
		s.change(func() { s.slow = renewDeadline + time.Second })
		time.Sleep(renewDeadline + retryInterval)
		is("answers that come too late", context.DeadlineExceeded)
		s.change(func() { s.slow = 0 })
		time.Sleep(renewDeadline + retryInterval)
		is("in time again", nil)
		s.change(func() { s.is = nil })
		time.Sleep(2 * retryInterval)
		if is("deleted", nil); s.is == nil {
			t.Error("it is not made again")
		}
		s.change(func() { s.is.Metadata.ResourceVersion = "labelled" })
		time.Sleep(2 * retryInterval)
		is("changed by others", nil)
		s.change(func() { s.is.Spec.HolderIdentity, s.is.Metadata.ResourceVersion = "other", "taken" })
		time.Sleep(retryInterval)
		is("taken by another", &HeldError{"other"})
		time.Sleep(duration + retryInterval)
		is("which does not renew it", nil)
	})
}

// TestSleep: a holder whose machine sleeps for longer than its renewal holds does not work when it wakes up, although its timers
// and the monotonic clock stood still.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := (&server{}).candidate("edge")
		if err := l.Try(t.Context()); err != nil {
			t.Fatal(err)
		}
		awake, slept := l.sinceBoot, renewDeadline-time.Millisecond
		l.sinceBoot = func() time.Duration { return awake() + slept }
		if err := l.Check(); err != nil {
			t.Errorf("after a short sleep: %v", err)
		}
		slept = renewDeadline
		if err := l.Check(); !errors.Is(err, errLate) {
			t.Errorf("after a sleep: %v", err)
		}
		began := time.Now()
		if err := l.Keep(t.Context()); !errors.Is(err, errLate) || time.Since(began) != 0 {
			t.Errorf("it works on for %v, then: %v", time.Since(began), err)
		}
	})
	if bootClock != unix.CLOCK_BOOTTIME { // a machine that never slept does not tell them apart
		t.Errorf("the clock is %d, not the time since boot", bootClock)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	if since := sinceBoot() - time.Duration(now.Nano()); since < 0 || since > time.Minute {
		t.Errorf("the clock is %v away from the time since boot", since)
	}
}
