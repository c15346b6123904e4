package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
	"github.com/weir-project/weir/internal/lab/advise"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/share/policy"
)

// defaultMeasurements is where what a host's modes cost is kept.
const defaultMeasurements = "/var/lib/weir/netmodes.json"

// adviseFlags are the flags of `weir advise` as written.
type adviseFlags struct {
	measurements, rate, check string
	refresh                   bool
	question                  advise.Question
}

// adviceOutput is what `weir advise -o json` prints.
type adviceOutput struct {
	advise.Advice
	// Container is what the advice is for, CurrentMode its mode if it runs.
	Container   string    `json:"container,omitempty"`
	CurrentMode string    `json:"current_mode,omitempty"`
	MeasuredAt  time.Time `json:"measured_at"`
	Host        string    `json:"host"`
	Kernel      string    `json:"kernel"`
}

func newAdviseCommand(socket *string) *cobra.Command {
	var flags adviseFlags
	var format *cmdline.Output
	cmd := &cobra.Command{
		Use:   "advise [IMAGE|CONTAINER]",
		Short: "Recommend a network mode; measure the uplink's rates",
		Long: `Say which network mode a container should have on this host, and what each
alternative costs, from what weir bench netmodes --save measured here. The mode
that carries the most is advised; of modes that do not differ from it beyond noise the
one that takes the least processor time; of those that do not differ in that either, one
that Weir controls and that keeps containers apart best. Noise is what the repeats of a
case differ by (weir bench netmodes --save --repeat 3), 5 % of throughput and 10 % of
processor time at least; less than 1 % of a processor does not count.

How many containers send at once, the uplink's rate and the size of what a running
container sends are taken from the agent where it runs; options say otherwise. A
name that the agent does not know is taken for an image that is to be started beside
the containers that run. The agent does not see protocols: say --protocol udp.`,
		Example: `  weir advise --refresh
  weir advise web
  weir advise --containers 3 --protocol udp --bytes 64 --rate 100mbit -o json
  weir bench netmodes --bytes 200,512 --repeat 3 -o json >other.json && weir advise --check other.json`,
		Args:              cmdline.AtMostArgs("IMAGE|CONTAINER"),
		ValidArgsFunction: connect.Local(socket).CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return flags.run(cmd, socket, name, *format)
		},
	}
	set := cmd.Flags()
	set.IntVar(&flags.question.Containers, "containers", 1, "how many containers send at once")
	set.StringVar(&flags.question.Protocol, "protocol", "tcp", "what they send over: tcp or udp")
	set.IntVar(&flags.question.MessageBytes, "bytes", 1024, "bytes that they send at once")
	set.StringVar(&flags.rate, "rate", "", "the uplink's rate, e.g. 100mbit (default the agent's, or no limit)")
	set.StringVar(&flags.measurements, "measurements", defaultMeasurements, "file of the measurements")
	set.StringVar(&flags.check, "check", "", "compare the advice with these measurements of other scenarios, from weir bench netmodes -o json, and nothing else")
	set.BoolVar(&flags.refresh, "refresh", false, "measure first (root, a quarter of an hour) and keep that")
	format = cmdline.AddOutputFlag(cmd)
	cmd.AddCommand(newAdviseRateCommand(socket))
	return cmd
}

func (f *adviseFlags) run(cmd *cobra.Command, socket *string, name string, format cmdline.Output) error {
	if f.rate != "" {
		var err error
		if f.question.RateBPS, err = policy.ParseRate(f.rate); err != nil {
			return cmdline.Usagef("--rate %s %w", f.rate, err)
		}
	}
	if err := f.question.Check(); err != nil {
		return cmdline.WithCode(cmdline.Usage, err)
	}
	var others advise.Measurements
	if f.check != "" { // before a quarter of an hour of measuring
		var err error
		if others, err = f.readOthers(cmd, name); err != nil {
			return err
		}
	}
	if f.refresh {
		if err := refreshMeasurements(cmd, f.measurements); err != nil {
			return err
		}
	}
	m, err := readMeasurements(f.measurements)
	if err != nil {
		return err
	}
	if f.check != "" {
		return runCheck(cmd, m, others, format)
	}
	result := adviceOutput{Container: name, MeasuredAt: m.StartedAt, Host: m.Host, Kernel: m.Environment.Kernel}
	notes, err := f.ask(cmd, socket, &result)
	if err != nil {
		return err
	}
	if result.Advice, err = advise.Choose(m, f.question); err != nil {
		return err
	}
	host, kernel := thisMachine()
	result.Warnings = slices.Concat(m.Foreign(host, kernel), result.Warnings, notes)
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), result)
	}
	for _, warning := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s\n", cmdline.Printable(warning))
	}
	return printAdvice(cmd.OutOrStdout(), result)
}

