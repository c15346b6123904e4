package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/weir-project/weir/third_party/uplot"
)

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// page is what the template shows.
type page struct {
	Report
	Style         template.CSS
	Library, Draw template.JS
}

// Facts returns the lines of provenance.
func (p page) Facts() []fact { return p.facts() }

// tally is how often something came out.
type tally struct {
	Word  string
	Count int
}

// Class returns the word as a class of the style sheet.
func (t tally) Class() string { return class(t.Word) }

func class(word string) string { return strings.ReplaceAll(word, " ", "-") }

// Tallies returns the number of claims for each judgement that occurs.
func (p page) Tallies() []tally {
	var list []tally
	for _, judgement := range Judgements() {
		if count := p.Count(judgement); count > 0 {
			list = append(list, tally{string(judgement), count})
		}
	}
	return list
}

// TargetTallies returns the numbers of met, missed and undecided targets.
func (p page) TargetTallies() []tally {
	list := []tally{{Word: string(Met)}, {Word: string(Missed)}, {Word: string(Undecided)}}
	for _, verdict := range p.Verdicts {
		i := slices.IndexFunc(list, func(t tally) bool { return t.Word == verdict.Word() })
		list[i].Count++
	}
	return slices.DeleteFunc(list, func(t tally) bool { return t.Count == 0 && t.Word != string(Met) })
}

// WriteHTML writes the report as one page that loads nothing: the plotting
// library, the data and the style are in it.
func (r Report) WriteHTML(w io.Writer) error {
	parsed, err := template.New("report").
		Funcs(template.FuncMap{"class": func(j Judgement) string { return class(string(j)) }, "number": Text}).
		Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	// These come with the program and are none of the report's data, which the
	// template escapes.
	err = parsed.Execute(w, page{
		Report: r, Style: template.CSS(uplot.Style + "\n" + pageStyle),
		Library: template.JS(uplot.Script), Draw: template.JS(pageScript),
	})
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
