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
	stamps  []stamp // nil: they are to be read, whatever they are
	checked time.Time
}

// stamp tells one version of a file from another; the zero value is that of none. The
// time of change (stat(2)) is that of its owner and its mode too, which may be why it
// was refused.
type stamp struct {
	device, inode     uint64
	size              int64
	mode              uint32
	modified, changed syscall.Timespec
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
	for i, path := range k.paths {
		stamps[i] = stampOf(path)
	}
	if slices.Equal(stamps, k.stamps) {
		return k.value
	}
	// The stamps are those of before it was read: what changes meanwhile is seen next time.
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

// complaint is what is wrong with a file, said once for as long as it is the same.
type complaint struct{ said string }

// say logs an error that is another one than the last; nil for none.
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

// Tokens are those of a file, as it is now. A file that cannot be read has none: who
// is taken out of it must be out, whatever else is wrong there.
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
