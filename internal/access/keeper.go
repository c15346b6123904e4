package access

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkInterval is how old may be what is known of a file.
const checkInterval = time.Second

// kept is what files say, read again when one of them changes.
type kept[T any] struct {
	paths []string
	read  func() (T, error)
	// failed takes what is to be used when they cannot be read, and is given what
	// they said before.
	failed func(before T, err error) T

	mu      sync.Mutex
	value   T
	stamps  []stamp
	checked time.Time
}

// stamp tells one version of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	info     fs.FileInfo
}

// get is what the files said a second ago at most.
func (k *kept[T]) get() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.checked.IsZero() && time.Since(k.checked) < checkInterval {
		return k.value
	}
	return k.look()
}

// now is what the files say at this moment.
func (k *kept[T]) now() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.look()
}

func (k *kept[T]) look() T {
	k.checked = time.Now()
	stamps := make([]stamp, len(k.paths))
	same := len(k.stamps) == len(k.paths)
	for i, path := range k.paths {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size(), info}
		}
		same = same && k.stamps[i].equal(stamps[i])
	}
	if same {
		return k.value
	}
	value, err := k.read()
	if err != nil {
		value = k.failed(k.value, err)
	}
	k.value, k.stamps = value, stamps
	return k.value
}

func (s stamp) equal(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.size == other.size && s.modified.Equal(other.modified)
}

// Tokens are those of a file, as it is now. A file that cannot be read has none: who
// is taken out of it must be out, whatever else is wrong there.
type Tokens struct{ file kept[tokens] }

// NewTokens returns the tokens of the file at path, which need not be there.
func NewTokens(path string, log *slog.Logger) *Tokens {
	t := &Tokens{}
	t.file = kept[tokens]{
		paths: []string{path},
		read:  func() (tokens, error) { return readTokens(path) },
		failed: func(_ tokens, err error) tokens {
			if !errors.Is(err, fs.ErrNotExist) {
				log.Error("no token is valid", "error", err)
			}
			return nil
		},
	}
	return t
}

// Find is whose a token is. One that is new is known at once, one that is taken out is
// known for another second at most.
func (t *Tokens) Find(token string) (Caller, bool) {
	if caller, ok := t.file.get().find(token); ok {
		return caller, true
	}
	return t.file.now().find(token)
}

// Any says whether there is a token at all.
func (t *Tokens) Any() bool { return len(t.file.now()) > 0 }
