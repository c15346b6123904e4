package measure

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
)

// Journal keeps what each run of a suite measured, so that an interrupted suite resumes with the next run. Its file has a line of
// settings from each process that measured, before that process's runs, and a line for each run with an observation. A failed run has
// no line: the next process measures it again, in its place among the runs of its key. The reader drops an incomplete last line.
// A nil Journal keeps nothing.
type Journal struct {
	// End is when the last run has to have ended; zero is never.
	End time.Time
	// Check returns why a run that has ended must not be kept; nil: nothing speaks against it.
	Check func() error

	path     string
	settings report.Settings
	file     *os.File                   // nil until the first run
	size     int64                      // of complete lines
	builds   []string                   // of the processes that measured
	byKey    map[string]map[int]KeptRun // by key and number
	next     map[string]int             // the number of a key's next run
	kept     int
	runs     int // of the suite, as far as known
	elapsed  time.Duration
	longest  time.Duration
}

// KeptRun is the observation of a run.
type KeptRun struct {
	// Key names the case with what runs it. Number counts the runs of the key before this one, failed ones included: runs of a key
	// are in the order of rounds.
	Key    string `json:"key"`
	Number int    `json:"number"`
	// Runs is how many the suite has, as far as was known then.
	Runs int `json:"runs"`
	// TookNS is the time of the run and of its repeats.
	TookNS int64 `json:"took_ns"`
	// Repeated counts the repeats; Disturbed names the run, and its repeats, if others used the machine meanwhile.
	Repeated  int      `json:"repeated,omitempty"`
	Disturbed []string `json:"disturbed,omitempty"`
	// Seen is the observation as compressed JSON. The journal keeps it only until it is taken.
	Seen []byte `json:"seen,omitempty"`

	// process counts the processes that measured before the one that measured this run.
	process int
}

// journalLine is a line of a journal: settings, or a run.
type journalLine struct {
	Settings *report.Settings `json:"settings,omitempty"`
	Run      *KeptRun         `json:"run,omitempty"`
}

// ErrTimeIsUp ends a suite before a run that would not end in time.
var ErrTimeIsUp = errors.New("the next run would not end in time")

// ReadJournal reads a journal's file, which need not exist. differs returns why runs of earlier settings cannot be mixed with runs
// of these; empty if they can.
func ReadJournal(path string, settings report.Settings, differs func(was report.Settings) string) (*Journal, error) {
	j := &Journal{path: path, settings: settings, byKey: map[string]map[int]KeptRun{}, next: map[string]int{}}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read kept runs: %w", err)
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return j, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read kept runs: %w", err)
		}
		var one journalLine
		if err := json.Unmarshal(line, &one); err != nil {
			if _, end := lines.Peek(1); errors.Is(end, io.EOF) {
				return j, nil
			}
			return nil, fmt.Errorf("line %d of %s is no kept run (%w): remove the file to measure them again", number, path, err)
		}
		switch {
		case one.Settings != nil:
			if why := differs(*one.Settings); why != "" {
				return nil, fmt.Errorf("the runs in %s were measured with other settings: %s. Remove it to measure them again, or choose another --dir", path, why)
			}
			j.builds = append(j.builds, one.Settings.Weir)
		case one.Run == nil || len(j.builds) == 0:
			return nil, fmt.Errorf("no settings line before the run at line %d of %s: remove the file to measure its runs again", number, path)
		default:
			run := *one.Run
			run.process = len(j.builds)
			j.keep(run)
		}
		j.size += int64(len(line))
	}
}

// keep adds a run, which takes the place of an earlier one of its key and number.
func (j *Journal) keep(run KeptRun) {
	if j.byKey[run.Key] == nil {
		j.byKey[run.Key] = map[int]KeptRun{}
	}
	if was, kept := j.byKey[run.Key][run.Number]; kept {
		j.forget(was)
	}
	j.byKey[run.Key][run.Number] = run
	j.kept++
	j.runs = max(j.runs, run.Runs)
	length := time.Duration(run.TookNS)
	j.elapsed += length
	j.longest = max(j.longest, length/time.Duration(1+run.Repeated))
}

// Count returns the number of kept runs, and that of all runs of the suite, 0 if it is not known.
func (j *Journal) Count() (kept, runs int) { return j.kept, j.runs }

// Elapsed returns how long the kept runs took.
func (j *Journal) Elapsed() time.Duration { return j.elapsed }

// Builds returns the builds that measured the kept runs, each once.
func (j *Journal) Builds() []string {
	builds := slices.Clone(j.builds)
	slices.Sort(builds)
	return slices.Compact(builds)
}

// Expect sets the number of all runs.
func (j *Journal) Expect(runs int) {
	if j != nil {
		j.runs = runs
	}
}

