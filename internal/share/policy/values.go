package policy

import (
	"errors"
	"fmt"
	"math"
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

// ParseDSCP parses the use of the DSCP field: trust, mark or both, in any case.
func ParseDSCP(text string) (v1.DSCP, error) {
	if text == "" {
		return v1.DSCPNone, errEmpty
	}
	switch use := v1.DSCP(strings.ToLower(text)); use {
	case v1.DSCPTrust, v1.DSCPMark, v1.DSCPBoth:
		return use, nil
	}
	return v1.DSCPNone, errors.New("is no use of DSCP; write trust, mark or both")
}

// TrustsDSCP reports whether the DSCP field of a container's packets decides their class.
func TrustsDSCP(p v1.Policy) bool { return p.DSCP == v1.DSCPTrust || p.DSCP == v1.DSCPBoth }

// MarksDSCP reports whether the class is written into the DSCP field.
func MarksDSCP(p v1.Policy) bool { return p.DSCP == v1.DSCPMark || p.DSCP == v1.DSCPBoth }

// ParsePart parses a part of a container's share: a rate in ParseRate's syntax, or a
// percentage from 0% to 100% with at most two decimals ("30%", "12.5%").
func ParsePart(text string) (v1.Part, error) {
	if text == "" {
		return v1.Part{}, errEmpty
	}
	number, isPercentage := strings.CutSuffix(text, "%")
	if !isPercentage {
		bps, err := ParseRate(text)
		if percent, isNumber := parsePercent(text); err != nil && isNumber {
			return v1.Part{}, fmt.Errorf("has no unit; write a rate such as 10mbit, or for a percentage of the share %s", FormatPart(v1.Part{Percent: percent}))
		}
		return v1.Part{BPS: bps}, err
	}
	percent, ok := parsePercent(number)
	if !ok {
		return v1.Part{}, errors.New("is not a percentage of the share; write 0% to 100%, for example 30%")
	}
	return v1.Part{Percent: percent}, nil
}

// parsePercent parses a number from 0 to 100 with at most two decimals.
func parsePercent(number string) (float64, bool) {
	_, fraction, _ := strings.Cut(number, ".")
	percent, err := strconv.ParseFloat(number, 64)
	return percent, err == nil && isDecimal(number) && len(fraction) <= 2 && percent <= 100
}

// roundPercent rounds to two decimals, the precision of parsePercent.
func roundPercent(percent float64) float64 { return math.Round(percent*100) / 100 }

// FormatPart returns the text of a part of a share in ParsePart's syntax.
func FormatPart(p v1.Part) string {
	if p.BPS > 0 {
		return FormatRate(p.BPS)
	}
	return strconv.FormatFloat(p.Percent, 'f', -1, 64) + "%"
}
