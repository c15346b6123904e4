package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"text/tabwriter"
)

//go:embed index.html.tmpl
var indexTemplate string

// Index is what several reports of one run come to: its page leads to theirs.
type Index struct {
	Format int    `json:"format"`
	Title  string `json:"title"`
	Note   string `json:"note"`
	Provenance
	// Settings are there for a page of claims, and Withheld is why it must not be published.
	Settings *Settings `json:"settings,omitempty"`
	Withheld []string  `json:"withheld,omitempty"`
	Sections []Section `json:"sections"`
	// Unclaimed are the items of the papers that have no claim, on a page of claims.
	Unclaimed []Unclaimed `json:"unclaimed,omitempty"`
	// Left is what there was no time for before the run had to end: there is no page yet.
	Left []string `json:"left,omitempty"`
}

// Section is one report of an index.
type Section struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Page and Result are files beside the index: HTML, and JSON with all numbers.
	// Empty if there is no report.
	Page   string `json:"page"`
	Result string `json:"result"`
	// Failure is why the report is missing or incomplete.
	Failure string `json:"failure,omitempty"`
	// Skipped is what is missing here that the report needs.
	Skipped     string  `json:"skipped,omitempty"`
	TookSeconds float64 `json:"took_seconds"`
	Runs        int     `json:"runs"`
	// Containers are Docker's version or network namespaces; empty where there are none.
	Containers string `json:"containers,omitempty"`
	// PausedRuns of these, which count, had a pause of the machine.
	PausedRuns int `json:"paused_runs,omitempty"`
	// PausesUnknown: that could not be watched.
	PausesUnknown bool      `json:"pauses_unknown,omitempty"`
	Verdicts      []Verdict `json:"verdicts"`
	Claims        []Claim   `json:"claims"`
	// Note is what a reader must know of the numbers; Disturbed names the runs, or the section, during which
	// others used the machine.
	Note string `json:"note,omitempty"`
	// Gaps are what the report lacks, and why; also part of Note.
	Gaps      []string `json:"gaps,omitempty"`
	Disturbed []string `json:"disturbed,omitempty"`
	// Rounds of RunSeconds are what cases took at least; RunSeconds is 0 for a section with runs of its own.
	Rounds     int     `json:"rounds,omitempty"`
	RunSeconds float64 `json:"run_seconds,omitempty"`
	// Builds measured the section: several, of the same sources, if a build went on with runs of another one.
	Builds []string `json:"builds,omitempty"`
	// Command repeats the section.
	Command string `json:"command,omitempty"`
	// Host is where a section of a page of claims was measured, all of it.
	Host *Host `json:"host,omitempty"`
	// OfModel: its claims are of a model of Weir's own, if they have another source than all other claims.
	OfModel bool `json:"of_model,omitempty"`
	// WhollyDisturbed: other processes used the machine during a section whose runs are not watched one by one.
	WhollyDisturbed bool `json:"wholly_disturbed,omitempty"`
}

// report returns the section's part of its report.
func (s Section) report() Report { return Report{Verdicts: s.Verdicts, Claims: s.Claims} }

// missing returns why a report is missing or incomplete.
func (s Section) missing() string {
	if s.Skipped != "" {
		return "left out: " + s.Skipped
	}
	return s.Failure
}

// Missed returns the verdicts on missed targets.
func (s Section) Missed() []Verdict { return s.report().Missed() }

// Minutes returns the duration in minutes.
func (s Section) Minutes() float64 { return s.TookSeconds / 60 }

// Tallies are the numbers of claims by judgement.
func (s Section) Tallies() []tally { return page{Report: s.report()}.Tallies() }

// TargetTallies are the numbers of targets by verdict; nil without targets.
func (s Section) TargetTallies() []tally {
	if len(s.Verdicts) == 0 {
		return nil
	}
	return page{Report: s.report()}.TargetTallies()
}

// Minutes returns the duration in minutes.
func (i Index) Minutes() float64 { return i.TookSeconds / 60 }

// Facts returns the lines of provenance.
func (i Index) Facts() []fact { return i.facts() }

// AnyMissed reports whether a target was missed.
func (i Index) AnyMissed() bool {
	for _, s := range i.Sections {
		if len(s.Missed()) > 0 {
			return true
		}
	}
	return false
}

// AnyClaims reports whether there are claims.
func (i Index) AnyClaims() bool {
	for _, s := range i.Sections {
		if len(s.Claims) > 0 {
			return true
		}
	}
	return false
}

// WriteHTML writes the page. It loads nothing and leads only to its sections' files.
func (i Index) WriteHTML(w io.Writer) error {
	parsed, err := template.New("index").
		Funcs(template.FuncMap{"class": func(j Judgement) string { return class(string(j)) }}).
		Parse(indexTemplate)
	if err != nil {
		return fmt.Errorf("parse the index's template: %w", err)
	}
	err = parsed.Execute(w, struct {
		Index
		Style template.CSS
	}{i, template.CSS(pageStyle)}) // it comes with the program
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

// WriteText prints an index for a terminal, with where its page is, or what is left if there is none yet.
func (i Index) WriteText(w io.Writer, path string) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "REPORT\tRUNS\tTOOK\tTARGETS\tCLAIMS\tFAILED")
	for _, s := range i.Sections {
		fmt.Fprintf(tab, "%s\t%d\t%.0f s\t%s\t%s\t%s\n", s.Name, s.Runs, s.TookSeconds, tallied(s.TargetTallies()), tallied(s.Tallies()),
			strings.ReplaceAll(s.missing(), "\n", "; "))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	text := "All of it: " + path
	if len(i.Left) > 0 {
		text = "The time is up. Left for the next run:\n  " + strings.Join(i.Left, "\n  ")
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text)
	return err
}
