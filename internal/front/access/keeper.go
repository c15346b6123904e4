package access

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"
)

// checkInterval is how often the files are checked for changes at most.
const checkInterval = time.Second

// kept is a value read from files, and read again when one of them changes.
type kept[T any] struct {
	paths []string
	read  func() (T, error)
	// failed returns the value to use when the files cannot be read.
	failed func(before T, err error) T

	mu      sync.Mutex
	value   T
	stamps  []stamp // nil: read the files in any case
	checked time.Time
}

// stamp identifies a version of a file; the zero value stands for a missing file. The time of
// change (stat(2)) covers owner and mode too, which may be why the file was refused.
type stamp struct {
	device, inode     uint64
	size              int64
	mode              uint32
	modified, changed syscall.Timespec
}

// get returns the value, checked for changes within the last checkInterval.
func (k *kept[T]) get() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.checked.IsZero() && time.Since(k.checked) < checkInterval {
		return k.value
	}
	return k.refresh()
}

// now checks the files for changes and returns the current value.
func (k *kept[T]) now() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refresh()
}

func (k *kept[T]) refresh() T {
	k.checked = time.Now()
	stamps := make([]stamp, len(k.paths))
	for i, path := range k.paths {
		stamps[i] = stampOf(path)
	}
	if slices.Equal(stamps, k.stamps) {
		return k.value
	}
	// The stamps are from before the files are read: a change meanwhile is seen next time.
	value, err := k.read()
	if err != nil {
		k.value, k.stamps = k.failed(k.value, err), nil
		return k.value
	}
	k.value, k.stamps = value, stamps
	return k.value
}

func stampOf(path string) stamp {
	var s syscall.Stat_t
	if syscall.Stat(path, &s) != nil {
		return stamp{}
	}
	return stamp{s.Dev, s.Ino, s.Size, s.Mode, s.Mtim, s.Ctim}
}

// complaint logs a file's error once, until a different error occurs.
type complaint struct{ said string }

// say logs an error, unless it equals the last one; nil clears it.
func (c *complaint) say(log *slog.Logger, consequence string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.said {
		log.Error(consequence, "error", err)
	}
	c.said = text
}

// Tokens are the tokens of a file, as it is now. A file that cannot be read has none: a token
// that was deleted must be refused even if the file is broken.
type Tokens struct{ file kept[tokens] }

// NewTokens returns the tokens of the file at path, which need not be there.
func NewTokens(path string, log *slog.Logger) *Tokens {
	t := &Tokens{}
	var wrong complaint
	t.file = kept[tokens]{
		paths: []string{path},
		read: func() (tokens, error) {
			list, err := readTokens(path)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			wrong.say(log, "no token is valid", err)
			return list, err
		},
		failed: func(tokens, error) tokens { return nil },
	}
	return t
}

// Find returns the caller of a token. A new token is known at once, a deleted one for another
// second at most.
func (t *Tokens) Find(token string) (Caller, bool) {
	if caller, ok := t.file.get().find(token); ok {
		return caller, true
	}
	return t.file.now().find(token)
}

// Any reports whether the file has a token.
func (t *Tokens) Any() bool { return len(t.file.now()) > 0 }
