package all

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/netmodes"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/must"
)

// TestOSKenPython: another Python in front of Debian's, without os-ken, hides none.
func TestOSKenPython(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	t.Setenv("PATH", dir)
	python, without := osKenPython(t.Context())
	if sdn.CheckOSKen(t.Context(), debianPython) == nil {
		if python != debianPython || without != "" {
			t.Errorf("got %q, left out: %q", python, without)
		}
	} else if python != "" || !strings.Contains(without, "apt-get install python3-os-ken") {
		t.Errorf("got %q, left out: %q", python, without)
	}
}

// TestPart: every section has its part of what is left, the last one all of it, and
// nobody has any when the time is up.
func TestPart(t *testing.T) {
	o := Options{Options: bench.Options{RateBPS: 100e6, Overload: 1.5, Containers: 50, RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1}}}
	todo := []section{{share: 1}, {share: 2}, {share: 3}}
	for _, test := range []struct {
		left time.Duration
		todo []section
		want time.Duration
	}{
		{6 * time.Minute, todo, time.Minute}, {5 * time.Minute, todo[1:], 2 * time.Minute}, {time.Minute, todo[2:], time.Minute},
		{-time.Second, todo, 0},
	} {
		if got := o.part(test.left, test.todo); math.Abs((got - test.want).Seconds()) > 1e-6 {
			t.Errorf("%d sections have %v left: the first has %v, want %v", len(test.todo), test.left, got, test.want)
		}
	}
	for _, one := range sections() {
		if needed, _ := o.estimatedTime(one); needed <= 0 || one.about == "" {
			t.Errorf("section %q takes %v and is about %q", one.name, needed, one.about)
		}
	}
	for _, name := range append(bench.SuiteNames(), netmodes.Suite, sdn.Suite, picasso.Suite) {
		if !slices.ContainsFunc(sections(), func(s section) bool { return s.name == name }) {
			t.Errorf("bench all leaves out %s", name)
		}
	}
}

// TestSectionFiles: a section's page and numbers are where the index says; one that
// fails is named with the reason.
func TestSectionFiles(t *testing.T) {
	options := Options{Dir: t.TempDir(), Options: bench.Options{RunOptions: measure.RunOptions{Progress: io.Discard}}}
	figures := sections()[0]
	made, err := figures.make(t.Context(), options)
	if err != nil || made.Failure != "" || len(made.Claims) != 10 {
		t.Fatalf("%v: %+v", err, made)
	}
	page, err := os.ReadFile(filepath.Join(options.Dir, made.Page))
	if err != nil || !strings.Contains(string(page), "Figure 3") {
		t.Errorf("the page: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(options.Dir, made.Result))
	if err != nil {
		t.Fatal(err)
	}
	var found report.Report
	if err := json.Unmarshal(text, &found); err != nil || len(found.Claims) != 10 {
		t.Errorf("%v: %d claims", err, len(found.Claims))
	}
	failing := section{name: "x", run: func(context.Context, Options) (report.Result, error) { return nil, errors.New("no root") }}
	if made, err = failing.make(t.Context(), options); err != nil || made.Failure != "no root" || made.Page != "" {
		t.Errorf("%v: %+v", err, made)
	}
	without := section{name: "x", run: runPicasso} // without Docker
	if made, err = without.make(t.Context(), options); err != nil || made.Failure != "" || !strings.Contains(made.Skipped, "--no-docker") {
		t.Errorf("%v: %+v", err, made)
	}
	odd := section{name: "x", run: func(context.Context, Options) (report.Result, error) {
		return report.Report{Claims: []report.Claim{{Values: []report.Value{{Name: "rate", Measured: report.Number(math.NaN())}}}}}, nil
	}}
	if made, err = odd.make(t.Context(), options); err != nil || !strings.Contains(made.Failure, "unsupported value: NaN") || len(made.Claims) != 0 {
		t.Errorf("a value that is no number: %v: %+v", err, made)
	}
	t.Setenv("PATH", options.Dir)
	must.Succeed(t, os.WriteFile(filepath.Join(options.Dir, "dockerd"), nil, 0o755))
	options.Docker, options.Publish, options.Repeat = true, true, LeastRounds
	if made, err = without.make(t.Context(), options); err != nil || !strings.Contains(made.Skipped, "nginx is not installed") {
		t.Errorf("a page of claims without nginx: %v: %+v", err, made)
	}
	options.Dir = "/nowhere"
	if _, err = figures.make(t.Context(), options); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

func TestAllRefusesNonsense(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Within: time.Second, Options: bench.Options{RunOptions: measure.RunOptions{Duration: time.Second}}}, "it takes 1m0s at least"},
		{Options{Within: time.Hour, Options: bench.Options{RunOptions: measure.RunOptions{Duration: time.Millisecond}}}, "1ms a run: it takes 50ms at least"},
	} {
		if _, err := Run(t.Context(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}
