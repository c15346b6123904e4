package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Picture is what [Show] keeps on a terminal. Its methods are called one after the other, and
// so is what a question returns.
type Picture interface {
	// Question returns the question for the next sample. Show runs it beside everything else,
	// for at most [questionTime], and then the function that it returns.
	Question() func(context.Context) (answer func())
	// Press handles a key: its character, or up, down, left, right, pgup, pgdown, home, end.
	Press(key string)
	// Resize tells the size of the terminal in characters.
	Resize(width, height int)
	// View returns the lines to show.
	View() string
}

// questionTime bounds one question.
const questionTime = 5 * time.Second

// Show shows a picture on the terminal out, and asks its questions every interval, until the
// user presses q, Esc or Ctrl-C, the process gets a signal to end, or ctx ends. Then the
// terminal is as it was before.
func Show(ctx context.Context, out io.Writer, interval time.Duration, picture Picture) error {
	// A signal that is ignored, as nohup does with SIGHUP, stays ignored.
	ends := slices.DeleteFunc([]os.Signal{syscall.SIGHUP}, signal.Ignored)
	ctx, stop := signal.NotifyContext(ctx, append(ends, os.Interrupt, syscall.SIGTERM)...)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	file, ok := out.(*os.File)
	if !ok {
		return errors.New("show: the output is not a terminal")
	}
	s, err := openScreen(file)
	if err != nil {
		return fmt.Errorf("show: %w", err)
	}
	defer s.close()
	s.show(ctx, interval, picture, resized)
	return nil
}

// show is the loop of [Show].
func (s *screen) show(ctx context.Context, interval time.Duration, picture Picture, resized <-chan os.Signal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan func(), 1)
	due := time.NewTimer(interval)
	defer due.Stop()
	height := s.resize(picture)
	for {
		s.draw(picture.View(), height)
		select {
		case <-ctx.Done():
			return
		case key, ok := <-s.keys:
			if !ok || slices.Contains([]string{"q", "esc", "ctrl+c"}, key) {
				return
			}
			picture.Press(key)
		case <-resized:
			height = s.resize(picture)
		case <-due.C:
			question := picture.Question()
			go func() {
				defer func() {
					// The loop panics in its place, so that Show closes the screen before.
					if reason := recover(); reason != nil {
						trace := debug.Stack()
						answers <- func() { panic(fmt.Sprintf("%v\n\n%s", reason, trace)) }
					}
				}()
				ctx, cancel := context.WithTimeout(ctx, questionTime)
				defer cancel()
				answers <- question(ctx)
			}()
		case answer := <-answers:
			answer()
			due.Reset(interval)
		}
	}
}

// resize tells a picture the size of the terminal and returns the height.
func (s *screen) resize(picture Picture) int {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width == 0 || height == 0 {
		width, height = 80, 24
	}
	picture.Resize(width, height)
	return height
}

const (
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l" // alternate screen, long lines cut, no cursor
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
	drawTime    = time.Second // for a terminal that takes no more text to take the last
)

// screen is a terminal in raw mode.
type screen struct {
	in, out *os.File
	before  *term.State
	keys    chan string // closed when the keyboard is gone
	wake    [2]*os.File // a pipe, whose closed end stops the reader of keys
	frames  chan string
	last    string        // the last frame
	painted chan struct{} // closed when the last frame was painted
}

// openScreen puts the terminal into raw mode; keys are read from standard input, or from the
// controlling terminal if that is something else.
func openScreen(out *os.File) (_ *screen, err error) {
	s := &screen{in: os.Stdin, out: out, keys: make(chan string), frames: make(chan string, 1), painted: make(chan struct{})}
	if !term.IsTerminal(int(s.in.Fd())) {
		if s.in, err = os.Open("/dev/tty"); err != nil {
			return nil, err
		}
	}
	if s.wake[0], s.wake[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.before, err = term.MakeRaw(int(s.in.Fd())); err != nil {
		return nil, err
	}
	go s.paint()
	go s.readKeys()
	return s, nil
}

// close puts the terminal back as it was.
func (s *screen) close() {
	s.wake[1].Close()
	close(s.frames)
	select {
	case <-s.painted:
	case <-time.After(drawTime):
	}
	_ = term.Restore(int(s.in.Fd()), s.before) // what is gone needs none
}

// draw shows the first lines of a text, if they are others than before. It does not wait for
// the terminal: a text that was not yet painted is dropped.
func (s *screen) draw(text string, height int) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	text = "\x1b[H" + strings.Join(lines[:min(len(lines), height)], "\x1b[K\r\n") + "\x1b[K\x1b[J"
	if text == s.last {
		return
	}
	s.last = text
	select {
	case <-s.frames:
	default:
	}
	s.frames <- text
}

// paint writes frames to the terminal, which may take none for as long as it likes.
func (s *screen) paint() {
	defer close(s.painted)
	_, _ = s.out.WriteString(enterScreen) // a terminal that is gone ends the keys, too
	for frame := range s.frames {
		_, _ = s.out.WriteString(frame)
	}
	_, _ = s.out.WriteString(leaveScreen)
}