// readOthers reads the measurements that advice is compared with, which say what is asked:
// nothing else may.
func (f *adviseFlags) readOthers(cmd *cobra.Command, name string) (advise.Measurements, error) {
	if name != "" {
		return advise.Measurements{}, cmdline.Usagef("--check compares the advice for all that its file has: leave out %q", name)
	}
	for _, flag := range []string{"containers", "protocol", "bytes", "rate"} {
		if cmd.Flags().Changed(flag) {
			return advise.Measurements{}, cmdline.Usagef("--check compares the advice for all that its file has: leave out --%s", flag)
		}
	}
	data, err := os.ReadFile(f.check)
	if err != nil {
		return advise.Measurements{}, fmt.Errorf("--check: %w; `weir bench netmodes -o json` prints what it takes", err)
	}
	others, err := advise.Parse(data)
	if err != nil {
		return others, fmt.Errorf("--check %s: %w; `weir bench netmodes -o json` prints what it takes", f.check, err)
	}
	return others, nil
}

// runCheck says how often advice is what a measurement of the scenario itself says.
func runCheck(cmd *cobra.Command, m, others advise.Measurements, format cmdline.Output) error {
	list, err := advise.Check(m, others)
	if err != nil {
		return fmt.Errorf("check the advice: %w", err)
	}
	if format == cmdline.JSON {
		return cmdline.PrintJSON(cmd.OutOrStdout(), list)
	}
	table := report.Table{Header: []string{"PROTOCOL", "BYTES", "CONTAINERS", "ADVISED", "NOT TO BE TOLD FROM THE BEST", "AGREES", "CARRIES LESS"}}
	agree := 0
	for _, one := range list {
		word := "NO"
		if one.Agrees {
			agree++
			word = "yes"
		}
		table.Add(one.Question.Protocol, fmt.Sprint(one.Question.MessageBytes), fmt.Sprint(one.Question.Containers),
			cmdline.Printable(one.Advised), cmdline.Printable(strings.Join(one.Best, ", ")), word, fmt.Sprintf("%.0f %%", max(0, one.Lost)*100))
	}
	if err := table.WriteText(cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nThe advice agrees in %d of %d scenarios.\n", agree, len(list))
	return err
}

// ask completes the question with what the agent knows, where no option says
// otherwise, and tells what it took for what.
func (f *adviseFlags) ask(cmd *cobra.Command, socket *string, result *adviceOutput) (notes []string, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
	defer cancel()
	snapshot, err := client.Unix(*socket).Snapshot(ctx)
	if err != nil {
		return notAsked(err, result.Container != "" && !cmd.Flags().Changed("containers"))
	}
	if f.rate == "" {
		f.question.RateBPS = snapshot.Status.RateBPS
	}
	return f.askOf(snapshot, result, cmd.Flags().Changed), nil
}

// notAsked returns the notes on advice without the agent's answer. Advice needs no agent, and no
// access to it; missed says that the answer would have counted.
func notAsked(err error, missed bool) (notes []string, _ error) {
	switch {
	case errors.Is(err, client.ErrNotAllowed):
		return []string{fmt.Sprintf("the agent was not asked what runs (%v): --containers, --bytes and --rate say it", err)}, nil
	case !errors.Is(err, client.ErrNoAgent):
		return nil, fmt.Errorf("ask the agent what runs: %w", err)
	case missed:
		return []string{"no agent runs that knows the containers: --containers says how many send"}, nil
	}
	return nil, nil
}

// askOf is ask of what an agent said; changed are the options that were given.
func (f *adviseFlags) askOf(snapshot v1.Snapshot, result *adviceOutput, changed func(string) bool) (notes []string) {
	count := 0
	for _, c := range snapshot.Containers {
		// Not the host, and of a pod the one that all of it is counted with.
		if c.Runtime != "host" && c.CountedWith == "" && c.Mode != v1.ModeNone {
			count++
		}
	}
	i := slices.IndexFunc(snapshot.Containers, func(c v1.Container) bool {
		return result.Container != "" && (c.Name == result.Container || c.ID == result.Container)
	})
	switch {
	case i >= 0:
		running := snapshot.Containers[i]
		result.CurrentMode = string(running.Mode)
		if payload := payloadBytes(running); payload > 0 && !changed("bytes") {
			f.question.MessageBytes = payload
		}
	case result.Container != "":
		count++
		notes = append(notes, fmt.Sprintf("the agent knows no container %q: it is taken for an image that is to be started", result.Container))
	}
	if count > 0 && !changed("containers") {
		f.question.Containers = count
	}
	return notes
}

// frameHeaderBytes are those of Ethernet, IPv4 and UDP.
const frameHeaderBytes = 14 + 20 + 8

// payloadBytes returns the mean payload of a container's packets; 0 if unknown.
func payloadBytes(c v1.Container) int {
	if c.SentPackets == 0 {
		return 0
	}
	return max(int(c.SentBytes/c.SentPackets)-frameHeaderBytes, 1)
}

// thisMachine returns this machine's name and kernel; empty if unknown.
func thisMachine() (host, kernel string) {
	host, _ = os.Hostname()
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		kernel = unix.ByteSliceToString(uname.Release[:])
	}
	return host, kernel
}

