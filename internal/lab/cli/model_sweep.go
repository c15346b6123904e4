package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/share/policy"
)

// sweepNames are what a sweep may vary.
var sweepNames = []string{
	"af-rate", "rate", "arrival", "ef-arrival", "af-arrival", "be-arrival", "packet", "places", "poll",
}

// maxSweepPoints keeps a sweep from running for hours because of a wrong step.
const maxSweepPoints = 1000

// llqSweep is a port solved for several values of one option.
type llqSweep struct {
	Model  string      `json:"model"`
	Sweep  string      `json:"sweep"`
	Points []llqAnswer `json:"points"`
}

func (f *llqFlags) runSweep(cmd *cobra.Command, format cmdline.Output) error {
	name, values, err := parseSweep(f.sweep)
	if err != nil {
		return cmdline.Usagef("--sweep %s: %w", f.sweep, err)
	}
	list := llqSweep{Model: "llq", Sweep: name}
	ports := make([]model.LLQ, len(values))
	for n, value := range values { // all checked before the first is solved
		if ports[n], err = f.with(name, value); err != nil {
			return cmdline.Usagef("--sweep %s: at %s: %w", f.sweep, value, err)
		}
	}
	started := time.Now()
	for n, port := range ports {
		answer, err := f.solve(cmd.Context(), port)
		if err != nil {
			return fmt.Errorf("%s %s: %w", name, values[n], err)
		}
		answer.Value = values[n]
		list.Points = append(list.Points, answer)
	}
	found := newLLQSweepReport(list, started)
	if err := f.writeReport(found.Report); err != nil {
		return err
	}
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), found)
	}
	return list.writeText(cmd.OutOrStdout())
}

// with returns the port with one value of a sweep.
func (f llqFlags) with(name, value string) (model.LLQ, error) {
	switch name {
	case "af-rate":
		f.afRate = value
	case "rate":
		f.rate = value
	case "packet":
		f.packet = value
	case "poll":
		f.poll = value
	case "places":
		f.places = value + "," + value + "," + value
	case "arrival":
		f.arrival = value + "," + value + "," + value
	default: // of one queue
		parts := strings.Split(f.arrival, ",")
		queue := slices.Index(model.QueueNames[:], strings.TrimSuffix(name, "-arrival"))
		if queue < len(parts) {
			parts[queue] = value
		}
		f.arrival = strings.Join(parts, ",")
	}
	return f.parse()
}

// parseSweep reads NAME=FROM:TO:STEP into values as one would write them.
func parseSweep(text string) (name string, values []string, err error) {
	name, span, ok := strings.Cut(text, "=")
	parts := strings.Split(span, ":")
	if !ok || len(parts) != 3 {
		return "", nil, fmt.Errorf("is not NAME=FROM:TO:STEP; write for example af-rate=40mbit:66mbit:2mbit")
	}
	if !slices.Contains(sweepNames, name) {
		return "", nil, fmt.Errorf("%q cannot be swept; there are %s", name, strings.Join(sweepNames, ", "))
	}
	read, write := func(text string) (float64, error) { return parseNumber(text, "units", 0, 1e9) },
		func(v float64) string { return strconv.FormatFloat(v, 'g', 12, 64) }
	if strings.HasSuffix(name, "rate") || strings.HasSuffix(name, "arrival") {
		read, write = parseArrival, func(v float64) string { return policy.FormatRate(uint64(v)) }
	}
	var numbers [3]float64
	for n, part := range parts {
		if numbers[n], err = read(part); err != nil {
			return "", nil, fmt.Errorf("%q %w", part, err)
		}
	}
	from, to, step := numbers[0], numbers[1], numbers[2]
	switch {
	case !(step > 0):
		return "", nil, fmt.Errorf("step %q is not above 0", parts[2])
	case to < from:
		return "", nil, fmt.Errorf("%s is less than %s; write the smaller value first", parts[1], parts[0])
	case (to-from)/step >= maxSweepPoints:
		return "", nil, fmt.Errorf("are more than %d points; take a larger step", maxSweepPoints)
	}
	for n := 0; from+float64(n)*step <= to*(1+1e-12); n++ {
		values = append(values, write(from+float64(n)*step))
	}
	return name, values, nil
}
