package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	labcli "github.com/weir-project/weir/internal/lab/cli"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/must"
)

// Parts of pages are made from results that are kept beside them: docs/measurements/results/NAME.json is what a
// command printed with -o json, less what only its report needs. figures.tmpl there defines the parts; a page has one
// between `<!-- figures: from PART -->` and `<!-- figures: end -->`. Parts that begin with _ are for others.

var (
	resultsDir = filepath.Join(treeRoot, "docs/measurements/results")
	madePart   = regexp.MustCompile(`(?s)(<!-- figures: from ([\w-]+) -->\n).*?(\n<!-- figures: end -->)`)
	onlyFlag   = regexp.MustCompile(` --only ([^'].*?)( --|$)`)
	// eveningFlag says where and for how long a part of a night was measured, on which no figure depends.
	eveningFlag = regexp.MustCompile(` --(dir|for) \S+`)
	commitHash  = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
	keptKeys    = []string{
		"format", "title", "note", "command", "started_at", "took_seconds", "seed", "repeat", "environment", "runs", "repeated_runs", "paused_runs",
		"disturbed_runs", "verdicts", "claims", "quantities", "suite", "duration_s", "warmup_s", "results",
	}
)

// result is a kept result.
type result struct {
	report.Report
	Results []ratioOf `json:"results"`
}

// ratioOf are the ratios of a case.
type ratioOf struct {
	Group  string  `json:"group"`
	Case   string  `json:"case"`
	Peer   string  `json:"peer"`
	Ratios []ratio `json:"ratios"`
}

