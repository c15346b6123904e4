package transport

import (
	"errors"
	"fmt"
	"io"
)

// What an element of a list, and a member of an object, take in a text that has as many as are read. `{}`
// takes 2 bytes there, and as a container 560 in memory; a label takes 8, and as an entry of a map 80.
const minElementBytes, minMemberBytes = 256, 32

// Bounded reads the JSON text of R, and fails once that would take too much of its reader's memory. It
// is not exact for what is not JSON.
type Bounded struct {
	R io.Reader
	// MaxBytes limits the text. For every 256 bytes of that, its lists together may have an element,
	// and for every 32 its objects a member.
	MaxBytes int
	// IsStream: R is a stream of values without an end, and the limits are those of each.
	IsStream bool
	// Err is the error of R that ended reading, unless that was its end.
	Err error

	bytes, elements, members int
	lists                    []bool // which of the open brackets are lists
	quoted, escaped          bool
	refused                  error
}

func (b *Bounded) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	n, err := b.R.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.Err = err
	}
	for _, c := range p[:n] {
		b.bytes++
		switch {
		case b.escaped:
			b.escaped = false
		case b.quoted:
			b.escaped, b.quoted = c == '\\', c != '"'
		case c == '"':
			b.quoted = true
		case c == ',', c == '[', c == '{', c == ']', c == '}':
			if b.count(c); b.refused != nil {
				return 0, b.refused
			}
		}
	}
	if b.refused = b.excess(); b.refused != nil {
		return 0, b.refused
	}
	return n, err
}

// count counts the elements of lists, one more for each empty list, and all members of an object but
// the last.
func (b *Bounded) count(c byte) {
	inside := len(b.lists) > 0
	switch {
	case c == '[', c == '{':
		b.lists = append(b.lists, c == '[')
		if c == '[' {
			b.elements++
		}
	case !inside:
	case c == ',' && b.lists[len(b.lists)-1]:
		b.elements++
	case c == ',':
		b.members++
	default:
		b.lists = b.lists[:len(b.lists)-1]
	}
	b.refused = b.excess()
	if len(b.lists) == 0 && b.IsStream {
		b.bytes, b.elements, b.members = 0, 0, 0
	}
}

// excess returns which limit the text exceeds, or nil.
func (b *Bounded) excess() error {
	switch elements, members := b.MaxBytes/minElementBytes, b.MaxBytes/minMemberBytes; {
	case b.bytes > b.MaxBytes:
		return fmt.Errorf("it has more than %d MiB", b.MaxBytes>>20)
	case b.elements > elements:
		return fmt.Errorf("its lists have more than %d elements", elements)
	case b.members > members:
		return fmt.Errorf("its objects have more than %d members", members)
	}
	return nil
}
