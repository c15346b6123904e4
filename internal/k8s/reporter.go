package k8s

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
)

const (
	// answerTimeout is how long the agent may take to put a change into force. NRI disconnects a
	// plugin that takes more than 2 s, and a change may have to wait for the one before.
	answerTimeout = 900 * time.Millisecond
	// retryInterval is the pause before another attempt to connect to the agent. A refused one costs
	// a system call.
	retryInterval = 200 * time.Millisecond
	// repeatInterval is the longest time between two reports: the agent takes a weir-k8s that says
	// nothing for v1.PodsSilence for a stopped one, and lets another in.
	repeatInterval = v1.PodsSilence / 3
)

// errNoRuntime: what runs is unknown until the runtime has said it once, so that nothing is reported.
var errNoRuntime = errors.New("the container runtime has not said yet what runs")

// reporter keeps the agent informed of the pods in its book, across restarts of the agent: after each
// connection it reports all. Its goroutine (run) owns all state.
type reporter struct {
	agent *client.Client
	// runtime is the one whose pods, or containers, the book has.
	runtime string
	log     *slog.Logger
	updates chan update
	// retry is the pause between attempts to connect to the agent, timeout how long it may take to
	// answer, repeat the longest time between two reports.
	retry, timeout, repeat time.Duration
	// runs reports whether a process is there.
	runs func(pid uint32) bool

	book book
	// complete: the runtime has said what runs.
	complete bool
	pods     *client.Pods // nil while there is no connection
	// reportedAt is the time of the last report.
	reportedAt time.Time
	// failed is why there is none; until notBefore no other attempt is made, so that changes do not
	// wait for each other's.
	failed    error
	notBefore time.Time
}

// update changes the book, and is answered when the agent has put that into force or cannot.
type update struct {
	// apply returns the line to report; false for none. With complete, the book has all that runs.
	apply    func(book) (v1.PodsChange, bool)
	complete bool
	// forget: what runs is not known any more. There is no apply.
	forget bool
	answer chan<- answer
}

type answer struct {
	state v1.PodState
	err   error
}

func newReporter(agent *client.Client, runtime string, log *slog.Logger) *reporter {
	return &reporter{agent: agent, runtime: runtime, log: log, updates: make(chan update), retry: retryInterval, timeout: answerTimeout, repeat: repeatInterval, runs: isProcess, book: book{}}
}

func isProcess(pid uint32) bool { return !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }

// update hands a change of the book to the reporter's goroutine, and returns the agent's answer.
func (r *reporter) update(ctx context.Context, apply func(book) (v1.PodsChange, bool)) (v1.PodState, error) {
	return r.hand(ctx, update{apply: apply})
}

// replace is update for a list of all pods that run.
func (r *reporter) replace(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container, n func() notes) error {
	_, err := r.hand(ctx, update{complete: true, apply: func(b book) (v1.PodsChange, bool) {
		b.replace(sandboxes, containers, n())
		return v1.PodsChange{All: b.list()}, true
	}})
	return err
}

// forgetRuntime ends the connection to the agent, which then shows weir-k8s as not connected, until the
// runtime has listed its pods.
func (r *reporter) forgetRuntime(ctx context.Context) {
	_, _ = r.hand(ctx, update{forget: true})
}

func (r *reporter) hand(ctx context.Context, u update) (v1.PodState, error) {
	done := make(chan answer, 1)
	u.answer = done
	select {
	case r.updates <- u:
	case <-ctx.Done():
		return v1.PodState{}, ctx.Err()
	}
	select {
	case a := <-done:
		return a.state, a.err
	case <-ctx.Done():
		return v1.PodState{}, ctx.Err()
	}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	retry := time.NewTicker(r.retry)
	defer retry.Stop()
	for {
		var ended <-chan struct{}
		if r.pods != nil {
			ended = r.pods.Ended()
		}
		select {
		case <-ctx.Done():
			r.disconnect()
			return
		case <-ended:
			r.disconnect()
			r.log.Info("lost the agent; pods keep their shares")
		case <-retry.C:
			r.dropEnded(ctx)
			if r.pods != nil && time.Since(r.reportedAt) > r.repeat {
				_, _ = r.report(ctx, v1.PodsChange{All: r.book.list()}) // it logs its error
			}
			_ = r.connect(ctx) // as this does
		case u := <-r.updates:
			var a answer
			if u.forget {
				r.complete = false
				r.disconnect()
				u.answer <- a
				continue
			}
			r.complete = r.complete || u.complete
			line, changed := u.apply(r.book)
			r.look() // at once: it may end before the next attempt
			if changed {
				a.state, a.err = r.report(ctx, line)
			}
			u.answer <- a
		}
	}
}

// isRunning reports whether the sandbox of a pod is there.
func (r *reporter) isRunning(p pod) bool {
	if p.pid == 0 {
		return exists(p.pinnedNS)
	}
	return r.runs(p.pid)
}

// look notes which sandboxes are there. One whose process is never seen is in another PID namespace, and says nothing.
func (r *reporter) look() {
	if r.runtime != v1.RuntimeKubernetes {
		return
	}
	for id, p := range r.book {
		if !p.seen && r.isRunning(p) {
			p.seen = true
			r.book[id] = p
		}
	}
}

// dropEnded reports pods whose sandbox has ended. A containerd that was restarted does not tell when those end that ran
// before (2.4.2, internal/nri/nri.go: needsStopping knows pods that it has started itself).
func (r *reporter) dropEnded(ctx context.Context) {
	for id, p := range r.book {
		if p.seen && !r.isRunning(p) {
			r.book.stop(id)
			_, _ = r.report(ctx, v1.PodsChange{Stopped: id}) // it logs its error
		}
	}
}

// report reports a change that the book already has.
func (r *reporter) report(ctx context.Context, line v1.PodsChange) (v1.PodState, error) {
	if err := r.connect(ctx); err != nil {
		return v1.PodState{}, err
	}
	began := time.Now()
	r.reportedAt = began
	state, err := r.pods.Report(line, r.timeout)
	if err != nil {
		r.log.Warn("cannot report to the agent; all is reported again soon", "error", err)
		r.disconnect()
		r.pause(err, began)
	}
	return state, err
}

// connect connects to the agent and reports all pods, unless that is done.
func (r *reporter) connect(ctx context.Context) error {
	began := time.Now()
	switch {
	case r.pods != nil:
		return nil
	case !r.complete:
		return errNoRuntime
	case began.Before(r.notBefore):
		return r.failed
	}
	pods, err := r.agent.ReportPods(ctx, r.runtime, r.book.list(), r.timeout)
	if err != nil {
		if ctx.Err() == nil && (r.failed == nil || r.failed.Error() != err.Error()) {
			r.log.Warn("cannot reach the agent; trying again", "error", err)
		}
		r.pause(err, began)
		return err
	}
	r.pods, r.failed, r.reportedAt = pods, nil, began
	r.log.Info("reported all containers to the agent", "source", r.runtime, "number", len(r.book))
	return nil
}

// pause notes a failed attempt, and makes the next one wait as long as it took, unless no agent
// listens: one may come at any moment.
func (r *reporter) pause(err error, began time.Time) {
	r.failed = err
	if !errors.Is(err, client.ErrNoAgent) {
		r.notBefore = time.Now().Add(time.Since(began))
	}
}

func (r *reporter) disconnect() {
	if r.pods != nil {
		r.pods.Close()
		r.pods = nil
	}
}
