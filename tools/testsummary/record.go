package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// record is what one run or check of a suite came to.
type record struct {
	Suite    string
	Passed   int
	Failed   int
	Skipped  int
	Seconds  float64
	Skips    []item
	Failures []item
	// Checks are measurements that test/harness judged or skipped; Busy are those that
	// it skipped because the machine paused.
	Checks int
	Busy   []item
	// Long are tests, without their subtests, that took longTestSeconds or more.
	Long []timed
}

// timed is how long a test took, without waiting for its turn.
type timed struct {
	Package, Test string
	Seconds       float64
}

const (
	longTestSeconds = 5
	longListed      = 20
)

// busyPercent is the share of a suite's checks that may be skipped as the machine was busy.
const busyPercent = 3

// isJudged reports whether so few checks were skipped that the result counts.
func (r *record) isJudged() bool { return 100*len(r.Busy) <= busyPercent*r.Checks }

// judge counts an attribute of test/harness.
func (r *record) judge(e event) {
	if e.Key != "check" {
		return
	}
	r.Checks++
	if e.Value == "busy" {
		r.Busy = append(r.Busy, item{Package: e.Package, Test: e.Test})
	}
}

// item is a test, a package (no Test) or a whole suite (no Package) with
// something to say, and of a failure the end of what it printed.
type item struct{ Package, Test, Reason, Output string }

// outputLines is how much of a failure's output the report repeats. What was printed
// before it is far above, and cut where logs are.
const outputLines = 40

func lastLines(text string) string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return ""
	}
	lines := strings.SplitAfter(text+"\n", "\n")
	return strings.Join(lines[max(0, len(lines)-1-outputLines):], "")
}

func (r *record) skip(pkg, test, reason string) {
	r.Skipped++
	r.Skips = append(r.Skips, item{Package: pkg, Test: test, Reason: reason})
}

func (r *record) fail(pkg, test, reason, output string) {
	r.Failed++
	r.Failures = append(r.Failures, item{pkg, test, reason, lastLines(output)})
}

func checkRecord(suite, result, reason, output string) (record, error) {
	rec := record{Suite: suite}
	switch result {
	case "pass":
		rec.Passed = 1
	case "fail":
		rec.fail("", "", reason, output)
	case "skip":
		if reason == "" {
			return record{}, fmt.Errorf("skipping %s needs a -reason", suite)
		}
		rec.skip("", "", reason)
	default:
		return record{}, fmt.Errorf("result %q is not pass, fail or skip", result)
	}
	return rec, nil
}

func writeRecord(dir string, rec record) error {
	present, err := recordFiles(dir)
	if err != nil {
		return err
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", rec.Suite, err)
	}
	// Two suites may end at once: each takes a number that is free.
	for number := len(present); ; number++ {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%03d.json", number)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			_, err = file.Write(data)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return fmt.Errorf("writing the record of %s: %w", rec.Suite, err)
		}
		return nil
	}
}

func recordFiles(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing records in %s: %w", dir, err)
	}
	slices.Sort(paths)
	return paths, nil
}

// readRecords returns one record per suite, in the order they were first
// written.
func readRecords(dir string) ([]record, error) {
	paths, err := recordFiles(dir)
	if err != nil {
		return nil, err
	}
	var recs []record
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading record: %w", err)
		}
		var rec record
		if err := json.Unmarshal(data, &rec); err != nil {
			return nil, fmt.Errorf("reading record %s: %w", path, err)
		}
		i := slices.IndexFunc(recs, func(r record) bool { return r.Suite == rec.Suite })
		if i < 0 {
			recs = append(recs, rec)
			continue
		}
		recs[i].Passed += rec.Passed
		recs[i].Failed += rec.Failed
		recs[i].Skipped += rec.Skipped
		recs[i].Seconds += rec.Seconds
		recs[i].Skips = append(recs[i].Skips, rec.Skips...)
		recs[i].Failures = append(recs[i].Failures, rec.Failures...)
		recs[i].Long = append(recs[i].Long, rec.Long...)
		recs[i].Checks += rec.Checks
		recs[i].Busy = append(recs[i].Busy, rec.Busy...)
	}
	return recs, nil
}

// report prints the records; it fails if anything failed or nothing passed, or else with
// errBusy if a suite skipped too many checks.
func report(out io.Writer, recs []record) error {
	var passed, failed, skipped int
	fmt.Fprintf(out, "\n%-12s %8s %8s %8s %8s\n", "suite", "passed", "failed", "skipped", "time")
	for _, r := range recs {
		passed, failed, skipped = passed+r.Passed, failed+r.Failed, skipped+r.Skipped
		took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(out, "%-12s %8d %8d %8d %8s\n", r.Suite, r.Passed, r.Failed, r.Skipped, took)
	}
	reportLong(out, recs)
	items := func(title string, pick func(record) []item) {
		for _, r := range recs {
			for _, it := range pick(r) {
				if title != "" {
					fmt.Fprintf(out, "\n%s:\n", title)
					title = ""
				}
				fmt.Fprintf(out, "  %s\n", describe(r.Suite, it))
			}
		}
	}
	items("Skipped", func(r record) []item { return r.Skips })
	for _, r := range recs {
		for _, it := range r.Failures {
			if strings.TrimSpace(it.Output) != "" {
				fmt.Fprintf(out, "\n--- %s\n%s", describe(r.Suite, it), indent(it.Output))
			}
		}
	}
	items("Failed", func(r record) []item { return r.Failures })
	if passed+failed == 0 {
		fmt.Fprintf(out, "\nNothing ran, which is a failure.\n")
	}
	var busy error
	for _, r := range recs {
		if r.isJudged() {
			continue
		}
		busy = errBusy
		fmt.Fprintf(out, "\nNot judged: machine busy: %s skipped %d of %d checks, and may skip %d %%:\n", r.Suite, len(r.Busy), r.Checks, busyPercent)
		for _, it := range r.Busy {
			fmt.Fprintf(out, "  %s\n", describe(r.Suite, it))
		}
	}
	fmt.Fprintf(out, "\n%s\n", counts(passed, failed, skipped))
	if failed > 0 || passed == 0 {
		return errFailed
	}
	return busy
}

// reportLong prints the tests that took longest.
func reportLong(out io.Writer, recs []record) {
	var long []timed
	for _, r := range recs {
		long = append(long, r.Long...)
	}
	slices.SortStableFunc(long, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
	for i, one := range long[:min(len(long), longListed)] {
		if i == 0 {
			fmt.Fprintf(out, "\nLongest tests, in seconds:\n")
		}
		fmt.Fprintf(out, "  %6.1f %s %s\n", one.Seconds, one.Package, one.Test)
	}
}

// describe is "suite: package test: reason", without what is empty.
func describe(suite string, it item) string {
	text := suite + ":"
	for _, part := range []string{it.Package, it.Test} {
		if part != "" {
			text += " " + part
		}
	}
	if it.Reason == "" {
		return text
	}
	return strings.TrimSuffix(text, ":") + ": " + it.Reason
}

func counts(passed, failed, skipped int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}