// ratio is the median of a ratio to another peer, with its interval of 95 %.
type ratio struct {
	Over   string   `json:"over"`
	Count  int      `json:"count"`
	Median *float64 `json:"median"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
}

// trimmed returns a result without tables, plots and details of cases: one line for each element of a list.
func trimmed(data []byte) (string, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return "", err
	}
	var cases []ratioOf
	if details := whole["results"]; details != nil {
		if err := json.Unmarshal(details, &cases); err != nil {
			return "", err
		}
	}
	var err error
	cases = slices.DeleteFunc(cases, func(r ratioOf) bool { return len(r.Ratios) == 0 })
	if whole["results"], err = json.Marshal(cases); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, key := range keptKeys {
		value, ok := whole[key]
		if !ok || key == "results" && len(cases) == 0 {
			continue
		}
		fmt.Fprintf(&b, ",\n%q: ", key)
		list, isList := []json.RawMessage{value}, bytes.HasPrefix(bytes.TrimSpace(value), []byte("["))
		if isList {
			if err := json.Unmarshal(value, &list); err != nil {
				return "", err
			}
			b.WriteString("[\n")
		}
		for i, one := range list {
			var line bytes.Buffer
			if err := json.Compact(&line, one); err != nil {
				return "", err
			}
			b.WriteString(line.String())
			if i < len(list)-1 {
				b.WriteString(",\n")
			}
		}
		if isList {
			b.WriteString("\n]")
		}
	}
	return "{\n" + strings.TrimPrefix(b.String(), ",\n") + "\n}\n", nil
}

// results are all kept results, by the name of their file.
type results map[string]result

func readResults(t *testing.T) results {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(resultsDir, "*.json"))
	must.Succeed(t, err)
	all := results{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		var one result
		must.Succeed(t, json.Unmarshal(data, &one))
		if !commitHash.MatchString(one.Environment.Weir) {
			t.Errorf("%s is of %q, which is no commit", path, one.Environment.Weir)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = one
	}
	return all
}

func (r results) find(file string) (result, error) {
	found, ok := r[file]
	if !ok {
		return found, fmt.Errorf("%s.json is not kept in %s", file, resultsDir)
	}
	return found, nil
}

// quantities returns those whose case and name match, one at least.
func (r results) quantities(file, of, name string) ([]report.Quantity, error) {
	from, err := r.find(file)
	if err != nil {
		return nil, err
	}
	inCase, named := regexp.MustCompile("^(?:"+of+")$"), regexp.MustCompile("^(?:"+name+")$")
	list := slices.DeleteFunc(slices.Clone(from.Quantities), func(q report.Quantity) bool {
		return !inCase.MatchString(q.Case) || !named.MatchString(q.Name)
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("%s.json has no %q of %q", file, name, of)
	}
	return list, nil
}

// ratio returns that of a peer to another in a case.
func (r results) ratio(file, of, peer, over string) (ratio, error) {
	from, err := r.find(file)
	if err != nil {
		return ratio{}, err
	}
	for _, one := range from.Results {
		for _, q := range one.Ratios {
			if one.Group+": "+one.Case == of && one.Peer == peer && q.Over == over && q.Median != nil {
				return q, nil
			}
		}
	}
	return ratio{}, fmt.Errorf("%s.json has no ratio of %s to %s in %q", file, peer, over, of)
}

func (r results) verdict(file, target string) (report.Verdict, error) {
	from, err := r.find(file)
	if err != nil {
		return report.Verdict{}, err
	}
	for _, v := range from.Verdicts {
		if v.Target == target {
			return v, nil
		}
	}
	return report.Verdict{}, fmt.Errorf("%s.json has no target %q", file, target)
}

// claims returns those whose place in the paper matches and that begin with a text, one at least.
func (r results) claims(file, where, says string) ([]report.Claim, error) {
	from, err := r.find(file)
	if err != nil {
		return nil, err
	}
	place := regexp.MustCompile("^(?:" + where + ")$")
	list := slices.DeleteFunc(slices.Clone(from.Claims), func(c report.Claim) bool {
		return !place.MatchString(c.Where) || !strings.HasPrefix(c.Says, says)
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("no claim of %s begins with %q in %q", file, says, where)
	}
	return list, nil
}

// judgements says how many claims have which judgement, and where the paper has those that do not hold, without the link if it is the
// same for all.
func judgements(claims []report.Claim) string {
	var said []string
	_, link, _ := strings.Cut(claims[0].Where, ", ")
	if slices.ContainsFunc(claims, func(c report.Claim) bool { return !strings.HasSuffix(c.Where, ", "+link) }) {
		link = ""
	}
	for _, judgement := range report.Judgements() {
		places, count := []string{}, map[string]int{}
		n := 0
		for _, c := range claims {
			if c.Judgement != judgement {
				continue
			}
			n++
			place := strings.TrimSuffix(c.Where, ", "+link)
			if count[place]++; count[place] == 1 {
				places = append(places, place)
			}
		}
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", n, judgement)
		if !slices.Contains([]report.Judgement{report.Reproduced, report.Exceeded, report.NotMeasured}, judgement) {
			for i, place := range places {
				if count[place] > 1 {
					places[i] = fmt.Sprintf("%s: %d", place, count[place])
				}
			}
			text += " (" + strings.Join(places, "; ") + ")"
		}
		said = append(said, text)
	}
	return strings.Join(said, ", ")
}

// relativeErrors returns those of all values of the claims whose ideal is known.
func relativeErrors(claims []report.Claim) (all []float64) {
	for _, c := range claims {
		for _, v := range c.Values {
			if v.Ideal != nil && v.Measured != nil {
				all = append(all, math.Abs(*v.Measured / *v.Ideal - 1))
			}
		}
	}
	return all
}

// paused says in how many of the runs that count a processor stood still, and how often others used the machine; "" for none.
func (r results) paused(file string) (string, error) {
	from, err := r.find(file)
	var said []string
	if from.PausedRuns > 0 {
		said = append(said, fmt.Sprintf("a processor stood still in %d of %d runs", from.PausedRuns, from.Runs))
	}
	disturbed := map[string]bool{} // by run: older builds name each attempt
	for _, one := range from.DisturbedRuns {
		run, _, _ := strings.Cut(one, ": others took ")
		disturbed[run] = true
	}
	if len(disturbed) > 0 {
		said = append(said, fmt.Sprintf("others used the machine in %d of %d runs", len(disturbed), from.Runs))
	}
	if err != nil || said == nil {
		return "", err
	}
	return " (" + strings.Join(said, "; ") + ")", nil
}

func valuesOf(list []report.Quantity) (all []float64) {
	for _, q := range list {
		all = append(all, q.Values...)
	}
	return all
}

func mediansOf(list []report.Quantity) (all []float64) {
	for _, q := range list {
		all = append(all, medianOf(q.Values))
	}
	return all
}

func medianOf(values []float64) float64 { return measure.Quantile(values, 0.5) }

// excess returns by how much the median of each quantity exceeds the one of base that has the same group.
func excess(base, list []report.Quantity) (all []float64, err error) {
	group := func(q report.Quantity) string { name, _, _ := strings.Cut(q.Case, ":"); return name }
	for _, q := range list {
		i := slices.IndexFunc(base, func(b report.Quantity) bool { return group(b) == group(q) })
		if i < 0 {
			return nil, fmt.Errorf("there is nothing to compare %q with", q.Case)
		}
		all = append(all, medianOf(q.Values)-medianOf(base[i].Values))
	}
	return all, nil
}

// excesses returns by how much each value exceeds the median of one base.
func excesses(base, list []report.Quantity) (all []float64) {
	for _, value := range valuesOf(list) {
		all = append(all, value-medianOf(valuesOf(base)))
	}
	return all
}

func above(limit float64, values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= limit })
}

func atMost(limit float64, values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v > limit })
}

// functions are those of figures.tmpl. They fail where a page does not name the build of a figure, and note in used from which
// results figures are.
func functions(r results, page string, used map[string]bool) template.FuncMap {
	number := func(format string, scale, value float64) string { return fmt.Sprintf(format, value*scale) }
	note := func(file string) string { used[file] = true; return file }
	return template.FuncMap{
		"quantities": func(file, of, name string) ([]report.Quantity, error) { return r.quantities(note(file), of, name) },
		// anyQuantities may be none: of changes that never settled.
		"anyQuantities": func(file, of, name string) []report.Quantity {
			list, err := r.quantities(note(file), of, name)
			if err != nil {
				return nil
			}
			return list
		},
		"ratio":   func(file, of, peer, over string) (ratio, error) { return r.ratio(note(file), of, peer, over) },
		"verdict": func(file, target string) (report.Verdict, error) { return r.verdict(note(file), target) },
		"claims":  func(file, where, says string) ([]report.Claim, error) { return r.claims(note(file), where, says) },
		"paused":  r.paused, "judgements": judgements, "relativeErrors": relativeErrors,
		"values": valuesOf, "medians": mediansOf, "excess": excess, "excesses": excesses, "above": above, "atMost": atMost,
		"median": medianOf, "lowest": slices.Min[[]float64], "highest": slices.Max[[]float64],
		"number": number,
		"minus":  func(a, b int) int { return a - b },
		// bold marks what exceeds a limit.
		"bold": func(limit float64, format string, scale, value float64) string {
			text := number(format, scale, value)
			if value > limit {
				text = "**" + text + "**"
			}
			return text
		},
		// judged is a median with the worst round, bold where that misses a limit: a target's of bench, or a number, of which a
		// negative one is the least.
		"judged": func(limit any, format string, scale float64, values []float64) (string, error) {
			bound, isNumber := limit.(float64)
			if !isNumber {
				var err error
				if _, bound, err = bench.Limit(fmt.Sprint(limit)); err != nil {
					return "", err
				}
			}
			if len(values) == 0 {
				return "", fmt.Errorf("nothing to judge by %v", limit)
			}
			text, worst, missed := number(format, scale, medianOf(values)), slices.Max(values), slices.Max(values) > bound
			if bound < 0 {
				worst, missed = slices.Min(values), slices.Min(values) < -bound
			}
			if len(values) > 1 {
				text += " (" + number(format, scale, worst) + ")"
			}
			if missed {
				text = "**" + text + "**"
			}
			return text, nil
		},
		"limit": func(target string) (float64, error) {
			_, bound, err := bench.Limit(target)
			return bound, err
		},
		"aim": func(target string) (string, error) {
			text, _, err := bench.Limit(target)
			return text, err
		},
		// settled says how many of all changes were followed in time, and the median, to which those count that never were.
		"settled": func(target string, changes []float64, all int) (string, error) {
			_, bound, err := bench.Limit(target)
			if err != nil {
				return "", err
			}
			const forever = 1e12 // medians of infinite values are not a number
			never := all - len(changes)
			for range never {
				changes = append(changes, forever)
			}
			median := "not before the next change"
			if m := medianOf(changes); m < forever/10 {
				median = number("%.0f", 1, m) + " ms"
			}
			text := fmt.Sprintf("%d of %d in time; median %s", len(atMost(bound, changes)), all, median)
			if never > 0 {
				text += fmt.Sprintf("; %d not before the next change", never)
			}
			return text, nil
		},
		"span": func(format string, scale float64, values []float64) string {
			return number(format, scale, slices.Min(values)) + " to " + number(format, scale, slices.Max(values))
		},
		// spread is a median with its lowest and highest round.
		"spread": func(format string, scale float64, list []report.Quantity) string {
			values := valuesOf(list)
			return fmt.Sprintf("%s (%s to %s)", number(format, scale, medianOf(values)), number(format, scale, slices.Min(values)), number(format, scale, slices.Max(values)))
		},
		"aboveIdeal": func(v report.Value) (float64, error) {
			if v.Measured == nil || v.Ideal == nil {
				return 0, fmt.Errorf("%s has no ideal, or was not measured", v.Name)
			}
			return *v.Measured - *v.Ideal, nil
		},
		// value is a claim's with its lowest and highest round.
		"value": func(format string, scale float64, v report.Value) (string, error) {
			if v.Measured == nil || v.Low == nil || v.High == nil {
				return "", fmt.Errorf("%s was not measured in rounds", v.Name)
			}
			return fmt.Sprintf("%s (%s to %s)", number(format, scale, *v.Measured), number(format, scale, *v.Low), number(format, scale, *v.High)), nil
		},
		// interval is the median of a ratio with its interval.
		"interval": func(format string, scale float64, r ratio) string {
			text := number(format, scale, *r.Median)
			if r.Low != nil && r.High != nil {
				text += " (" + number(format, scale, *r.Low) + " to " + number(format, scale, *r.High) + ")"
			}
			return text
		},
		"list": func(args ...string) []string { return args },
		"command": func(file string) (string, error) {
			from, err := r.find(file)
			shown := eveningFlag.ReplaceAllString(strings.NewReplacer(" --no-verdict", "", " -o json", "").Replace(from.Command), "")
			return onlyFlag.ReplaceAllString(shown, " --only '$1'$2"), err
		},
		"build": func(file string) (string, error) { from, err := r.find(file); return from.Environment.Weir, err },
		// given is a definition: an aim, a rate, a tolerance.
		"given": func(text string) string { return text },
		// older is a figure of a build that the page names, whose result is not kept.
		"older": func(build, text string) (string, error) {
			if !commitHash.MatchString(build) || !strings.Contains(page, "`"+build+"`") {
				return "", fmt.Errorf("the page does not name the build %q of %q", build, text)
			}
			return text, nil
		},
		"weir": func(args ...string) (string, error) { return runLab(args) },
	}
}

// runLab returns what a computing command prints, as a block of code.
func runLab(args []string) (string, error) {
	root := labcli.NewRoot("weir")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	var b strings.Builder
	for line := range strings.Lines("$ weir " + strings.Join(args, " ") + "\n" + out.String()) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String(), err
}

// literalFigures returns what a template has in text, or prints as a constant, that is a figure. A constant number is one:
// its unit may follow.
func literalFigures(t *template.Template) (found []string) {
	note := func(text string) {
		if figure.MatchString(text) {
			found = append(found, text)
		}
	}
	noteConstants := func(pipe *parse.PipeNode) {
		if pipe == nil { // of a template without an argument
			return
		}
		for _, text := range constants(pipe) {
			if _, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
				found = append(found, text)
			}
			note(text)
		}
	}
	var walk func(n parse.Node)
	branch := func(n *parse.BranchNode) {
		noteConstants(n.Pipe)
		walk(n.List)
		if n.ElseList != nil {
			walk(n.ElseList)
		}
	}
	walk = func(n parse.Node) {
		switch n := n.(type) {
		case *parse.TextNode:
			note(string(n.Text))
		case *parse.ActionNode:
			noteConstants(n.Pipe)
		case *parse.TemplateNode:
			noteConstants(n.Pipe)
		case *parse.ListNode:
			for _, one := range n.Nodes {
				walk(one)
			}
		case *parse.RangeNode:
			branch(&n.BranchNode)
		case *parse.WithNode:
			branch(&n.BranchNode)
		case *parse.IfNode:
			branch(&n.BranchNode)
		}
	}
	for _, one := range t.Templates() {
		walk(one.Root)
	}
	return found
}

// constants returns the strings and numbers that an action may print as they are: its own, those of functions that format and of
// variables. Those of other functions are names, formats, and what given and older vouch for.
func constants(pipe *parse.PipeNode) (found []string) {
	for _, command := range pipe.Cmds {
		name, named := command.Args[0].(*parse.IdentifierNode)
		if named && !slices.Contains([]string{"print", "println", "printf", "html", "js", "urlquery", "or", "and"}, name.Ident) {
			continue
		}
		for _, arg := range command.Args {
			switch arg := arg.(type) {
			case *parse.StringNode:
				found = append(found, arg.Text)
			case *parse.NumberNode:
				found = append(found, arg.Text)
			case *parse.PipeNode:
				found = append(found, constants(arg)...)
			}
		}
	}
	return found
}

// filled returns a page with its parts made anew, and their names.
func filled(r results, text, figures string) (page string, parts []string, err error) {
	used := map[string]bool{}
	made, err := template.New("figures").Funcs(functions(r, text, used)).Parse(figures)
	if err != nil {
		return "", nil, err
	}
	if literal := literalFigures(made); len(literal) > 0 {
		return "", nil, fmt.Errorf("these figures come from nothing: %q", literal)
	}
	page = madePart.ReplaceAllStringFunc(text, func(old string) string {
		match := madePart.FindStringSubmatch(old)
		var b bytes.Buffer
		if failed := made.ExecuteTemplate(&b, match[2], nil); failed != nil && err == nil {
			err = failed
		}
		parts = append(parts, match[2])
		return match[1] + "\n" + strings.Trim(b.String(), "\n") + "\n" + match[3]
	})
	for file := range used {
		if build := r[file].Environment.Weir; err == nil && !strings.Contains(page, "`"+build+"`") {
			err = fmt.Errorf("no part names the build %s of %s.json", build, file)
		}
	}
	return page, parts, err
}

// TestResults: parts of pages that come from kept results are what these make, and every part is on a page.
// Renew both with: go test ./test/docs -run TestResults -update
func TestResults(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(resultsDir, "*.json"))
	must.Succeed(t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		kept, err := trimmed(data)
		must.Succeed(t, err)
		golden.Compare(t, path, kept)
	}
	r := readResults(t)
	figures, err := os.ReadFile(filepath.Join(resultsDir, "figures.tmpl"))
	must.Succeed(t, err)
	var used []string
	for path, text := range pages(t) {
		page, parts, err := filled(r, text, string(figures))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if used = append(used, parts...); len(parts) > 0 {
			golden.Compare(t, path, page)
		}
	}
	for _, match := range regexp.MustCompile(`{{-? ?define "([\w-]+)"`).FindAllStringSubmatch(string(figures), -1) {
		if helper := strings.HasPrefix(match[1], "_"); !helper && !slices.Contains(used, match[1]) {
			t.Errorf("no page has the part %s", match[1])
		}
	}
}

// TestFilled: a part follows its result; one without a result, a figure that comes from nothing, and one of a build that
// the page does not name are refused.
func TestFilled(t *testing.T) {
	r := results{"a": {Report: report.Report{
		Provenance: report.Provenance{Runs: 4, RepeatedRuns: 2, PausedRuns: 1, DisturbedRuns: []string{
			"x: idle, round 1: others took 9 % of the processors", "x: idle, round 1: others took 7 % of the processors",
		}},
		Verdicts: []report.Verdict{{Target: "t", Limit: "at most 1 %", Measured: "2 %", Where: "here"}, {Target: "u", Met: true}},
		Quantities: []report.Quantity{
			{Case: "x: idle", Name: "n", Values: []float64{1, 2, 30}},
			{Case: "x: busy", Name: "n", Values: []float64{7, 7.5}},
		},
		Claims: []report.Claim{
			{Where: "w", Says: "It is two.", Judgement: report.Reproduced, Values: []report.Value{{Name: "v", Ideal: new(2.0), Measured: new(3.0), Low: new(1.0), High: new(4.0)}}},
			{Where: "w, x", Says: "It is so.", Judgement: report.NotMeasured, Values: []report.Value{{Name: "v", Ideal: new(2.0)}}},
		},
	}}, "b": {Report: report.Report{Claims: []report.Claim{
		{Where: "figure 1, fast", Judgement: report.NotReproduced}, {Where: "figure 2, fast", Judgement: report.ClaimUndecided}, {Where: "figure 1, fast", Judgement: report.NotReproduced},
		{Where: "figure 1, slow", Judgement: report.ClaimUndecided},
	}}}}
	for file, one := range r {
		one.Environment.Weir = "0123abc"
		r[file] = one
	}
	const page = "old `0123abc`\n<!-- figures: from p -->\n\nold\n\n<!-- figures: end -->\nrest\n"
	for figures, want := range map[string]string{
		`{{define "p"}}{{quantities "a" "x: idle" "n" | spread "%.1f" 1}} ms{{end}}`:                              "2.0 (1.0 to 30.0) ms",
		`{{define "p"}}{{paused "a"}}{{end}}`:                                                                     " (a processor stood still in 1 of 4 runs; others used the machine in 1 of 4 runs)",
		`{{define "p"}}{{excess (quantities "a" ".*idle" "n") (quantities "a" ".*busy" "n")}}{{end}}`:             "[5.25]",
		`{{define "p"}}{{quantities "a" "x: .*" "n" | values | above 7 | len}}{{end}}`:                            "2",
		`{{define "p"}}{{bold 1 "%.0f" 10 0.5}}, {{bold 1 "%.0f" 1 2.0}}{{end}}`:                                  "5, **2**",
		`{{define "p"}}{{older "0123abc" "3 ms"}}, {{given "4 ms"}}{{end}}`:                                       "3 ms, 4 ms",
		`{{define "p"}}{{quantities "b" "x: idle" "n"}}{{end}}`:                                                   "",
		`{{define "p"}}{{quantities "a" "idle" "n"}}{{end}}`:                                                      "",
		`{{define "p"}}{{(verdict "a" "t").Measured}}{{end}}`:                                                     "2 %",
		`{{define "p"}}{{verdict "a" "v"}}{{end}}`:                                                                "",
		`{{define "p"}}{{ratio "a" "x: idle" "p" "q" | interval "%.0f" 1}}{{end}}`:                                "",
		`{{define "p"}}{{older "4567def" "3 ms"}}{{end}}`:                                                         "",
		`{{define "p"}}{{if true}}3 ms{{end}}{{end}}`:                                                             "",
		`{{define "p"}}{{if false}}x{{else}}3 ms{{end}}{{end}}`:                                                   "",
		`{{define "p"}}{{with ""}}x{{else with ""}}y{{else}}3 ms{{end}}{{end}}`:                                   "",
		`{{define "p"}}{{"3 ms"}}{{end}}`:                                                                         "",
		`{{define "p"}}{{$text := "3 ms"}}{{$text}}{{end}}`:                                                       "",
		`{{define "p"}}{{printf "%s" (print "3 ms")}}{{end}}`:                                                     "",
		`{{define "p"}}{{"3 ms" | printf "in %s"}}{{end}}`:                                                        "",
		`{{define "p"}}{{with "3 ms"}}{{.}}{{end}}{{end}}`:                                                        "",
		`{{define "p"}}{{if $x := "3 ms"}}{{$x}}{{end}}{{end}}`:                                                   "",
		`{{define "q"}}{{.}}{{end}}{{define "p"}}{{template "q" "3 ms"}}{{end}}`:                                  "",
		`{{define "p"}}{{3}} ms{{end}}`:                                                                           "",
		`{{define "p"}}{{"3 "}}ms{{end}}`:                                                                         "",
		`{{define "p"}}{{quantities "a" "x: busy" "n" | values | judged 7.4 "%.1f" 1}}{{end}}`:                    "**7.2 (7.5)**",
		`{{define "p"}}{{quantities "a" "x: busy" "n" | values | judged -7.1 "%.1f" 1}}{{end}}`:                   "**7.2 (7.0)**",
		`{{define "p"}}{{quantities "a" "x: busy" "n" | values | judged -7.0 "%.1f" 1}}{{end}}`:                   "7.2 (7.0)",
		`{{define "p"}}{{quantities "a" "x: busy" "n" | values | judged "share error" "%.1f" 1}}{{end}}`:          "**7.2 (7.5)**",
		`{{define "p"}}{{quantities "a" "x: busy" "n" | values | judged "no target" "%.1f" 1}}{{end}}`:            "",
		`{{define "p"}}{{aim "share error"}}{{end}}`:                                                              "at most 1 %",
		`{{define "p"}}{{limit "share error"}}{{end}}`:                                                            "0.01",
		`{{define "p"}}{{aim "no target"}}{{end}}`:                                                                "",
		`{{define "p"}}{{excesses (quantities "a" ".*idle" "n") (quantities "a" ".*busy" "n")}}{{end}}`:           "[5 5.5]",
		`{{define "p"}}{{settled "time to the new allocation" (quantities "a" "x: idle" "n" | values) 4}}{{end}}`: "3 of 4 in time; median 16 ms; 1 not before the next change",
		`{{define "p"}}{{settled "time to the new allocation" (quantities "a" "x: busy" "n" | values) 5}}{{end}}`: "2 of 5 in time; median not before the next change; 3 not before the next change",
		`{{define "p"}}{{with index (claims "a" "w" "It") 0}}{{.Where}}{{range .Values}}: {{number "%.0f" 1 .Ideal}}, {{value "%.0f" 10 .}}{{end}}{{end}}{{end}}`: "w: 2, 30 (10 to 40)",
		`{{define "p"}}{{claims "a" "w.*" "" | judgements}}; {{claims "a" "w.*" "It" | relativeErrors}}{{end}}`:                                                   "1 reproduced, 1 not measured; [0.5]",
		`{{define "p"}}{{claims "b" ".*fast" "" | judgements}}{{end}}`:                                                                                            "2 not reproduced (figure 1: 2), 1 undecided (figure 2)",
		`{{define "p"}}{{claims "b" "figure 1.*" "" | judgements}}{{end}}`:                                                                                        "2 not reproduced (figure 1, fast: 2), 1 undecided (figure 1, slow)",
		`{{define "p"}}{{aboveIdeal (index (index (claims "a" "w" "It") 0).Values 0)}}{{end}}`:                                                                    "1",
		`{{define "p"}}{{aboveIdeal (index (index (claims "a" "w, x" "It") 0).Values 0)}}{{end}}`:                                                                 "",
		`{{define "p"}}{{claims "a" "w" "It is so"}}{{end}}`:                                                                                                      "",
		`{{define "p"}}{{claims "b" "w" "It"}}{{end}}`:                                                                                                            "",
		`{{define "p"}}{{value "%.0f" 1 (index (index (claims "a" "w, x" "It") 0).Values 0)}}{{end}}`:                                                             "",
		`{{define "q"}}{{end}}`: "",
	} {
		got, parts, err := filled(r, page, figures)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: no error, but %q", figures, got)
		case want != "" && (err != nil || got != strings.Replace(page, "\nold\n", "\n"+want+"\n", 1) || len(parts) != 1):
			t.Errorf("%s: %v: %q", figures, err, got)
		}
	}
	built := r["a"]
	built.Environment.Weir = "9876fed"
	r["a"] = built
	if _, _, err := filled(r, page, `{{define "p"}}{{quantities "a" "x: idle" "n" | values}}{{end}}`); err == nil {
		t.Error("a build that the page does not name is accepted")
	}
	if _, _, err := filled(r, page, `{{define "p"}}{{quantities "a" "x: idle" "n" | values}}, `+"`{{build \"a\"}}`{{end}}"); err != nil {
		t.Error(err)
	}
	r["a"] = result{Report: report.Report{Provenance: report.Provenance{Command: "weir bench s --dir /n --only a|b c --for 1h --no-verdict -o json"}}}
	if got, _, err := filled(r, page, `{{define "p"}}{{command "a"}}{{end}}`); err != nil || !strings.Contains(got, "\nweir bench s --only 'a|b c'\n") {
		t.Errorf("%v: %q", err, got)
	}
	const whole = `{"format": 1, "verdicts": null, "plots": [1], "quantities": [{"case": "c"}, {"case": "d"}], "results": [{"peer": "a", "shares": []}, {"peer": "b", "ratios": [{"over": "n", "count": 1, "median": 2, "low": null, "high": null, "x": 1}]}]}`
	const want = "{\n\"format\": 1,\n\"verdicts\": null,\n\"quantities\": [\n{\"case\":\"c\"},\n{\"case\":\"d\"}\n],\n\"results\": [\n" +
		"{\"group\":\"\",\"case\":\"\",\"peer\":\"b\",\"ratios\":[{\"over\":\"n\",\"count\":1,\"median\":2,\"low\":null,\"high\":null}]}\n]\n}\n"
	without, err := trimmed([]byte(`{"format": 1, "results": [{"peer": "a"}]}`))
	must.Succeed(t, err)
	if again, err := trimmed([]byte(without)); err != nil || again != without || without != "{\n\"format\": 1\n}\n" {
		t.Errorf("%v: kept: %s\nagain: %s", err, without, again)
	}
	once, err := trimmed([]byte(whole))
	must.Succeed(t, err)
	again, err := trimmed([]byte(once))
	if must.Succeed(t, err); once != want || again != once {
		t.Errorf("kept: %s\nagain: %s", once, again)
	}
}
