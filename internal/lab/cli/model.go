package cli

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/share/policy"
)

func newModelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Compute what a port will do",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cmdline.Usagef("unknown model %q; there is: llq", args[0])
			}
			return cmdline.Usagef("which model? There is: llq (see %s --help)", cmd.CommandPath())
		},
	}
	cmd.AddCommand(newModelLLQCommand())
	return cmd
}

// llqFlags are the flags of `weir model llq` as written.
type llqFlags struct {
	rate, packet, arrival, places, afRate, poll string
	afterEF, changeOver, empty                  string
	sweep, figures, report                      string
	joint                                       bool
}

func newModelLLQCommand() *cobra.Command {
	var flags llqFlags
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   "llq",
		Short: "Compute mean queue, throughput, waiting time and loss of a port with three queues",
		Long: `Compute what a port with three finite queues does in the long run: EF is served
first, at the rate of the port; AF, at its own rate, and BE, at the rest, are
polled in turn. It is the Markov chain of the SDN-LLQ paper (IEEE Access 2017,
section IV); docs/model.md says how it was read and how it is checked. Without
options it is the paper's port.

Arrivals are Poisson, packet sizes and polling times exponential. More may arrive
than is served: the queues are finite, and the rest is lost. The waiting time is
that from a packet's arrival until it has been sent; a queue that carries nothing
has 0.

A sweep solves the port for each value of an option: af-rate, rate, arrival (of
all queues), ef-arrival, af-arrival, be-arrival, packet, places (of all queues)
or poll, as NAME=FROM:TO:STEP.`,
		Example: `  weir model llq --rate 100mbit --packet 1000 --arrival 33.3mbit,33.3mbit,33.3mbit --places 5,5,5 --af-rate 40mbit --poll 100
  weir model llq --arrival 10mbit,50mbit,0 --poll 2ms -o json
  weir model llq --sweep af-rate=40mbit:66mbit:2mbit --report sweep.html
  weir model llq --figures llq.html`,
		Args: cmdline.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd, *format) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.rate, "rate", "100mbit", "rate of the port, at which EF is served")
	set.StringVar(&flags.packet, "packet", "1000", "mean size of a packet in bytes")
	set.StringVar(&flags.arrival, "arrival", "33.3mbit,33.3mbit,33.3mbit", "what arrives at EF,AF,BE; 0 is nothing")
	set.StringVar(&flags.places, "places", "5,5,5", "packets that EF,AF,BE hold, the one in service included")
	set.StringVar(&flags.afRate, "af-rate", "40mbit", "rate at which AF is served; BE is served at the rest")
	set.StringVar(&flags.poll, "poll", "100", "how often per second a turn of AF or BE ends, or how long a turn is on average, as in 10ms")
	set.StringVar(&flags.empty, "empty", string(model.Lend),
		"while the queue whose turn it is has no packet: lend (the other is served), skip (and gets the turn) or wait (the line is idle)")
	set.StringVar(&flags.changeOver, "switch", string(model.AtPacketEnd),
		"when the line goes over to the queue that comes first now: packet-end or at-once (the packet on the line is sent on later)")
	set.StringVar(&flags.afterEF, "after-ef", string(model.Resume), "whose turn it is when EF is empty again: resume (as before) or af")
	set.StringVar(&flags.sweep, "sweep", "", "solve for each value of an option: NAME=FROM:TO:STEP")
	set.StringVar(&flags.figures, "figures", "", "write figures 3 to 5 and the claims of the paper to this HTML file, and nothing else")
	set.StringVar(&flags.report, "report", "", "also write an HTML report to this file")
	set.BoolVar(&flags.joint, "joint", false, "also print the share of time of each state (f,i,j,k), with -o json")
	format = cmdline.AddOutputFlag(cmd)
	return cmd
}

func (f *llqFlags) run(cmd *cobra.Command, format cmdline.Output) error {
	if f.figures != "" {
		return f.runFigures(cmd, format)
	}
	if f.joint && format != cmdline.JSON {
		return cmdline.Usagef("--joint prints every state: add -o json")
	}
	if f.sweep != "" {
		return f.runSweep(cmd, format)
	}
	port, err := f.parse()
	if err != nil {
		return err
	}
	started := time.Now()
	answer, err := f.solve(cmd.Context(), port)
	if err != nil {
		return err
	}
	found := newLLQReport(answer, started)
	if err := f.writeReport(found.Report); err != nil {
		return err
	}
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), found)
	}
	return found.writeText(cmd.OutOrStdout())
}

// writeReport writes the page that was asked for, if one was.
func (f *llqFlags) writeReport(found report.Report) error {
	if f.report == "" {
		return nil
	}
	return writePage(f.report, found)
}

