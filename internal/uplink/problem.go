package uplink

import "strings"

// Kind is what is wrong with a device.
type Kind uint8

// The kinds of problems.
const (
	// Missing: there is no such device.
	Missing Kind = iota + 1
	// NoRate: nobody says how fast the device is.
	NoRate
	// AboveSpeed: the rate that was configured is more than the device's speed.
	AboveSpeed
	// ForeignQdisc: somebody else configured the device's queueing.
	ForeignQdisc
	// Refused: the kernel did not do what was asked of it.
	Refused
)

// Problem is why a device is not shared out, or not as it was configured. It is
// an error.
type Problem struct {
	Kind Kind
	// Text says so to the user, and what to do.
	Text string
	// Cause is the error below, if there is one.
	Cause error
}

// Error implements error.
func (p *Problem) Error() string { return p.Text }

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }

func refused(err error) *Problem { return &Problem{Kind: Refused, Text: err.Error(), Cause: err} }

// Problems are those of a device at one time.
type Problems []*Problem

// String joins them for the user.
func (p Problems) String() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.Text
	}
	return strings.Join(texts, "; ")
}
