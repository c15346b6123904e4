package bench

import (
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// process is a peer that is a running program.
type process interface {
	// pid is its process.
	pid() int
	// startTime is how long it took until everything was in place.
	startTime() time.Duration
	// turns are how long after one another its control loop looked.
	turns() (v1.Turns, error)
}

// agentReading is what the agent took: up to now, or during a window.
type agentReading struct {
	cpu           time.Duration // run time of all its threads
	residentBytes uint64
	start         time.Duration
	turns         v1.Turns
}

func readAgent(p process) (r agentReading, err error) {
	r.start = p.startTime()
	if r.turns, err = p.turns(); err != nil {
		return r, fmt.Errorf("read the turns of the agent's control loop: %w", err)
	}
	if r.cpu, _, err = measure.ThreadTimes(p.pid()); err != nil {
		return r, err
	}
	r.residentBytes, _, err = measure.ResidentBytes(p.pid())
	return r, err
}
