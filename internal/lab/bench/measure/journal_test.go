package measure

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/must"
)

func never(report.Settings) string { return "" }

// readJournal reads a journal of a build.
func readJournal(t *testing.T, path, build string) *Journal {
	t.Helper()
	j, err := ReadJournal(path, report.Settings{Weir: build, Sources: "bpf=1"}, never)
	must.Succeed(t, err)
	return j
}

// TestJournalWorlds: processes that are interrupted after any run, and while they write a line, keep all runs before, in the order
// of rounds; a process measures a failed run again, in its place.
func TestJournalWorlds(t *testing.T) {
	for world := range uint64(60) {
		random := rand.New(rand.NewPCG(world, 1))
		path := filepath.Join(t.TempDir(), "x.runs.jsonl")
		var want []KeptRun // Seen is nil if the run failed, or its line is incomplete
		isKept := func(run KeptRun) bool { return run.Seen != nil }
		for process := 0; process < 4 || len(want) < 20; process++ {
			j := readJournal(t, path, fmt.Sprint("v", process/2))
			if kept, _ := j.Count(); kept != len(want)-countRuns(want, func(run KeptRun) bool { return !isKept(run) }) {
				t.Fatalf("world %d: %d runs are kept, of %+v", world, kept, want)
			}
			j.Expect(20)
			last, number := -1, map[string]int{}
			for i := range len(want) + random.IntN(6) {
				if i == len(want) {
					want = append(want, KeptRun{Key: fmt.Sprint(random.IntN(3))})
				}
				got, kept := j.TakeNext(want[i].Key)
				got.process = 0
				if kept != isKept(want[i]) || kept && !reflect.DeepEqual(got, want[i]) {
					t.Fatalf("world %d: took %+v (%v), want %+v", world, got, kept, want[i])
				}
				if number[want[i].Key]++; kept {
					continue
				}
				if random.IntN(4) == 0 {
					j.SkipRun(want[i].Key)
					continue
				}
				want[i] = KeptRun{Key: want[i].Key, TookNS: random.Int64N(1e9), Repeated: random.IntN(2), Seen: make([]byte, 1+random.IntN(300))}
				must.Succeed(t, j.Add(want[i]))
				want[i].Runs, want[i].Number, last = 20, number[want[i].Key]-1, i
			}
			must.Succeed(t, j.Close())
			if text, err := os.ReadFile(path); err == nil && random.IntN(2) == 0 && last >= 0 {
				torn := text[:len(text)-1-random.IntN(20)] // the last line is longer
				must.Succeed(t, os.WriteFile(path, torn, 0o644))
				want[last] = KeptRun{Key: want[last].Key}
			}
		}
		if builds := readJournal(t, path, "v0").Builds(); len(builds) < 2 {
			t.Errorf("world %d: measured by %q only", world, builds)
		}
	}
}

// countRuns returns how many runs have a property.
func countRuns(runs []KeptRun, has func(KeptRun) bool) (count int) {
	for _, run := range runs {
		if has(run) {
			count++
		}
	}
	return count
}

// TestJournalDropsDisturbed: the next process measures only the runs again during which others used the machine.
func TestJournalDropsDisturbed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.runs.jsonl")
	j := readJournal(t, path, "v1")
	must.Succeed(t, j.DropDisturbed()) // there is no file
	for i := range 3 {
		run := KeptRun{Key: "a", Seen: []byte{byte(i)}}
		if i == 1 {
			run.Disturbed = []string{"a: others took 50 % of the processors"}
		}
		must.Succeed(t, j.Add(run))
	}
	must.Succeed(t, j.DropDisturbed())
	must.Succeed(t, j.Close())
	j = readJournal(t, path, "v1")
	for i := range 3 {
		run, kept := j.TakeNext("a")
		if kept != (i != 1) || kept && run.Seen[0] != byte(i) {
			t.Errorf("run %d: kept: %v, %+v", i, kept, run)
		}
		if !kept {
			must.Succeed(t, j.Add(KeptRun{Key: "a", Seen: []byte{1}}))
		}
		if j.byKey["a"][i].Seen != nil {
			t.Errorf("run %d is in memory after it was taken", i)
		}
	}
	must.Succeed(t, j.Close())
	if kept, _ := readJournal(t, path, "v1").Count(); kept != 3 || !j.HasRunOf("a") || j.HasRunOf("b") {
		t.Errorf("%d runs are kept", kept)
	}
}