// TakeNext returns the next run of a key, and false if it is not kept: it is to be measured.
func (j *Journal) TakeNext(key string) (KeptRun, bool) {
	if j == nil {
		return KeptRun{}, false
	}
	run, kept := j.byKey[key][j.next[key]]
	if kept {
		j.next[key]++
		taken := run
		taken.Seen = nil
		j.byKey[key][run.Number] = taken
	}
	return run, kept
}

// ForgetApart forgets the next runs of all keys unless one process has measured them all: they are compared with each other. A key
// without any run counts for nothing if another has later runs: it failed. Else a process ended before its run.
func (j *Journal) ForgetApart(keys ...string) {
	if j == nil {
		return
	}
	isOver := slices.ContainsFunc(keys, func(key string) bool {
		for number := range j.byKey[key] {
			if number > j.next[key] {
				return true
			}
		}
		return false
	})
	processes := map[int]bool{}
	for _, key := range keys {
		if isOver && len(j.byKey[key]) == 0 {
			continue
		}
		processes[j.byKey[key][j.next[key]].process] = true // 0 is that of none
	}
	if len(processes) <= 1 {
		return
	}
	for _, key := range keys {
		if run, kept := j.byKey[key][j.next[key]]; kept {
			j.forget(run)
		}
	}
}

// forget removes a run, but for its line in the file: it has the process of an earlier one.
func (j *Journal) forget(run KeptRun) {
	delete(j.byKey[run.Key], run.Number)
	j.kept--
	j.elapsed -= time.Duration(run.TookNS)
}

// HasRunOf reports whether a run of a key was kept before, taken or not.
func (j *Journal) HasRunOf(key string) bool { return j != nil && len(j.byKey[key]) > 0 }

// SkipRun leaves out the next run of a key, which failed.
func (j *Journal) SkipRun(key string) {
	if j != nil {
		j.next[key]++
	}
}

// Late reports whether a run would not end in time: one that takes as long as the longest so far, or at least as long as given.
func (j *Journal) Late(least time.Duration) bool {
	return j != nil && !j.End.IsZero() && time.Now().Add(max(j.longest, least)).After(j.End)
}

// Add appends a run to the file as the next one of its key, on the disk when it returns.
func (j *Journal) Add(run KeptRun) error {
	if j == nil {
		return nil
	}
	if j.Check != nil {
		if err := j.Check(); err != nil {
			return err
		}
	}
	run.Runs, run.Number = j.runs, j.next[run.Key]
	var lines []byte
	if j.file == nil {
		if err := j.open(); err != nil {
			return fmt.Errorf("keep a run: %w", err)
		}
		lines = appendLine(lines, journalLine{Settings: &j.settings})
		j.builds = append(j.builds, j.settings.Weir)
	}
	lines = appendLine(lines, journalLine{Run: &run})
	if _, err := j.file.Write(lines); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	j.next[run.Key]++
	run.process, run.Seen = len(j.builds), nil
	j.keep(run)
	return nil
}

// appendLine appends a line, whose fields JSON has room for.
func appendLine(lines []byte, one journalLine) []byte {
	text, err := json.Marshal(one)
	if err != nil {
		panic(err) // settings and kept runs are of plain types
	}
	return append(append(lines, text...), '\n')
}

// open opens the file for further lines, without a last one that is incomplete.
func (j *Journal) open() (err error) {
	if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err = j.file.Seek(j.size, io.SeekStart)
	return err
}

// Close closes the file.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// DropDisturbed removes from the file the runs during which others used the machine, so that the next process measures them again,
// and runs in whose place others were measured. Nothing may be added to the journal afterwards.
func (j *Journal) DropDisturbed() error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var rest []byte
	process := 0
	for line := range bytes.Lines(text) {
		var one journalLine
		if json.Unmarshal(line, &one) != nil {
			continue
		}
		if one.Run == nil {
			process++
			rest = append(rest, line...)
		} else if run := j.byKey[one.Run.Key][one.Run.Number]; run.process == process && len(run.Disturbed) == 0 {
			rest = append(rest, line...)
		}
	}
	if err == nil {
		err = WriteSynced(j.path, rest)
	}
	if err != nil {
		return fmt.Errorf("drop disturbed runs: %w", err)
	}
	return nil
}

// WriteSynced writes a file, all of it or none, on the disk when it returns.
func WriteSynced(path string, content []byte) error {
	temporary := path + ".new"
	file, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Remove removes the file.
func (j *Journal) Remove() error {
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove kept runs: %w", err)
	}
	return nil
}

// Pack returns an observation as a journal keeps it.
func Pack(seen any) ([]byte, error) {
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(to).Encode(seen), to.Close()); err != nil {
		return nil, fmt.Errorf("keep an observation: %w", err)
	}
	return packed.Bytes(), nil
}

// Unpack reads what Pack returned.
func Unpack(packed []byte, seen any) error {
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		err = json.NewDecoder(from).Decode(seen)
	}
	if err != nil {
		return fmt.Errorf("read a kept observation: %w", err)
	}
	return nil
}
