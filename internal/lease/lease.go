// Package lease elects one of several programs by a Lease of Kubernetes, as Kubernetes' own controllers do.
//
// Problem: of several instances one works, and another one soon after that has died. Their clocks may differ.
//
// Method: the Lease changes by compare and swap (its resource version). The holder renews it each two seconds, and works for
// at most ten seconds after the start of the last renewal that succeeded. A candidate takes it when it has seen no change of
// it for fifteen seconds of its own clock, or when the holder has given it back.
//
// Source: the durations and the rule are those of client-go's leaderelection, which weir-edge cannot have: Kubernetes' types
// would double the program. Limit: two holders of the same identity do not notice each other.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// duration is for how long a Lease that is not renewed keeps others away.
	duration = 15 * time.Second
	// renewDeadline is for how long its holder works without a renewal.
	renewDeadline = 10 * time.Second
	// retryInterval is the time between two requests.
	retryInterval = 2 * time.Second
	// releaseTimeout bounds the request that gives it back.
	releaseTimeout = 2 * time.Second
)

// bootClock is a clock that goes on while the machine sleeps.
const bootClock = unix.CLOCK_BOOTTIME

// microTime is how Kubernetes writes the times of a Lease.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// Options say which Lease it is, and for whom.
type Options struct {
	// Do makes a request of the API server with a body, unless that is nil, and decodes the answer.
	Do func(ctx context.Context, method, path string, body, into any) error
	// IsMissing reports whether an error of Do is about an object that is not there.
	IsMissing func(error) bool
	// Name is the Lease's; Identity is the candidate's.
	Namespace, Name, Identity string
	// Labels are the Lease's.
	Labels map[string]string
}

// Lease is one candidate's view of a Lease. Its methods may be called concurrently, Acquire and Keep by one goroutine.
type Lease struct {
	Options
	// sinceBoot is a clock that goes on while the machine sleeps, in which another candidate may take the Lease. Timers stand
	// still meanwhile.
	sinceBoot func() time.Duration

	mu sync.Mutex // guards what follows
	// seen is the Lease since seenAt.
	seen   object
	seenAt time.Time
	// until is when this candidate stops to work, by sinceBoot.
	until time.Duration
	// err is why it does not work.
	err error
}

// object is a Lease of the API server.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

type spec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions"`
}

// HeldError is the error of a Lease that another candidate holds.
type HeldError struct{ Holder string }

func (e *HeldError) Error() string { return fmt.Sprintf("%s holds the lease", e.Holder) }

// New returns a candidate, which has made no request yet.
func New(o Options) *Lease { return &Lease{Options: o, sinceBoot: sinceBoot, err: errNew} }

func sinceBoot() time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(bootClock, &at) // Linux has it
	return time.Duration(at.Nano())
}

// Check returns nil while this candidate holds the Lease, and else why it does not.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sinceBoot() < l.until:
		return nil
	case l.err == nil:
		return errLate
	}
	return l.err
}

var (
	// errNew is the error of a candidate before the first answer.
	errNew = errors.New("the API server has not said yet which program holds the lease")
	// errLate is the error of a holder whose renewal is under way for too long.
	errLate = errors.New("the API server has not renewed the lease in time")
	// errReleased is the error of a holder that has given the Lease back.
	errReleased = errors.New("this program is stopping, and has given its lease back")
)

// Acquire returns when this candidate holds the Lease, or when ctx has ended. It tells say each new reason to wait.
func (l *Lease) Acquire(ctx context.Context, say func(error)) error {
	said := ""
	for ctx.Err() == nil {
		err := l.Try(ctx)
		if err == nil {
			return nil
		}
		if said != err.Error() && ctx.Err() == nil {
			said = err.Error()
			say(err)
		}
		_ = wait(ctx)
	}
	return ctx.Err()
}

