package cmdline

import (
	"io"
	"slices"
	"strings"
)

// TextTable is a table for people. A row may have a note: a sentence too long for a column.
type TextTable struct {
	Header []string
	// Note heads the column of notes.
	Note string
	// Dispensable are the columns to omit on a narrow terminal, the first one first.
	Dispensable []string
	rows        [][]string
	notes       []string
}

// Add appends a row and its note, both made Printable.
func (t *TextTable) Add(row []string, note string) {
	for i := range row {
		row[i] = Printable(row[i])
	}
	t.rows, t.notes = append(t.rows, row), append(t.notes, Printable(note))
}

const (
	columnGap = 2
	// noteIndent is how far notes in lines of their own are indented, in characters.
	noteIndent = 4
	// MinNoteWidth is the smallest width of such a line, in characters.
	MinNoteWidth = 20
)

// Print writes the table for a terminal of the given width; 0 means a file or pipe, with
// one line per row. On a terminal, long notes are wrapped below their rows, and dispensable
// columns may be omitted.
func (t *TextTable) Print(w io.Writer, terminal int) error {
	columns := make([]int, len(t.Header))
	used := 0
	for i := range columns {
		columns[i] = TextWidth(t.Header[i])
		for _, row := range t.rows {
			columns[i] = max(columns[i], TextWidth(row[i]))
		}
		used += columns[i] + columnGap
	}
	noteWidth := 0
	for _, note := range t.notes {
		noteWidth = max(noteWidth, TextWidth(note))
	}
	apart := terminal > 0 && noteWidth > 0 && used+max(noteWidth, len(t.Note)) > terminal
	hidden := map[int]bool{}
	if terminal > 0 {
		for _, name := range t.Dispensable {
			if used-columnGap <= terminal {
				break
			}
			i := slices.Index(t.Header, name)
			hidden[i] = true
			used -= columns[i] + columnGap
		}
	}
	var b strings.Builder
	line := func(cells []string, note string) {
		var text strings.Builder
		for i, cell := range cells {
			if !hidden[i] {
				text.WriteString(cell + strings.Repeat(" ", columns[i]-TextWidth(cell)+columnGap))
			}
		}
		if !apart {
			text.WriteString(note)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	line(t.Header, t.Note)
	for i, row := range t.rows {
		line(row, t.notes[i])
		if !apart || t.notes[i] == "" {
			continue
		}
		for _, text := range Wrap(t.notes[i], max(terminal-noteIndent, MinNoteWidth)) {
			b.WriteString(strings.Repeat(" ", noteIndent) + text + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Bar draws a part of a whole, from 0 to 1, in eighths of a character, with a mark at another
// part; 0: no mark.
func Bar(part, mark float64, width int) string {
	const eighths = " ▏▎▍▌▋▊▉"
	filled := int(part*float64(width)*8 + 0.5)
	at := min(int(mark*float64(width)), width-1)
	var b strings.Builder
	for i := range width {
		switch rest := filled - i*8; {
		case i == at && mark > 0 && rest < 8:
			b.WriteRune('|')
		case rest >= 8:
			b.WriteRune('█')
		case rest > 0:
			b.WriteRune([]rune(eighths)[rest])
		default:
			b.WriteRune('·')
		}
	}
	return b.String()
}
