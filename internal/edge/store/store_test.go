package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/edge"
)

func opened(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add adds events, which are there when it is closed.
func add(t *testing.T, s *Store, list []edge.Event) {
	t.Helper()
	for _, e := range list {
		s.AddEvent(e, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "edge.db")
	s := opened(t, path)
	if got := s.StartUp("web"); got != (StartUp{}) {
		t.Errorf("got %+v of nothing", got)
	}
	want := StartUp{Seconds: 1.5, TransferSeconds: 3, ImageBytes: 7}
	kept := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	// While the disk takes nothing, callers go on, and read what they kept.
	busy, err := s.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	for seconds := range 3 {
		s.SetStartUp("web", StartUp{Seconds: float64(seconds)}, kept)
	}
	s.SetStartUp("web", want, kept)
	s.SetPresence(map[string]Presence{"a": {WatchedSeconds: 10, ThereSeconds: 9}}, kept)
	if got, there := s.StartUp("web"), s.Presence("a").ThereSeconds; got != want || there != 9 {
		t.Errorf("before they are written: %+v and %v", got, there)
	}
	if err := busy.Rollback(); err != nil {
		t.Fatal(err)
	}
	var list []edge.Event
	for i := range keptEvents + 10 {
		list = append(list, edge.Event{Seq: uint64(i + 1), Message: "something"})
	}
	add(t, s, list)
	if _, err := Open(path, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, path)
	defer s.Close()
	if got := s.StartUp("web"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := s.Presence("a"); got.ThereSeconds != 9 {
		t.Errorf("got %+v", got)
	}
	events, err := s.Events()
	if err != nil || len(events) != keptEvents || events[len(events)-1].Seq != keptEvents+10 {
		t.Errorf("%d events are kept, %v", len(events), err)
	}
}

// TestFolder: nobody else looks into weir-edge's folder; those above it that it makes are
// everybody's, as weir advise keeps something there that anyone may read.
func TestFolder(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	root := t.TempDir()
	s := opened(t, filepath.Join(root, "weir", "edge", "edge.db"))
	defer s.Close()
	for name, want := range map[string]os.FileMode{"weir": 0o755, "weir/edge": 0o700} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has %o, want %o", name, got, want)
		}
	}
}

// TestDamaged: a file that is damaged, in whatever way, is put aside and stops nothing.
func TestDamaged(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "edge.db")
	s := opened(t, whole)
	var list []edge.Event
	for i := range 500 {
		list = append(list, edge.Event{Seq: uint64(i + 1), Message: strings.Repeat("something ", 20)})
	}
	add(t, s, list)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	zeros := slices.Clone(content)
	clear(zeros[2*os.Getpagesize():])
	for name, content := range map[string][]byte{
		"something else": []byte("this is no database, and is longer than nothing"),
		"two pages":      content[:2*os.Getpagesize()], "half of it": content[:len(content)/2],
		"zeros": zeros,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "edge.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			result := make(chan error, 1)
			s.SetPresence(map[string]Presence{"a": {ThereSeconds: 1}}, func(err error) { result <- err })
			if err := <-result; err != nil || s.Presence("a").ThereSeconds != 1 {
				t.Errorf("it does not keep anything: %v", err)
			}
			kept, err := os.ReadFile(path + ".damaged")
			if !bytes.Equal(kept, content) || !strings.Contains(log.String(), path+".damaged") {
				t.Errorf("what was there is %d bytes, %v; it says %s", len(kept), err, log.String())
			}
		})
	}
}
