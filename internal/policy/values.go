package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// The limits of values.
const (
	MaxWeight   = 10000
	MaxPriority = 1000
	MaxLatency  = 10 * time.Second
)

var errEmpty = errors.New("is empty; write a value or remove it")

// ParseWeight reads a weight: a whole number from 0 to [MaxWeight].
func ParseWeight(text string) (uint32, error) { return parseWhole(text, MaxWeight) }

// ParsePriority reads a priority: a whole number from 0 to [MaxPriority].
func ParsePriority(text string) (uint32, error) { return parseWhole(text, MaxPriority) }

func parseWhole(text string, highest uint64) (uint32, error) {
	if text == "" {
		return 0, errEmpty
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > highest {
		return 0, fmt.Errorf("write a whole number from 0 to %d", highest)
	}
	return uint32(n), nil
}

// ParseLatency reads a bound on queueing delay: a duration as Go spells it
// ("20ms", "1.5s", "500us"), above 0 and up to [MaxLatency].
func ParseLatency(text string) (time.Duration, error) {
	if text == "" {
		return 0, errEmpty
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && isDecimal(text):
		return 0, fmt.Errorf("has no unit; for milliseconds write %sms", text)
	case err != nil:
		return 0, errors.New("is not a duration; write for example 20ms")
	case d <= 0:
		return 0, errors.New("must be above 0; write for example 20ms")
	case d > MaxLatency:
		return 0, fmt.Errorf("is above %v; write at most %v, for example 20ms", MaxLatency, MaxLatency)
	}
	return d, nil
}

// ParseClass reads a traffic class: ef, af, be or auto, in any case.
func ParseClass(text string) (v1.Class, error) {
	if text == "" {
		return v1.ClassNone, errEmpty
	}
	switch class := v1.Class(strings.ToLower(text)); class {
	case v1.ClassEF, v1.ClassAF, v1.ClassBE, v1.ClassAuto:
		return class, nil
	}
	return v1.ClassNone, errors.New("is not a class; write ef, af, be or auto")
}
