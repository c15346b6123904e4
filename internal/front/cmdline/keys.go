package cmdline

import (
	"errors"
	"regexp"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// readKeys sends the keys that are pressed until the screen is closed or the terminal is gone.
func (s *screen) readKeys() {
	defer close(s.keys)
	defer s.wake[0].Close()
	buffer := make([]byte, 256)
	for held := 0; ; {
		wait := -1
		if held > 0 {
			wait = sequenceTime
		}
		more, err := s.awaitInput(wait)
		if err != nil {
			return
		}
		if more {
			n, err := unix.Read(int(s.in.Fd()), buffer[held:])
			if err != nil || n == 0 {
				return
			}
			held += n
		}
		for held > 0 {
			key, size := nextKey(buffer[:held])
			if size == 0 { // the sequence is incomplete
				if more && held < len(buffer) {
					break
				}
				key, size = "esc", held
			}
			held = copy(buffer, buffer[size:held])
			if key != "" {
				select {
				case s.keys <- key:
				case <-s.painted:
					return
				}
			}
		}
	}
}

// sequenceTime is how long the rest of an escape sequence may take, in milliseconds.
const sequenceTime = 50

var errClosed = errors.New("the screen is closed")

// awaitInput waits for input, at most so many milliseconds if they are not negative.
func (s *screen) awaitInput(milliseconds int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(s.in.Fd()), Events: unix.POLLIN}, {Fd: int32(s.wake[0].Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, milliseconds)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, err
		case fds[1].Revents != 0:
			return false, errClosed
		default:
			return n > 0, nil
		}
	}
}

// sequences are the escape sequences of keys, with those that terminals send in their
// application mode: ECMA-48 and xterm's "ctlseqs".
var (
	sequence  = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|O[@-~])`)
	beginning = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*|O)?$`)
	keyNames  = map[string]string{
		"[A": "up", "[B": "down", "[C": "right", "[D": "left", "[H": "home", "[F": "end",
		"OA": "up", "OB": "down", "OC": "right", "OD": "left", "OH": "home", "OF": "end",
		"[1~": "home", "[4~": "end", "[5~": "pgup", "[6~": "pgdown", "[7~": "home", "[8~": "end",
	}
)

// nextKey returns the first key of the input and how many bytes it takes: "" for a key without
// a name, 0 bytes for a sequence whose end is missing.
func nextKey(input []byte) (key string, size int) {
	switch {
	case input[0] == 3:
		return "ctrl+c", 1
	case beginning.Match(input):
		return "", 0
	case sequence.Match(input):
		found := sequence.Find(input)
		return keyNames[string(found[1:])], len(found)
	case input[0] == 0x1b && input[1] == 0x1b:
		return "esc", 1
	case input[0] == 0x1b: // with Alt
		return "", 2
	}
	_, size = utf8.DecodeRune(input)
	return string(input[:size]), size
}
