package cmdline

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalIsNotAsked: this program, of which Bubble Tea is a part as of every command,
// writes nothing to a terminal by itself, and finds CI in its environment only if it is there.
func TestTerminalIsNotAsked(t *testing.T) {
	if os.Getenv("WEIR_TEST_QUIET") != "" {
		fmt.Printf("CI=%q\n", os.Getenv("CI"))
		return
	}
	for _, ci := range []string{"", "CI=yes"} {
		master, terminal := openTerminal(t)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTerminalIsNotAsked$")
		child.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "CI=") })
		child.Env = append(child.Env, "TERM=xterm", "WEIR_TEST_QUIET=1", ci)
		child.Stdin, child.Stdout, child.Stderr = terminal, terminal, terminal
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		terminal.Close()
		said, _ := io.ReadAll(master) // EIO as the child ends
		if err := child.Wait(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
		want := fmt.Sprintf("CI=%q", strings.TrimPrefix(ci, "CI="))
		if text := string(said); strings.Contains(text, "\x1b") || !strings.Contains(text, want) {
			t.Errorf("with %q it writes %q, want %s and no escape", ci, text, want)
		}
	}
}

// openTerminal opens both ends of a terminal that nobody sits at.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}