// readMeasurements reads a file of measurements.
func readMeasurements(path string) (advise.Measurements, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return advise.Measurements{}, fmt.Errorf("there are no measurements of this host in %s: make them with `sudo weir advise --refresh` (or, of your own choice, `sudo weir bench netmodes --save --repeat 3`), or say where they are with --measurements", path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return advise.Measurements{}, fmt.Errorf("read the measurements: %w: run as root (sudo)", err)
	}
	if err != nil {
		return advise.Measurements{}, fmt.Errorf("read the measurements: %w", err)
	}
	m, err := advise.Parse(data)
	if err != nil {
		return m, fmt.Errorf("read the measurements in %s: %w; make them again with `sudo weir bench netmodes --save`", path, err)
	}
	return m, nil
}

// saveMeasurements keeps a report of weir bench netmodes; what was there stays
// until the new one is complete.
func saveMeasurements(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the measurements: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".netmodes-")
	if err != nil {
		return fmt.Errorf("keep the measurements: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keep the measurements: %w", err), os.Remove(file.Name()))
		}
	}()
	// Anyone may ask for advice.
	if err := errors.Join(write(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func printAdvice(w io.Writer, result adviceOutput) error {
	what := ""
	if result.Container != "" {
		what = " for " + cmdline.Printable(result.Container)
	}
	now := ""
	if result.CurrentMode != "" {
		now = fmt.Sprintf(" (now: %s)", result.CurrentMode)
	}
	fmt.Fprintf(w, "%s%s%s\n%s\n\n", result.Mode, what, now, result.Reason)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "MODE\tMBIT/S\tCPU S/GBIT\tWEIR CONTROLS\t")
	for _, one := range result.Options {
		rate, cpu, controlled := "-", "-", "-"
		if one.Available {
			rate, cpu = fmt.Sprintf("%.1f", one.RateBPS/1e6), fmt.Sprintf("%.2f", one.CPUPerGbit)
		}
		if one.Controlled != nil {
			controlled = map[bool]string{true: "yes", false: "NO"}[*one.Controlled]
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\n", cmdline.Printable(one.Mode), rate, cpu, controlled, cmdline.Printable(one.Note))
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err := fmt.Fprintf(w, "\nMeasured on %s, kernel %s, %s.\n", cmdline.Printable(result.Host), cmdline.Printable(result.Kernel), result.MeasuredAt.Format(time.DateOnly))
	return err
}