// TestJournalForgetsApart: runs that are compared with each other are kept only if one process measured them all, whatever was
// interrupted or dropped in which process.
func TestJournalForgetsApart(t *testing.T) {
	path, keys := filepath.Join(t.TempDir(), "x.runs.jsonl"), []string{"a", "b"}
	for process, test := range []struct {
		kept     bool
		measures []string
		disturbs string
	}{
		{false, []string{"a"}, ""},          // it is interrupted
		{false, []string{"a", "b"}, "a"},    // the file loses a
		{false, []string{"a"}, ""},          // it is interrupted: b is of an earlier process
		{false, []string{"a", "b"}, "none"}, // the file loses all but these
		{true, nil, ""},
	} {
		j := readJournal(t, path, "v1")
		j.ForgetApart(keys...)
		for _, key := range keys { // the first round
			if _, kept := j.TakeNext(key); kept != (process > 0) {
				t.Errorf("process %d: the first run of %s is kept: %v", process, key, kept)
			}
			if process == 0 {
				must.Succeed(t, j.Add(KeptRun{Key: key, TookNS: 1}))
			}
		}
		j.ForgetApart(keys...)
		for _, key := range keys {
			if run, kept := j.TakeNext(key); kept != test.kept || kept && string(run.Seen) != "3" {
				t.Errorf("process %d: %s is kept: %v, %s", process, key, kept, run.Seen)
			}
		}
		for _, key := range test.measures {
			run := KeptRun{Key: key, Seen: fmt.Append(nil, process), TookNS: 1}
			if key == test.disturbs {
				run.Disturbed = []string{"b"}
			}
			must.Succeed(t, j.Add(run))
		}
		if test.disturbs != "" {
			must.Succeed(t, j.DropDisturbed())
		}
		must.Succeed(t, j.Close())
	}
	j := readJournal(t, path, "v1")
	text, err := os.ReadFile(path)
	if kept, _ := j.Count(); err != nil || kept != 4 || j.Elapsed() != 4 || strings.Count(string(text), `"key"`) != 4 {
		t.Errorf("%v: %d runs of %v are kept, in %s", err, kept, j.Elapsed(), text)
	}
	j.ForgetApart("a", "fails", "b")
	if _, kept := j.TakeNext("a"); !kept {
		t.Error("a peer that always fails takes the others' runs with it")
	}
	j.TakeNext("b")
	j.ForgetApart("a", "late", "b")
	if _, kept := j.TakeNext("a"); kept {
		t.Error("a process ended before the last run of a round, and its other runs are kept")
	}
	var none *Journal
	none.ForgetApart(keys...)
}

// TestJournalRefuses: runs of other settings, and a file that is none of runs, are refused with what to do.
func TestJournalRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.runs.jsonl")
	j := readJournal(t, path, "v1")
	must.Succeed(t, j.Add(KeptRun{Key: "a"}))
	must.Succeed(t, j.Close())
	_, err := ReadJournal(path, report.Settings{}, func(was report.Settings) string { return "build: kept " + was.Weir })
	if err == nil || !strings.Contains(err.Error(), "build: kept v1. Remove it to measure them again") {
		t.Errorf("error %v", err)
	}
	for text, want := range map[string]string{
		"nonsense\n{}\n{}\n": "line 1 of", `{"run":{"key":"a"}}` + "\n\n": "no settings line before the run at line 1 of ",
	} {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
		if _, err := ReadJournal(path, report.Settings{}, never); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%q: error %v", text, err)
		}
	}
	must.Succeed(t, j.Remove())
	must.Succeed(t, j.Remove())
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is still there")
	}
}

// TestJournalEnds: a run as long as the longest one so far has to fit before the end, or as long as it takes at least.
func TestJournalEnds(t *testing.T) {
	var none *Journal
	j := readJournal(t, filepath.Join(t.TempDir(), "x"), "v1")
	must.Succeed(t, none.Add(KeptRun{}))
	none.SkipRun("a")
	if _, kept := none.TakeNext("a"); kept || none.Late(time.Hour) || j.Late(time.Hour) || none.HasRunOf("a") {
		t.Error("without an end, or a journal, nothing is too late, and nothing is kept")
	}
	j.End = time.Now().Add(time.Minute)
	if j.Late(time.Second) || !j.Late(2*time.Minute) {
		t.Error("of a minute a second is left, and not two minutes")
	}
	must.Succeed(t, j.Add(KeptRun{Key: "a", TookNS: int64(2 * time.Minute)}))
	if !j.Late(time.Second) {
		t.Error("a run of two minutes ends within one")
	}
}
