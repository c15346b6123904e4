package spec

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// quantity describes a kind of number: its meaning, range, and other units that users write.
type quantity struct {
	unit           string // "seconds"; empty for a count
	lowest, most   float64
	whole          bool
	example        string
	factors        map[string]float64 // of units that are understood, to tell what to write
	beyond, before string             // what to say of numbers outside
}

var (
	seconds = quantity{
		unit: "seconds", lowest: 1e-6, most: maxSeconds, example: "0.5",
		factors: map[string]float64{"us": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "seconds": 1, "m": 60, "min": 60, "h": 3600},
	}
	megabytes = quantity{
		unit: "megabytes", lowest: 1e-6, most: maxImageMB, example: "2.16",
		factors: map[string]float64{"b": 1e-6, "kb": 1e-3, "mb": 1, "gb": 1e3, "kib": 1.024e-3, "mib": 1.048576, "gib": 1073.741824},
	}
	percent = quantity{
		unit: "percent", lowest: 1, most: maxAvailability, example: "99.9",
		factors: map[string]float64{"%": 1},
		beyond:  "no number of replicas is there all the time",
		before:  "it is in percent, not a part of one",
	}
	users      = quantity{lowest: 1, most: maxUsers, whole: true, example: "50"}
	instances  = quantity{lowest: 1, most: MaxInstances, whole: true, example: "4"}
	port       = quantity{lowest: 1, most: 65535, whole: true, example: "8080"}
	processors = quantity{unit: "processors", lowest: 0.01, most: maxCPUs, example: "0.5"}
)

// decimal matches a plain decimal number with an optional unit.
var decimal = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]*)$`)

// number parses a number, also one written as a string; 0 if there is none.
func (r *reader) number(v *value, q quantity) float64 {
	if v == nil {
		return 0
	}
	if v.kind != kindNumber && v.kind != kindText {
		r.fail(v.path, "is %s; write %s", v.kind, q.wanted())
		return 0
	}
	number, err := q.parse(v.text, v.kind)
	if err != nil {
		r.fail(v.path, "%q %w", v.text, err)
		return 0
	}
	return number
}

func (q quantity) parse(text string, kind kind) (float64, error) {
	if kind == kindText {
		parts := decimal.FindStringSubmatch(text)
		switch {
		case parts == nil:
			return 0, fmt.Errorf("is no number; write %s", q.wanted())
		case parts[2] != "":
			return 0, q.unitError(parts[1], parts[2])
		}
	}
	number, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil, number > q.most, number < 0, math.IsNaN(number):
		return 0, q.outside(q.beyond)
	case number < q.lowest:
		return 0, q.outside(q.before)
	case q.whole && number != math.Trunc(number):
		return 0, fmt.Errorf("is not whole; write %s", q.wanted())
	}
	return number, nil
}

// unitError returns an error with the number converted to the expected unit.
func (q quantity) unitError(number, unit string) error {
	factor, known := q.factors[strings.ToLower(unit)]
	value, err := strconv.ParseFloat(number, 64)
	if !known || err != nil {
		return fmt.Errorf("has the unit %s; write %s", unit, q.wanted())
	}
	return fmt.Errorf("has a unit; it is in %s, write %s", q.unit, strconv.FormatFloat(value*factor, 'f', -1, 64))
}

func (q quantity) outside(why string) error {
	if why != "" {
		why += "; "
	}
	return fmt.Errorf("is out of range: %swrite %s", why, q.wanted())
}

// wanted returns the expected format for messages.
func (q quantity) wanted() string {
	what := "a number"
	if q.whole {
		what = "a whole number"
	}
	if q.unit != "" {
		what += " of " + q.unit
	}
	return fmt.Sprintf("%s from %s to %s, for example %s", what,
		strconv.FormatFloat(q.lowest, 'f', -1, 64), strconv.FormatFloat(q.most, 'f', -1, 64), q.example)
}

// memoryUnits are Docker's: powers of two, also for kb.
var memoryUnits = map[string]uint64{
	"": 1, "b": 1,
	"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10,
	"m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
}

// memory reads an amount of memory as Docker's --memory has it: "64m".
func (r *reader) memory(v *value) uint64 {
	if v == nil {
		return 0
	}
	parts := decimal.FindStringSubmatch(v.text)
	if v.kind != kindText && v.kind != kindNumber || parts == nil {
		r.fail(v.path, "%q is no amount of memory; write for example 64m", v.text)
		return 0
	}
	unit, known := memoryUnits[strings.ToLower(parts[2])]
	if !known {
		r.fail(v.path, "%q has an unknown unit; write b, k, m or g, for example 64m", v.text)
		return 0
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	bytes := number * float64(unit)
	if err != nil || bytes < minMemoryBytes || bytes > maxMemoryBytes {
		hint := ""
		if parts[2] == "" && number < minMemoryBytes {
			hint = fmt.Sprintf("; without a unit it is bytes, did you mean %sm?", parts[1])
		}
		r.fail(v.path, "%q is out of range: write from 6m, the least that Docker takes, to %dg%s", v.text, uint64(maxMemoryBytes>>30), hint)
		return 0
	}
	return uint64(bytes)
}
