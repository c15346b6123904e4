package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/report"
)

// foundByASuite is a suite's result of which only what it ends with matters.
type foundByASuite struct {
	report.Report
	Runs   string `json:"numbers"`
	failed int
}

func (f foundByASuite) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, f.Runs)
	return err
}

func (f foundByASuite) Failed() int { return f.failed }

// TestMissedTargetsEndInAnError: a suite whose target was missed is printed, and ends with an
// error that names it, unless somebody only looks.
func TestMissedTargetsEndInAnError(t *testing.T) {
	met := report.Verdict{Target: "link use", Limit: "99 %", Measured: "99.5 %", Met: true}
	missed := report.Verdict{Target: "share error", Limit: "1 %", Measured: "2.5 %"}
	undecided := report.Verdict{Target: "cost", Limit: "130 %", Measured: "120 %", Undecided: true}
	for _, test := range []struct {
		name      string
		verdicts  []report.Verdict
		failed    int
		noVerdict bool
		want      string // "" for no error
	}{
		{"one undecided", []report.Verdict{met, undecided}, 0, false, "1 of 2 targets missed or undecided (--no-verdict to look only): cost: 120 % (130 %), undecided"},
		{"all met", []report.Verdict{met}, 0, false, ""},
		{"no targets", nil, 0, false, ""},
		{"one missed", []report.Verdict{met, missed}, 0, false, "1 of 2 targets missed (--no-verdict to look only): share error: 2.5 % (1 %)"},
		{"only looked at", []report.Verdict{met, missed}, 0, true, ""},
		{"a run failed", []report.Verdict{met}, 3, false, "runs failed in 3 cases"},
		{"a run failed while somebody only looked", []report.Verdict{missed}, 3, true, "runs failed in 3 cases"},
	} {
		for _, format := range []cmdline.Output{cmdline.Table, cmdline.JSON} {
			var out strings.Builder
			cmd := &cobra.Command{}
			cmd.SetOut(&out)
			flags := suiteFlags{noVerdict: test.noVerdict, format: &format}
			err := flags.show(cmd, foundByASuite{report.Report{Verdicts: test.verdicts}, "the numbers", test.failed})
			if got := errorText(err); got != test.want {
				t.Errorf("%s, %s: error %q, want %q", test.name, format, got, test.want)
			}
			if !strings.Contains(out.String(), "the numbers") {
				t.Errorf("%s, %s: printed %q", test.name, format, out.String())
			}
		}

		// The same of all suites together, whose index names them; what their short runs leave undecided is
		// no error.
		index := report.Index{Sections: []report.Section{{Name: "a", Verdicts: []report.Verdict{met}}, {Name: "b", Verdicts: test.verdicts}}}
		flags := allFlags{benchFlags: benchFlags{suiteFlags: suiteFlags{noVerdict: test.noVerdict}}}
		want := ""
		if strings.Contains(test.want, "targets missed (") {
			want = "1 of 3 targets missed (--no-verdict to look only)"
		}
		if got := errorText(flags.missed(index)); got != want {
			t.Errorf("%s, of all suites: error %q, want %q", test.name, got, want)
		}
	}
	// A page that cannot be written takes nothing with it.
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	format := cmdline.Table
	flags := suiteFlags{report: "/nowhere/page.html", format: &format}
	err := flags.show(cmd, foundByASuite{Runs: "the numbers"})
	if !strings.Contains(errorText(err), "/nowhere/page.html") || out.String() != "the numbers" {
		t.Errorf("error %v, printed %q", err, out.String())
	}
	// When the time is up, or a page of claims names them, missed targets are no error, and what failed is.
	for _, test := range []struct {
		failure, left, withheld string
		publish                 bool
		want                    string
	}{
		{"", "", "", false, "1 of 1 targets missed (--no-verdict to look only)"},
		{"", "cost", "", true, ""},
		{"", "", "", true, ""},
		{"", "", "no paper", true, "the page must not be published: no paper"},
		{"no root", "cost", "", true, "1 of 2 reports are missing or have runs that failed"},
		{"no root", "", "", false, "1 of 2 reports are missing or have runs that failed"},
	} {
		index := report.Index{Sections: []report.Section{{Verdicts: []report.Verdict{missed}}, {Failure: test.failure}}}
		if test.left != "" {
			index.Left = []string{test.left}
		}
		if test.withheld != "" {
			index.Withheld = []string{test.withheld}
		}
		if got := errorText((&allFlags{publish: test.publish}).judge(index)); got != test.want {
			t.Errorf("%+v: error %q", test, got)
		}
	}
}

