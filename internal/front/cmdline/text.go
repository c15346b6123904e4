package cmdline

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Printable makes text that others chose (names of containers, of labels, of
// devices, and messages that quote them) safe for a terminal: characters that a
// terminal obeys or hides are written as in a Go string literal. Such text
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

// isPrintable reports whether a text has only letters, marks, numbers, punctuation,
// symbols and the plain space: no control characters, and none that change the
// direction of text or have no width.
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

// TextWidth returns how many columns of a terminal a text takes.
func TextWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth returns the columns of a character: 2 for wide ones of East Asia and most emoji, 0
// for marks on the character before (Unicode Standard Annex 11).
func runeWidth(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cut shortens a text to so many columns.
func Cut(text string, columns int) string {
	if TextWidth(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		if used += runeWidth(r); used >= columns { // the last column is the ellipsis's
			return text[:i] + "…"[:min(max(columns, 0), 1)*len("…")]
		}
	}
	return ""
}

// Wrap breaks a text into lines of at most so many columns, between words where there are any.
func Wrap(text string, columns int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case TextWidth(*last)+1+TextWidth(word) <= columns:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// IsTerminal reports whether a reader or writer is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// TerminalWidth returns how many columns the terminal w has, or 0 if w is none or does not say.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd())) // 0 with an error
	return columns
}
