// Package sim decides again what an engine decided: from a trace that weir-edge wrote of
// a cluster (weir-edge run --record, weir-edge replay), or in its tests of a cluster that
// exists only as numbers.
package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/weir-project/weir/internal/edge/engine"
)

// A trace is what an engine went by and what it decided, round by round: JSON, one
// object a line, the first of which is a header. It comes from a cluster as
// from a simulation, and from either the same must be decided again.

// traceVersion changes with the meaning of what is in a trace.
const traceVersion = 2

// maxTraceLine is the longest line of a trace: 1,000 nodes and 10,000 instances take 8 MB.
const maxTraceLine = 256 << 20

type traceHeader struct {
	Trace   string        `json:"trace"`
	Version int           `json:"version"`
	Policy  engine.Policy `json:"policy"`
}

const traceName = "weir-edge"

// Round is one line of a trace.
type Round struct {
	Input     engine.Input      `json:"input"`
	Decisions []engine.Decision `json:"decisions"`
}

// Recorder writes a trace.
type Recorder struct{ to *json.Encoder }

// NewRecorder begins a trace of an engine with that policy.
func NewRecorder(to io.Writer, policy engine.Policy) (*Recorder, error) {
	r := &Recorder{to: json.NewEncoder(to)}
	if err := r.to.Encode(traceHeader{Trace: traceName, Version: traceVersion, Policy: policy}); err != nil {
		return nil, fmt.Errorf("write the trace: %w", err)
	}
	return r, nil
}

// Record writes a round.
func (r *Recorder) Record(in engine.Input, result engine.Result) error {
	if err := r.to.Encode(Round{Input: in, Decisions: result.Decisions}); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// DifferenceError is a round whose replayed decisions differ from the recorded ones.
type DifferenceError struct {
	Round     int // from 1
	Was, Now  string
	Decisions []engine.Decision // those of now
}

// Error shows the first decision that differs.
func (e *DifferenceError) Error() string {
	return fmt.Sprintf("round %d: decided was %s, now it is %s", e.Round, e.Was, e.Now)
}

// Replay repeats every round of a trace and returns how many gave the same decisions. It stops at
// the first difference with a *[DifferenceError].
func Replay(from io.Reader) (int, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxTraceLine)
	var header traceHeader
	if err := readLine(lines, &header); err != nil {
		return 0, fmt.Errorf("read the trace: its first line: %w: traces are what weir-edge run --record writes", err)
	}
	if header.Trace != traceName || header.Version != traceVersion {
		return 0, fmt.Errorf("read the trace: it is no trace of weir-edge of version %d", traceVersion)
	}
	e, err := engine.New(header.Policy)
	if err != nil {
		return 0, fmt.Errorf("read the trace: %w", err)
	}
	for number := 1; ; number++ {
		var round Round
		err := readLine(lines, &round)
		switch {
		case errors.Is(err, io.EOF):
			return number - 1, nil
		case err != nil:
			return number - 1, fmt.Errorf("read the trace: round %d: %w", number, err)
		}
		if err := compare(number, round.Decisions, e.Round(round.Input).Decisions); err != nil {
			return number - 1, err
		}
	}
}

func readLine(lines *bufio.Scanner, into any) error {
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	return json.Unmarshal(lines.Bytes(), into)
}

// compare compares decisions by their JSON, because a trace contains nothing else.
func compare(round int, was, now []engine.Decision) error {
	for i := range max(len(was), len(now)) {
		a, b := line(was, i), line(now, i)
		if !bytes.Equal(a, b) {
			return &DifferenceError{Round: round, Was: string(a), Now: string(b), Decisions: now}
		}
	}
	return nil
}

func line(list []engine.Decision, i int) []byte {
	if i >= len(list) {
		return []byte("nothing")
	}
	text, err := json.Marshal(list[i])
	if err != nil { // a number that is none, which the engine does not make
		return []byte(err.Error())
	}
	return text
}