// TestAllTargetsAreMeasured: bench all also measures the agent that is looked at.
func TestAllTargetsAreMeasured(t *testing.T) {
	flags := allFlags{publish: true}
	flags.setDefaults(newBenchAllCommand())
	flags.options.Suite = "agent"
	cases, err := flags.options.Cases()
	for _, group := range []string{"looked at", "scrapes"} {
		if err != nil || !slices.ContainsFunc(cases, func(c bench.Case) bool { return strings.HasPrefix(c.Group, group) }) {
			t.Errorf("%v: no case of %s among %d", err, group, len(cases))
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestEverySuiteWithTargetsCanBeLookedAt: all suites that judge targets have the flag that
// makes a missed one no error.
func TestEverySuiteWithTargetsCanBeLookedAt(t *testing.T) {
	root := newBenchCommand()
	for _, name := range []string{"", "all", "llq", "sdn", "picasso"} {
		cmd, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		if cmd.Flags().Lookup("no-verdict") == nil {
			t.Errorf("%q has no --no-verdict", cmd.CommandPath())
		}
	}
}

// TestBenchSDNFlags: what one half of the suite does not go by is not taken in silence.
func TestBenchSDNFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--repeat 2":                    "--repeat needs --figures",
		"--rates 5mbit":                 "--rates needs --figures",
		"--figures --switches 5":        "--switches is not for --figures",
		"--figures --os-ken /bin/false": "--os-ken is not for --figures",
	} {
		cmd := newBenchSDNCommand()
		cmd.SetArgs(strings.Fields(args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if got := errorText(cmd.Execute()); got != want {
			t.Errorf("%s: error %q, want %q", args, got, want)
		}
	}
}

// TestBenchUsage: what cannot be measured is said before anything starts.
func TestBenchUsage(t *testing.T) {
	for _, tc := range []struct {
		args string // joined by spaces
		code int
		says string
	}{
		{"bench", 2, "which suite? choose from qcon, cntc, accuracy, reaction, cap, latency, in, cost, agent, all, compare, llq, model, netmodes"},
		{"bench netmode", 2, `unknown suite "netmode": choose from qcon, cntc, accuracy, reaction, cap, latency, in, cost, agent, all, compare, llq, model, netmodes`},
		{"bench netmodes --modes bridge,host,bridge", 2, "--modes has bridge twice: name each once"},
		{"bench netmodes --protocols tcp,tcp", 2, "--protocols has tcp twice"},
		{"bench netmodes --bytes 64,64", 2, "--bytes has 64 twice"},
		{"bench netmodes --links 20mbit,20000kbit", 2, "--links has 20mbit twice"},
		{"bench netmodes --links none,20mbit,none", 2, "--links has none twice"},
		{"bench llq --rates 60mbit,0.06gbit", 2, "--rates has 60mbit twice"},
		{"bench llq --peers htb,fifo,htb", 2, "--peers has htb twice"},
		{"bench sdn --figures --rates 60mbit,60mbit", 2, "--rates has 60mbit twice"},
		{"bench sdn --switches 0", 2, "--switches 0 is not within 1 and 1000"},
		{"bench sdn --os-ken /bin/true", 2, "/bin/true has no module os_ken"},
		{"bench sdn --os-ken /nowhere/python", 2, "there is no /nowhere/python"},
		{"bench picasso --parts cost,cost", 2, "--parts has cost twice"},
		{"bench picasso --users 5,5", 2, "--users has 5 twice"},
		{"bench picasso --nodes 4,4", 2, "--nodes has 4 twice"},
		{"bench cap --peers weir,htb,weir", 2, "--peers has weir twice"},
		{"bench in --judged", 2, "--judged is for qcon, cntc and netmodes: leave it out of in"},
		{"bench cost --judged", 2, "--judged is for qcon, cntc and netmodes: leave it out of cost"},
	} {
		if code, _, stderr := run(strings.Fields(tc.args)...); code != tc.code || !strings.Contains(stderr, tc.says) {
			t.Errorf("weir %s: exit code %d, want %d; %q, want %q", tc.args, code, tc.code, stderr, tc.says)
		}
	}
}
