package cmdline

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"
)

// Printable makes text that others chose (names of containers, of labels, of
// devices, and messages that quote them) safe for a terminal: whatever a terminal
// might obey, or hide, is written as a Go string literal writes it. Such text
// reaches root's terminal, and an escape sequence there can do anything that a
// key press can.
func Printable(text string) string {
	if isPrintable(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		_, size := utf8.DecodeRuneInString(text)
		if isPrintable(text[:size]) {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// isPrintable: letters, marks, numbers, punctuation, symbols and the plain space.
// Not among them are control characters, and those that change the direction of
// text or have no width.
func isPrintable(text string) bool {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// PrintableLines is Printable for a message of several lines.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// TextWidth is how many columns of a terminal a text takes.
func TextWidth(text string) int { return ansi.StringWidth(text) }

// Cut shortens a text to so many columns.
func Cut(text string, width int) string { return ansi.Truncate(text, max(width, 0), "…") }

// Wrap breaks a text into lines of at most width columns, between words where
// there are any.
func Wrap(text string, width int) []string {
	text = strings.Join(strings.Fields(text), " ")
	lines := strings.Split(ansi.Wordwrap(text, max(width, 1), ""), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// IsTerminal says whether a reader or writer is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// TerminalWidth is how many columns the terminal has that w is; 0 where it is
// none, or does not say.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
