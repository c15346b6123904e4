// Command testsummary turns test runs into one report.
//
//	go test -json ./... | testsummary run -suite unit -dir D
//	testsummary check -suite lint -dir D -result pass|fail|skip [-reason R] [-log FILE]
//	testsummary report -dir D
//
// run and check each leave a record in directory D; report prints them all,
// says which tests took longest, what was skipped and why, repeats the end of what each failure
// printed, and ends with one line of the form "N passed, N failed, N skipped".
//
// What counts as one test: a test without subtests, a subtest, a check. A test
// with subtests counts by itself only when it failed or was skipped and none
// of its subtests says so. A package that does not build, exits early or
// panics outside a test is one failure. A run in which nothing ran has failed:
// a harness that runs nothing must not look green.
//
// Exit status: 1 if anything failed, 2 for wrong use, 3 if nothing failed but the machine was
// too busy to judge: test/harness skipped more than 3 % of the checks of a suite.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

var (
	// errFailed: something failed and has been reported in full.
	errFailed = errors.New("tests failed")
	// errBusy: nothing failed, and too much was skipped because the machine was busy.
	errBusy = errors.New("not judged: machine busy")
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case errors.Is(err, errBusy):
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want a command: run, check or report")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the records")
	suite := flags.String("suite", "", "name of the suite")
	result := flags.String("result", "", "pass, fail or skip")
	reason := flags.String("reason", "", "why it failed or was skipped")
	log := flags.String("log", "", "file with what it printed")
	took := flags.Duration("took", 0, "how long a check took")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" || (*suite == "" && args[0] != "report") {
		return errors.New("want -dir, and -suite except for report")
	}

	switch args[0] {
	case "run":
		start := time.Now()
		rec, err := collect(*suite, in, out)
		if err != nil {
			return err
		}
		rec.Seconds = time.Since(start).Seconds()
		return finish(*dir, rec)
	case "check":
		var output []byte
		if *log != "" {
			var err error
			if output, err = os.ReadFile(*log); err != nil {
				return err
			}
		}
		rec, err := checkRecord(*suite, *result, *reason, string(output))
		if err != nil {
			return err
		}
		rec.Seconds = took.Seconds()
		return finish(*dir, rec)
	case "report":
		recs, err := readRecords(*dir)
		if err != nil {
			return err
		}
		return report(out, recs)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func finish(dir string, rec record) error {
	if err := writeRecord(dir, rec); err != nil {
		return err
	}
	if rec.Failed > 0 {
		return errFailed
	}
	return nil
}
