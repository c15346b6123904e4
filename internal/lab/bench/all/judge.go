package all

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/llq"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/report"
)

// What was measured stays when only the rules of claims change: a kept section is then judged again by its result.

// sourceJudge is the part of sources that judges claims and makes the page. It measures nothing.
const sourceJudge = "judge"

// stored is a report that was read from its file.
type stored interface {
	report.Result
	// JudgeAgain judges its claims by the rules of this build.
	JudgeAgain()
}

// newStored returns what the result of a section is read into; nil if nothing in it is judged again: it has no claims, or the
// model of queues has solved for them what they are compared with.
func newStored(section string) stored {
	switch section {
	case bench.SuiteQCon, bench.SuiteCNTC:
		return &bench.Report{}
	case llq.Suite:
		return &llq.Report{}
	case netmodes.Suite:
		return &netmodes.Report{}
	case picasso.Suite:
		return &picasso.Report{}
	}
	return nil
}

// judgeAgain judges the claims of a kept section by the rules of this build, if those of another one judged them, and keeps the
// judgements. Of a section without claims only the conditions are noted, if its result is there.
func (o Options) judgeAgain(one section, found *kept, now report.Settings) error {
	hash := now.Source(sourceJudge)
	result, made := newStored(one.name), &found.Section
	if found.Settings.Source(sourceJudge) == hash {
		return nil
	}
	found.Settings = found.Settings.WithSource(sourceJudge, hash)
	if result == nil {
		if err := readConditions(o.Dir, made); err != nil {
			return nil //nolint:nilerr // the page only says less
		}
		return writeTo(o.Dir, keptName(one.name), jsonOf(found))
	}
	refuse := func(why error) error {
		return fmt.Errorf("judge %s by the rules of this build: %w: copy the whole folder of the night, or remove %s to measure it again", one.name, why, keptName(one.name))
	}
	page, path := one.name+".html", one.name+".json"
	text, err := os.ReadFile(filepath.Join(o.Dir, path))
	if err == nil {
		err = report.Parse(text, result)
	}
	switch base := result.Base(); {
	case err != nil:
	case len(base.Tables) == 0 || len(base.Claims) < len(made.Claims): // there are more if judging was interrupted
		err = fmt.Errorf("%s is not all of its result", path)
	case base.Runs != made.Runs || !one.fixed && base.Repeat != made.Rounds:
		err = fmt.Errorf("%s is of %d runs in %d rounds, the kept section of %d in %d", path, base.Runs, base.Repeat, made.Runs, made.Rounds)
	}
	if err != nil {
		return refuse(err)
	}
	result.JudgeAgain()
	base := result.Base()
	claims := slices.Clone(base.Claims)
	for _, was := range made.Claims {
		again := measure.Find(claims, was.IsSame)
		if again == nil {
			return refuse(fmt.Errorf("they have no claim %q (%s) any more", was.Says, was.Where))
		}
		again.Command = cmp.Or(again.Command, was.Command)
	}
	for i := range claims {
		claims[i].Command = cmp.Or(claims[i].Command, one.command(o.of(one), claims[i].Where))
	}
	made.Page, made.Result, made.Claims, made.Verdicts = page, path, claims, base.Verdicts
	setConditions(made, base.Provenance)
	if err := writeTo(o.Dir, page, base.WriteHTML); err != nil {
		return err
	}
	if err := writeTo(o.Dir, path, jsonOf(result)); err != nil {
		return err
	}
	return writeTo(o.Dir, keptName(one.name), jsonOf(found))
}

// setConditions notes what a section's containers were, and in how many of its runs, which count, a processor stood still.
func setConditions(made *report.Section, from report.Provenance) {
	made.PausedRuns, made.PausesUnknown, made.Containers = from.PausedRuns, from.PausesUnknown, from.Environment.Containers
}

// readConditions reads the conditions of a section from its result.
func readConditions(dir string, made *report.Section) error {
	text, err := os.ReadFile(filepath.Join(dir, made.Result))
	if err != nil {
		return err
	}
	var from report.Provenance
	if err := json.Unmarshal(text, &from); err != nil {
		return fmt.Errorf("read %s: %w", made.Result, err)
	}
	setConditions(made, from)
	return nil
}
