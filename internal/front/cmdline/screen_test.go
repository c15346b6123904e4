package cmdline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/test/must"
)

// testPicture shows its size and the keys that were pressed.
type testPicture struct {
	width, height, asked int
	keys                 []string
	filler               string
}

func (p *testPicture) Resize(width, height int) { p.width, p.height = width, height }

func (p *testPicture) View() string {
	return fmt.Sprintf("%d by %d, asked %t, %s%s\nsecond line\n", p.width, p.height, p.asked > 0, strings.Join(p.keys, " "), p.filler)
}

func (p *testPicture) Press(key string) {
	if key == "p" {
		panic("pressed")
	}
	p.keys = append(p.keys, key)
}

func (p *testPicture) Question() func(context.Context) func() {
	keys := strings.Join(p.keys, "")
	return func(context.Context) func() {
		if keys == "x" {
			panic("asked")
		}
		return func() {
			if p.asked++; keys == "f" { // more text, and other text each time, than the terminal takes
				p.filler = strings.Repeat(fmt.Sprint(p.asked), 100_000)
			}
		}
	}
}

// shownProgram is a program that shows a picture on a terminal.
type shownProgram struct {
	*exec.Cmd
	master, terminal *os.File
	before           *unix.Termios
	mu               sync.Mutex
	output           bytes.Buffer
	stopped          bool // the terminal takes no text
	ended            chan struct{}
}

// startShow runs this test as a program on a terminal of its own, until its first picture.
func startShow(t *testing.T) *shownProgram {
	t.Helper()
	p := &shownProgram{ended: make(chan struct{})}
	p.master, p.terminal = openTerminal(t)
	p.resize(t, 60, 10)
	p.before, _ = unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS)
	p.Cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestShow$")
	p.Env = append(os.Environ(), "WEIR_TEST_SHOW=1", "GORACE=atexit_sleep_ms=0") // the race detector's second
	p.Stdin, p.Stdout, p.Stderr = p.terminal, p.terminal, p.terminal
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Succeed(t, p.Start())
	go func() {
		_ = p.Wait()
		close(p.ended)
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := p.master.Read(buffer)
			p.mu.Lock()
			p.output.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil || p.isStopped() {
				return
			}
		}
	}()
	p.await(t, "second line")
	return p
}

func (p *shownProgram) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

func (p *shownProgram) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

func (p *shownProgram) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	must.Succeed(t, unix.IoctlSetWinsize(int(p.terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
}

// text is the last of what the program wrote.
func (p *shownProgram) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.output.String()
	return text[max(len(text)-10_000, 0):]
}

// patience is for how long a program of a test may need for what it does at once.
const patience = 30 * time.Second

func (p *shownProgram) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.text(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q is not in %q", text, p.text())
		}
	}
}

func (p *shownProgram) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (p *shownProgram) send(t *testing.T, signal os.Signal) {
	t.Helper()
	must.Succeed(t, p.Process.Signal(signal))
}

// expectEnd fails unless the program ends and the terminal is as it was before.
func (p *shownProgram) expectEnd(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.Process.Kill()
		t.Fatalf("it goes on: %q", p.text())
	}
	if p.ProcessState.ExitCode() != code {
		t.Errorf("%s, want exit code %d: %q", p.ProcessState, code, p.text())
	}
	if !p.isStopped() {
		p.await(t, leaveScreen)
	}
	after, err := unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS)
	if err != nil || *after != *p.before {
		t.Errorf("the terminal has the modes %+v (%v), want those of before: %+v", after, err, p.before)
	}
}

// A picture ends with every key, signal and failure that it has to end with, each time, also
// where the command itself waits for the same signals; and it leaves the terminal as it was.
func TestShow(t *testing.T) {
	if os.Getenv("WEIR_TEST_SHOW") != "" {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // the test may run where it is ignored
		root := &cobra.Command{Use: "show", RunE: func(cmd *cobra.Command, _ []string) error {
			return Show(cmd.Context(), cmd.OutOrStdout(), 10*time.Millisecond, &testPicture{})
		}}
		SetUp(root)
		os.Exit(Run(root, nil, os.Stdout, os.Stderr))
	}
	const panicked = 2
	for _, test := range []struct {
		name  string
		times int
		code  int
		end   func(t *testing.T, p *shownProgram)
	}{
		{"SIGTERM", 30, 0, func(t *testing.T, p *shownProgram) { p.send(t, syscall.SIGTERM) }},
		{"SIGINT", 30, 0, func(t *testing.T, p *shownProgram) { p.send(t, syscall.SIGINT) }},
		{"SIGHUP", 3, 0, func(t *testing.T, p *shownProgram) { p.send(t, syscall.SIGHUP) }},
		{"q", 3, 0, func(t *testing.T, p *shownProgram) { p.press(t, "q") }},
		{"Ctrl-C", 3, 0, func(t *testing.T, p *shownProgram) { p.press(t, "\x03") }},
		{"Esc", 3, 0, func(t *testing.T, p *shownProgram) { p.press(t, "\x1b") }},
		{"panic in a key", 1, panicked, func(t *testing.T, p *shownProgram) { p.press(t, "p") }},
		{"panic in a question", 30, panicked, func(t *testing.T, p *shownProgram) { p.press(t, "x") }},
		{"a terminal that takes no text", 1, 0, func(t *testing.T, p *shownProgram) {
			p.stop()
			p.press(t, "f")
			time.Sleep(100 * time.Millisecond)
			p.send(t, syscall.SIGTERM)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range test.times {
				p := startShow(t)
				test.end(t, p)
				p.expectEnd(t, test.code)
			}
		})
	}
}

// A question that panics does so in Show's goroutine, which closes the screen before the process
// ends, and with the stack of the question.
func TestPanicInQuestion(t *testing.T) {
	_, terminal := openTerminal(t)
	s := &screen{out: terminal, keys: make(chan string), frames: make(chan string, 1)}
	defer func() {
		if reason := fmt.Sprint(recover()); !strings.HasPrefix(reason, "asked\n") || !strings.Contains(reason, "(*testPicture).Question") {
			t.Errorf("it panicked with %s", reason)
		}
	}()
	s.show(t.Context(), time.Millisecond, &testPicture{keys: []string{"x"}}, nil)
}

// A picture gets the size of the terminal, answers, and keys by their names.
func TestShowKeys(t *testing.T) {
	p := startShow(t)
	p.await(t, "60 by 10, asked true")
	p.press(t, "\x1b[A\x1bOB\x1b[5~\x1b[6;5~ü \x1b[99zs")
	p.await(t, "up down pgup ü   s")
	p.press(t, "\x1b")
	p.press(t, "[D") // the rest of a sequence comes later
	p.await(t, "s left")
	p.resize(t, 40, 1)
	p.await(t, "40 by 1,")
	last := p.text()[strings.LastIndex(p.text(), "40 by 1,"):]
	if strings.Contains(last, "second") {
		t.Errorf("more lines than the terminal has: %q", last)
	}
	p.press(t, "q")
	p.expectEnd(t, 0)
}

// A program whose terminal goes away ends.
func TestShowWithoutTerminal(t *testing.T) {
	p := startShow(t)
	p.terminal.Close()
	p.master.Close()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	if err := Show(t.Context(), io.Discard, time.Second, &testPicture{}); err == nil {
		t.Error("an output that is no terminal shows a picture")
	}
}

// openTerminal opens both ends of a terminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	// Without Fd, after which closing the file would wait for its reader.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must.Succeed(t, err)
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.Succeed(t, err)
	must.Succeed(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}
