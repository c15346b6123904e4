package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/api/v1/edge"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "edge.db")
	s := open(t, path)
	if got := s.StartUp("web"); got != (StartUp{}) {
		t.Errorf("got %+v of nothing", got)
	}
	want := StartUp{Seconds: 1.5, TransferSeconds: 3, ImageBytes: 7}
	if err := s.SetStartUp("web", want); err != nil {
		t.Fatal(err)
	}
	if err := s.SetPresence(map[string]Presence{"a": {WatchedSeconds: 10, ThereSeconds: 9}}); err != nil {
		t.Fatal(err)
	}
	var list []edge.Event
	for i := range keptEvents + 10 {
		list = append(list, edge.Event{Seq: uint64(i + 1), Message: "something"})
	}
	if err := s.AddEvents(list[:5]); err != nil {
		t.Fatal(err)
	}
	if err := s.AddEvents(list[5:]); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	if got := s.StartUp("web"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := s.Presence("a"); got.ThereSeconds != 9 {
		t.Errorf("got %+v", got)
	}
	kept, err := s.Events()
	if err != nil || len(kept) != keptEvents || kept[len(kept)-1].Seq != keptEvents+10 {
		t.Errorf("%d events are kept, %v", len(kept), err)
	}
}

func TestNoStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.db")
	if err := os.WriteFile(path, []byte("this is no database, and is longer than nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a file of something else was opened")
	}
}
