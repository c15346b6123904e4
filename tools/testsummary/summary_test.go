package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPlantedFailures runs the real go command on tests that pass, fail, are
// skipped, panic and do not build.
func TestPlantedFailures(t *testing.T) {
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = "testdata/planted"
	cmd.Env = append(os.Environ(), "GOFLAGS=-count=1")
	events, err := cmd.Output()
	if err == nil {
		t.Fatal("go test of the planted failures succeeded")
	}

	dir := t.TempDir()
	var progress, summary bytes.Buffer
	if err := run([]string{"run", "-suite", "unit", "-dir", dir}, bytes.NewReader(events), &progress); !errors.Is(err, errFailed) {
		t.Errorf("run: got %v, want %v", err, errFailed)
	}
	if err := run([]string{"report", "-dir", dir}, nil, &summary); !errors.Is(err, errFailed) {
		t.Errorf("report: got %v, want %v", err, errFailed)
	}
	for _, want := range []string{"planted failure", "planted panic", "cannot use \"planted build failure\""} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress does not show %q:\n%s", want, &progress)
		}
	}
	for _, want := range []string{
		"unit: planted TestSkip: planted skip\n",
		"unit: planted TestFail/bad\n",
		"unit: planted/panics TestPanic\n",
		"unit: planted/broken: does not build\n",
		"\n3 passed, 3 failed, 1 skipped\n",
		"--- unit: planted TestFail/bad\n", "planted failure", "planted panic", `cannot use "planted build failure"`,
	} {
		if !strings.Contains(summary.String(), want) {
			t.Errorf("summary lacks %q:\n%s", want, &summary)
		}
	}
}