// Keep renews the Lease, which this candidate holds. It returns an error as soon as the Lease is lost, also while a request is
// under way. When ctx ends, it gives the Lease back and returns nil. Limit: after a sleep of the machine, in which timers stand
// still, it returns up to renewDeadline late, so its caller asks Check before each change.
func (l *Lease) Keep(ctx context.Context) error {
	for ctx.Err() == nil {
		l.renew(ctx)
		if err := l.Check(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	l.release(release)
	return nil
}

// renew renews the Lease once when that is due, and takes no longer than this candidate holds it.
func (l *Lease) renew(ctx context.Context) {
	l.mu.Lock()
	left := l.until - l.sinceBoot()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if wait(ctx) == nil {
		_ = l.Try(ctx) // the next one may succeed in time
	}
}

// wait waits until the next request is due.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryInterval):
		return nil
	}
}

// Try renews the Lease, or takes it if that is possible.
func (l *Lease) Try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	var err error
	if l.Check() != nil { // else the version that was written last is the one to replace
		err = l.read(ctx)
	}
	if err == nil {
		err = l.write(ctx)
	}
	if err != nil {
		l.fail(ctx, err)
	}
	return err
}

// read looks at the Lease. Errors: HeldError.
func (l *Lease) read(ctx context.Context) error {
	var is object // stays empty if there is none
	if err := l.Do(ctx, "GET", l.path()+"/"+l.Name, nil, &is); err != nil && !l.IsMissing(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now() // not before the request: the Lease may have changed meanwhile
	if is.Metadata.ResourceVersion != l.seen.Metadata.ResourceVersion {
		l.seen, l.seenAt = is, now
	}
	if holder := is.Spec.HolderIdentity; holder != "" && holder != l.Identity && now.Sub(l.seenAt) < duration {
		return &HeldError{holder}
	}
	return nil
}

// next returns the Lease as this candidate renews or takes it.
func (l *Lease) next(is object, now time.Time) object {
	at := now.UTC().Format(microTime)
	made := object{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Metadata: is.Metadata, Spec: is.Spec}
	made.Metadata.Namespace, made.Metadata.Name, made.Metadata.Labels = l.Namespace, l.Name, l.Labels
	if is.Spec.HolderIdentity != l.Identity {
		made.Spec.AcquireTime = at
		if is.Metadata.ResourceVersion != "" {
			made.Spec.LeaseTransitions++
		}
	}
	made.Spec.HolderIdentity, made.Spec.RenewTime, made.Spec.LeaseDurationSeconds = l.Identity, at, int(duration/time.Second)
	return made
}

// write replaces the Lease as it was seen, or creates it. The renewal counts from the request on.
func (l *Lease) write(ctx context.Context) error {
	began, from := time.Now(), l.sinceBoot()
	l.mu.Lock()
	made := l.next(l.seen, began)
	l.mu.Unlock()
	method, path := "PUT", l.path()+"/"+l.Name
	if made.Metadata.ResourceVersion == "" {
		method, path = "POST", l.path()
	}
	var is object
	if err := l.Do(ctx, method, path, made, &is); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.seenAt, l.until, l.err = is, began, from+renewDeadline, nil
	return nil
}

// fail notes why there was no renewal. What its holder failed to write is another version now, or the API server is away; if
// another one has taken the Lease, it is lost at once.
func (l *Lease) fail(ctx context.Context, err error) {
	if l.Check() == nil {
		if again := l.read(ctx); again != nil {
			err = again
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; isHeld(err) {
		l.until = 0
	}
}

func isHeld(err error) bool {
	_, is := errors.AsType[*HeldError](err)
	return is
}

// release gives the Lease back, so that another candidate takes it at once.
func (l *Lease) release(ctx context.Context) {
	l.mu.Lock()
	holds := l.sinceBoot() < l.until
	made := l.seen
	l.until, l.err = 0, errReleased
	l.mu.Unlock()
	if holds {
		made.Spec.HolderIdentity, made.Spec.LeaseDurationSeconds = "", 1
		_ = l.Do(ctx, "PUT", l.path()+"/"+l.Name, made, nil) // else it expires
	}
}

func (l *Lease) path() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + l.Namespace + "/leases"
}