func (f *llqFlags) solve(ctx context.Context, port model.LLQ) (llqAnswer, error) {
	result, err := port.Solve(ctx)
	if err != nil {
		return llqAnswer{}, fmt.Errorf("solve the model: %w", err)
	}
	return newLLQAnswer(port, result, f.joint), nil
}

// parse turns what was written into a port and says what is wrong with it.
func (f *llqFlags) parse() (model.LLQ, error) {
	port := model.LLQ{AfterEF: model.AfterEF(f.afterEF), Switch: model.Switch(f.changeOver), Empty: model.Empty(f.empty)}
	for _, flag := range []struct{ name, value string }{
		{"rate", f.rate}, {"packet", f.packet}, {"af-rate", f.afRate}, {"poll", f.poll},
	} {
		if err := setValue(&port, flag.name, flag.value); err != nil {
			return port, cmdline.Usagef("--%s %s %w", flag.name, flag.value, err)
		}
	}
	for _, flag := range []struct{ name, value, parts string }{
		{"arrival", f.arrival, "10mbit,50mbit,0"}, {"places", f.places, "5,5,5"},
	} {
		parts := strings.Split(flag.value, ",")
		if len(parts) != len(model.QueueNames) {
			return port, cmdline.Usagef("--%s %q is not three values for ef,af,be; write for example %s", flag.name, flag.value, flag.parts)
		}
		for q, part := range parts {
			if err := setValue(&port, model.QueueNames[q]+"-"+flag.name, part); err != nil {
				return port, cmdline.Usagef("--%s %s: %q of %s %w", flag.name, flag.value, part, model.QueueNames[q], err)
			}
		}
	}
	if port.AFRateBPS >= port.RateBPS {
		return port, cmdline.Usagef("--af-rate %s leaves nothing of --rate %s to BE; give AF less", f.afRate, f.rate)
	}
	if _, err := port.Port(); err != nil {
		return port, cmdline.WithCode(cmdline.Usage, err)
	}
	return port, nil
}

// setValue sets one quantity of a port from text; the error goes on after the
// text.
func setValue(port *model.LLQ, name, text string) (err error) {
	queue := -1 // all
	for q, prefix := range model.QueueNames {
		if rest, ok := strings.CutPrefix(name, prefix+"-"); ok && rest != "rate" {
			queue, name = q, rest
		}
	}
	switch name {
	case "rate":
		port.RateBPS, err = parseBPS(text)
	case "af-rate":
		port.AFRateBPS, err = parseBPS(text)
	case "packet":
		port.PacketBytes, err = parseNumber(text, "bytes", 1, maxPacketBytes)
	case "poll":
		port.PollPerSecond, err = parsePoll(text)
	case "arrival":
		return setAll(&port.ArrivalBPS, queue, text, parseArrival)
	case "places":
		return setAll(&port.Places, queue, text, parsePlaces)
	}
	return err
}

// setAll sets one of three values, or all of them.
func setAll[T any](values *[3]T, queue int, text string, parse func(string) (T, error)) error {
	value, err := parse(text)
	if err != nil {
		return err
	}
	for q := range values {
		if queue < 0 || q == queue {
			values[q] = value
		}
	}
	return nil
}

func parseBPS(text string) (float64, error) {
	bps, err := policy.ParseRate(text)
	return float64(bps), err
}

var zeroRate = regexp.MustCompile(`^0+(\.0+)?([A-Za-z]*)$`)

// parseArrival reads a rate, which may be 0.
func parseArrival(text string) (float64, error) {
	if zero := zeroRate.FindStringSubmatch(text); zero != nil {
		if zero[2] == "" {
			return 0, nil
		}
		_, err := policy.ParseRate("1" + zero[2]) // for its unit
		return 0, err
	}
	return parseBPS(text)
}

// Limits of what is read, far beyond any port.
const (
	maxPacketBytes = 1_000_000
	maxPlaces      = 1_000_000
)

func parsePlaces(text string) (int, error) {
	places, err := parseNumber(text, "packets", 1, maxPlaces)
	if err == nil && places != math.Trunc(places) {
		err = fmt.Errorf("is not a whole number of packets")
	}
	return int(places), err
}

// parseNumber reads a number without a unit.
func parseNumber(text, unit string, low, high float64) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("is not a number of %s; write it without a unit, for example 5", unit)
	case !(value >= low && value <= high):
		return 0, fmt.Errorf("is not between %.0f and %.0f %s", low, high, unit)
	}
	return value, nil
}

// parsePoll reads how often a turn ends per second, or its mean length.
func parsePoll(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		length, durationErr := time.ParseDuration(text)
		if durationErr != nil {
			return 0, fmt.Errorf("is neither a number of turns per second nor a time; write for example 100 or 10ms")
		}
		value = 1 / length.Seconds()
	}
	if !(value > 0) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("is not above 0; write for example 100 or 10ms")
	}
	return value, nil
}