func TestCollect(t *testing.T) {
	tests := []struct {
		name   string
		events string
		want   record
	}{
		{
			name: "nothing ran",
			want: record{Failed: 1, Failures: []item{{Reason: "no test ran"}}},
		},
		{
			name:   "only a package without tests",
			events: `{"Action":"skip","Package":"p"}`,
			want:   record{Failed: 1, Failures: []item{{Reason: "no test ran"}}},
		},
		{
			name: "everything skipped",
			events: `{"Action":"skip","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`,
			want: record{Skipped: 1, Skips: []item{{Package: "p", Test: "TestA", Reason: "no reason given"}}},
		},
		{
			name: "TestMain fails after its tests passed",
			events: `{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Output":"leaked 1 fd\n"}
				{"Action":"fail","Package":"p"}`,
			want: record{Passed: 1, Failed: 1, Failures: []item{{Package: "p", Reason: "failed outside of its tests", Output: "leaked 1 fd\n"}}},
		},
		{
			name: "parent fails after its subtests passed",
			events: `{"Action":"pass","Package":"p","Test":"TestA/one"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			want: record{Passed: 1, Failed: 1, Failures: []item{{Package: "p", Test: "TestA"}}},
		},
		{
			name: "a subtest ends its parent",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: before\n"}
				{"Action":"run","Package":"p","Test":"TestA/one"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: not in time\n"}
				{"Action":"output","Package":"p","Test":"TestA/one","Output":"subtest may have called FailNow on a parent test\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: cleanup\n"}
				{"Action":"fail","Package":"p","Test":"TestA/one"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			want: record{Failed: 1, Failures: []item{{Package: "p", Test: "TestA/one", Output: "subtest may have called FailNow on a parent test\n    TestA said: not in time\n"}}},
		},
		{
			name: "a name that begins like another is no subtest of it",
			events: `{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestAB"}
				{"Action":"pass","Package":"p"}`,
			want: record{Passed: 2},
		},
		{
			name: "a package in two portions",
			events: `{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}
				{"Action":"fail","Package":"p","Test":"TestB"}
				{"Action":"fail","Package":"p"}`,
			want: record{Passed: 1, Failed: 1, Failures: []item{{Package: "p", Test: "TestB"}}},
		},
		{
			name: "the run is cut off",
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestB"}`,
			want: record{Passed: 1, Failed: 1, Failures: []item{{Package: "p", Test: "TestB"}}},
		},
		{
			name: "plain text between events",
			events: `go: downloading something
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`,
			want: record{Passed: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := collect("", strings.NewReader(tt.events), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got.Passed != tt.want.Passed || got.Failed != tt.want.Failed || got.Skipped != tt.want.Skipped {
				t.Errorf("counts: got %+v, want %+v", got, tt.want)
			}
			if !slices.Equal(got.Skips, tt.want.Skips) || !slices.Equal(got.Failures, tt.want.Failures) {
				t.Errorf("items: got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestBusyMachine: more than 3 % of skipped checks is neither green nor a failure.
func TestBusyMachine(t *testing.T) {
	for _, test := range []struct {
		judged, busy int
		failed       bool
		want         error
	}{
		{judged: 100},
		{judged: 97, busy: 3},
		{judged: 96, busy: 4, want: errBusy},
		{judged: 10, busy: 1, want: errBusy},
		{busy: 1, want: errBusy},
		{judged: 1, busy: 1, failed: true, want: errFailed},
	} {
		event := func(name, result string) string {
			attribute := `{"Action":"attr","Package":"p","Test":"` + name + `","Key":"check","Value":"`
			if result == "skip" {
				return attribute + `busy"}{"Action":"skip","Package":"p","Test":"` + name + `"}`
			}
			return attribute + `judged"}{"Action":"` + result + `","Package":"p","Test":"` + name + `"}`
		}
		var events strings.Builder
		for i := range test.judged {
			result := "pass"
			if test.failed && i == 0 {
				result = "fail"
			}
			events.WriteString(event("TestA"+strconv.Itoa(i), result))
		}
		for i := range test.busy {
			events.WriteString(event("TestBusy"+strconv.Itoa(i), "skip"))
		}
		text := strings.ReplaceAll(events.String(), "}{", "}\n{")
		dir := t.TempDir()
		_ = run([]string{"run", "-suite", "netns", "-dir", dir}, strings.NewReader(text+"\n"+`{"Action":"pass","Package":"p","Test":"TestLast"}`+"\n"+`{"Action":"pass","Package":"p"}`), io.Discard)
		var out bytes.Buffer
		err := run([]string{"report", "-dir", dir}, nil, &out)
		if !errors.Is(err, test.want) || errors.Is(test.want, errBusy) != strings.Contains(out.String(), "\nNot judged: machine busy: netns skipped") && !test.failed {
			t.Errorf("%+v: %v:\n%s", test, err, &out)
		}
	}
}

// TestLongest: the report names the tests that took long, the longest first, and none of their subtests.
func TestLongest(t *testing.T) {
	dir := t.TempDir()
	for suite, events := range map[string]string{
		"netns": `{"Action":"pass","Package":"p","Test":"TestLong/part","Elapsed":40}
			{"Action":"pass","Package":"p","Test":"TestLong","Elapsed":41.25}
			{"Action":"pass","Package":"p","Test":"TestShort","Elapsed":1}
			{"Action":"pass","Package":"p","Elapsed":43}`,
		"docker": `{"Action":"pass","Package":"q","Test":"TestLonger","Elapsed":100}
			{"Action":"pass","Package":"q","Elapsed":100}`,
	} {
		if err := run([]string{"run", "-suite", suite, "-dir", dir}, strings.NewReader(events), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"report", "-dir", dir}, nil, &out); err != nil {
		t.Fatal(err)
	}
	if want := "\nLongest tests, in seconds:\n   100.0 q TestLonger\n    41.2 p TestLong\n\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, &out)
	}
}

func TestLastLog(t *testing.T) {
	log := "=== RUN   TestA\n    a_test.go:9: set up\n    a_test.go:12: needs a kernel\n        \n        newer than 6.16\n"
	for _, after := range []string{"", "time=2026-01-01T00:00:00Z level=INFO msg=stopping\n        in two lines\n", "    panic\n"} {
		if got, want := lastLog(log+after+"--- SKIP: TestA (0.00s)\n"), "needs a kernel newer than 6.16"; got != want {
			t.Errorf("after it %q: got %q, want %q", after, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	check := func(args ...string) error {
		return run(append(args, "-dir", dir), nil, io.Discard)
	}
	if err := check("report"); !errors.Is(err, errFailed) {
		t.Errorf("a report of nothing: got %v, want %v", err, errFailed)
	}
	if err := check("check", "-suite", "docker", "-result", "skip"); err == nil {
		t.Error("a skip without a reason was accepted")
	}
	for _, args := range [][]string{
		{"check", "-suite", "lint", "-result", "pass", "-took", "61s"},
		{"check", "-suite", "docker", "-result", "skip", "-reason", "not root"},
		{"check", "-suite", "lint", "-result", "pass"},
	} {
		if err := check(args...); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"report", "-dir", dir}, nil, &out); err != nil {
		t.Errorf("report: %v", err)
	}
	want := `
suite          passed   failed  skipped     time
lint                2        0        0     1m1s
docker              0        0        1       0s

Skipped:
  docker: not root

2 passed, 0 failed, 1 skipped
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}

	if err := check("check", "-suite", "netns", "-result", "fail", "-reason", "left behind: netns x"); !errors.Is(err, errFailed) {
		t.Errorf("a failed check: got %v, want %v", err, errFailed)
	}
	long := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(long, []byte("the first\n"+strings.Repeat("more\n", outputLines-1)+"the last"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check("check", "-suite", "rules", "-result", "fail", "-reason", "bad", "-log", long); !errors.Is(err, errFailed) {
		t.Errorf("a failed check: got %v, want %v", err, errFailed)
	}
	out.Reset()
	_ = run([]string{"report", "-dir", dir}, nil, &out)
	if end := "\n--- rules: bad\n      more\n"; !strings.Contains(out.String(), end) || !strings.Contains(out.String(), "the last\n") || strings.Contains(out.String(), "the first") {
		t.Errorf("it does not repeat the end of what failed:\n%s", &out)
	}
	if err := check("report"); !errors.Is(err, errFailed) {
		t.Errorf("a report with a failure: got %v, want %v", err, errFailed)
	}
}
