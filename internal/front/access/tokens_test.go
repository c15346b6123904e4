package access

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// What makes a file one that will do may leave its text and its time as they are.
func TestTokensFileMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	token, err := AddToken(path, "hub", Read)
	must.Succeed(t, err)
	must.Succeed(t, os.Chmod(path, 0o666))
	var said bytes.Buffer
	list := NewTokens(path, slog.New(slog.NewTextHandler(&said, nil)))
	for range 3 {
		if _, ok := list.Find(token); ok {
			t.Fatal("anybody may write the file, and it is believed")
		}
	}
	if times := strings.Count(said.String(), "no token is valid"); times != 1 || !strings.Contains(said.String(), "chmod 600") {
		t.Errorf("said %d times, want once: %s", times, said.String())
	}
	must.Succeed(t, os.Chmod(path, 0o600))
	if _, ok := list.Find(token); !ok {
		t.Error("the file is in order again, and the token is not valid")
	}
	must.Succeed(t, os.Chmod(path, 0o622))
	if list.Any() {
		t.Error("anybody may write the file now, and it is still believed")
	}
}

// What could not be read is read again, also where nothing of the file has changed.
func TestTokensReadAgain(t *testing.T) {
	works, reads := false, 0
	path := filepath.Join(t.TempDir(), "tokens")
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
	file := kept[string]{
		paths: []string{path},
		read: func() (string, error) {
			reads++
			if !works {
				return "", fmt.Errorf("too many open files")
			}
			return "read", nil
		},
		failed: func(string, error) string { return "failed" },
	}
	if got := file.now(); got != "failed" {
		t.Errorf("got %q", got)
	}
	works = true
	for range 2 {
		if got := file.now(); got != "read" {
			t.Errorf("got %q when it can be read again", got)
		}
	}
	if reads != 2 {
		t.Errorf("read %d times, want 2: it has not changed since the second", reads)
	}
}

// Of tokens made at the same time none is lost, and each name is one's only.
func TestTokensAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const names, each = 8, 3
	made := make([][each]string, names)
	var all sync.WaitGroup
	for i := range names {
		for j := range each {
			all.Go(func() {
				token, err := AddToken(path, fmt.Sprint("hub", i), Read)
				if err == nil {
					made[i][j] = token
				} else if says := "give this one another name, or delete the line of \"hub" + fmt.Sprint(i); !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want %q", err, says)
				}
			})
		}
	}
	all.Wait()
	list := NewTokens(path, quiet())
	for i, tokens := range made {
		valid := 0
		for _, token := range tokens {
			if token == "" {
				continue
			}
			if caller, ok := list.Find(token); ok && caller.Name == fmt.Sprint("token hub", i) {
				valid++
			} else {
				t.Errorf("a token of hub%d is lost", i)
			}
		}
		if valid != 1 {
			t.Errorf("hub%d has %d tokens, want 1", i, valid)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	hidden, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*-*"))
	if err != nil || len(left)+len(hidden) != 1 {
		t.Errorf("left over: %v %v, %v", left, hidden, err)
	}
}
