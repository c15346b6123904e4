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

// TestJournalWorlds: processes that are cut off after any run, and while they write a line, keep all runs before, in order.
func TestJournalWorlds(t *testing.T) {
	for world := range uint64(200) {
		random := rand.New(rand.NewPCG(world, 1))
		path := filepath.Join(t.TempDir(), "x.runs.jsonl")
		var want []KeptRun
		for process := 0; len(want) < 20; process++ {
			build := fmt.Sprint("v", process/2)
			j := readJournal(t, path, build)
			if kept, _ := j.Count(); kept != len(want) {
				t.Fatalf("world %d: %d runs are kept, of %d", world, kept, len(want))
			}
			for _, run := range want {
				if !j.Has(run.Key) {
					t.Fatalf("world %d: a run of %s is not kept", world, run.Key)
				}
				if got := j.Take(run.Key); !reflect.DeepEqual(got, run) {
					t.Fatalf("world %d: took %+v, want %+v", world, got, run)
				}
			}
			j.Expect(20)
			more := random.IntN(6)
			for range more {
				run := KeptRun{Key: fmt.Sprint(random.IntN(3)), TookNS: random.Int64N(1e9), Repeated: random.IntN(2), Seen: make([]byte, random.IntN(300))}
				if random.IntN(4) == 0 {
					run.Failure, run.Seen = "no answer", nil
				}
				must.Succeed(t, j.Add(run))
				run.Runs = 20
				if len(run.Seen) == 0 { // as it is read
					run.Seen = nil
				}
				want = append(want, run)
			}
			must.Succeed(t, j.Close())
			if text, err := os.ReadFile(path); err == nil && random.IntN(2) == 0 && more > 0 {
				torn := text[:len(text)-1-random.IntN(20)] // the last line is longer
				must.Succeed(t, os.WriteFile(path, torn, 0o644))
				want = want[:len(want)-1]
			}
		}
		if builds := readJournal(t, path, "v0").Builds(); len(builds) < 2 {
			t.Errorf("world %d: measured by %q only", world, builds)
		}
	}
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
		"nonsense\n{}\n{}\n": "line 1 of", `{"run":{"key":"a"}}` + "\n\n": "is of no settings",
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
	if none.Late(time.Hour) || j.Late(time.Hour) || none.Has("a") {
		t.Error("without an end, or a journal, nothing is too late")
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
