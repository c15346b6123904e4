package uplink

import "strings"

// Kind is the kind of a problem with a device.
type Kind uint8

// The kinds of problems.
const (
	// Missing: the device does not exist.
	Missing Kind = iota + 1
	// NoRate: neither the device nor the configuration gives a rate.
	NoRate
	// AboveSpeed: the configured rate is above the device's speed.
	AboveSpeed
	// ForeignQdisc: another program configured the device's queueing.
	ForeignQdisc
	// Down: the device is switched off or has no carrier. All is in force there.
	Down
	// Obstructed: programs of others would not see what is shared.
	Obstructed
	// Refused: the kernel refused a change.
	Refused
)

// Problem is the reason why a device is not shared, or not as configured. It is an error.
type Problem struct {
	Kind Kind
	// Text tells the user what is wrong and what to do.
	Text string
	// Cause is the underlying error, or nil.
	Cause error
}

// Error implements error.
func (p *Problem) Error() string { return p.Text }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

func refused(err error) *Problem { return &Problem{Kind: Refused, Text: err.Error(), Cause: err} }

// Problems are the present problems of a device.
type Problems []*Problem

// Error joins the texts for the user.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.Text
	}
	return strings.Join(texts, "; ")
}
