package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/traffic"
)

const (
	// LeastPause is the shortest time for which a processor may stand still and
	// spoil a run: longer than what queues hold for a sender that is late, or a
	// receiver that answers late.
	LeastPause = 10 * time.Millisecond
	// maxAttempts is how often a run is done at most until none was in it. The
	// last one counts whatever happened.
	maxAttempts = 3
)

// pauses knows when a processor of the machine stood still, from a process of
// its own (`weir traffic pauses`).
type pauses struct {
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{} // closed when the process tells nothing any more

	mu   sync.Mutex
	seen []traffic.Pause
}

// watchPauses watches until close.
func watchPauses(ctx context.Context, weirBinary string) (*pauses, error) {
	cmd := exec.CommandContext(ctx, weirBinary, "traffic", "pauses", "--least", LeastPause.String())
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
	p := &pauses{cmd: cmd, input: input, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.read(out)
	}()
	return p, nil
}

// read takes in what the process tells, until it ends.
func (p *pauses) read(from io.Reader) {
	dec := json.NewDecoder(from)
	for {
		var one traffic.Pause
		if dec.Decode(&one) != nil {
			return
		}
		p.mu.Lock()
		p.seen = append(p.seen, one)
		p.mu.Unlock()
	}
}

// longest is the longest pause that touches a time of CLOCK_MONOTONIC; 0 if
// there was none.
func (p *pauses) longest(fromNS, untilNS int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := int64(0)
	for _, one := range p.seen {
		if one.UntilNS > fromNS && one.UntilNS-one.LengthNS < untilNS {
			longest = max(longest, one.LengthNS)
		}
	}
	return time.Duration(longest)
}

// close ends the watch. It reports false when that had ended before, so that
// pauses may be missing.
func (p *pauses) close() (complete bool) {
	select {
	case <-p.done:
	default:
		complete = true
	}
	_ = p.input.Close()
	<-p.done
	return p.cmd.Wait() == nil && complete
}
