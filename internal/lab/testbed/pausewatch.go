package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
)

// LeastPause is the shortest CPU pause that spoils a measurement of some seconds: longer than
// queues bridge for a late sender or receiver.
const LeastPause = 10 * time.Millisecond

// PauseWatch records when a CPU of the machine was paused, measured by a separate process (`weir
// traffic pauses`).
type PauseWatch struct {
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{} // closed when the process tells nothing any more

	mu   sync.Mutex
	seen []traffic.Lateness
}

// StartPauseWatch watches for pauses of least or longer until Close or the end of
// ctx. weirBinary is the weir program.
func StartPauseWatch(ctx context.Context, weirBinary string, least time.Duration) (*PauseWatch, error) {
	cmd := exec.CommandContext(ctx, LabProgram(weirBinary), "traffic", "pauses", "--least", least.String())
	// The process ends with its standard input, which closes when this process ends.
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch for pauses: %w", err)
	}
	w := &PauseWatch{cmd: cmd, input: input, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.read(out)
	}()
	return w, nil
}

// read records the pauses that the process reports, until it ends.
func (w *PauseWatch) read(from io.Reader) {
	dec := json.NewDecoder(from)
	for {
		var one traffic.Pause
		if dec.Decode(&one) != nil {
			return
		}
		w.mu.Lock()
		w.seen = append(w.seen, traffic.Lateness{FromNS: one.UntilNS - one.LengthNS, UntilNS: one.UntilNS, ByNS: one.LengthNS})
		w.mu.Unlock()
	}
}

// Longest returns the longest pause that overlaps a CLOCK_MONOTONIC interval; 0 if there is none.
func (w *PauseWatch) Longest(fromNS, untilNS int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return traffic.MostLate(w.seen, fromNS, untilNS)
}

// Total returns the paused time between two CLOCK_MONOTONIC times, averaged over all CPUs.
func (w *PauseWatch) Total(fromNS, untilNS int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return traffic.TotalLate(w.seen, 0, fromNS, untilNS) / time.Duration(runtime.NumCPU())
}

// Close ends the watch. It returns false if the watch had ended early, so that pauses may be
// missing.
func (w *PauseWatch) Close() (complete bool) {
	select {
	case <-w.done:
	default:
		complete = true
	}
	_ = w.input.Close()
	<-w.done
	return w.cmd.Wait() == nil && complete
}
