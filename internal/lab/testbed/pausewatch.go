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

// LeastPause is the shortest time for which a processor may stand still and
// spoil a measurement of some seconds: longer than what queues hold for a sender that
// is late, or for a receiver that answers late.
const LeastPause = 10 * time.Millisecond

// PauseWatch knows when a processor of the machine stood still, from a process of
// its own (`weir traffic pauses`).
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
	cmd := exec.CommandContext(ctx, weirBinary, "traffic", "pauses", "--least", least.String())
	// It ends with its input, and that with this process, whatever happens.
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

// read takes in what the process tells, until it ends.
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

// Longest is the longest pause that touches a time of CLOCK_MONOTONIC; 0 if
// there was none.
func (w *PauseWatch) Longest(fromNS, untilNS int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return traffic.MostLate(w.seen, fromNS, untilNS)
}

// Total is how long a processor stood still between two times of CLOCK_MONOTONIC,
// on average of all.
func (w *PauseWatch) Total(fromNS, untilNS int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := int64(0)
	for _, one := range w.seen {
		sum += max(min(one.UntilNS, untilNS)-max(one.FromNS, fromNS), 0)
	}
	return time.Duration(sum) / time.Duration(runtime.NumCPU())
}

// Close ends the watch. It reports false when that had ended before, so that
// pauses may be missing.
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
