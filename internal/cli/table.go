package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/cmdline"
)

// textTable is a table for people, each row of which may have a note: a sentence
// that is longer than a column should be.
type textTable struct {
	header []string
	// note heads the notes.
	note string
	// dispensable are the columns that a narrow terminal does without, in the
	// order in which they go.
	dispensable []string
	rows        [][]string
	notes       []string
}

func (t *textTable) add(row []string, note string) {
	t.rows, t.notes = append(t.rows, row), append(t.notes, note)
}

const (
	columnGap = 2
	// noteIndent and minNoteWidth are of notes in lines of their own.
	noteIndent   = 4
	minNoteWidth = 20
)

// print writes the table for a terminal with so many columns; 0 for a file or a
// program, which get everything in one line a row. On a terminal notes that would
// not fit are wrapped below their rows, and columns may be left out.
func (t *textTable) print(w io.Writer, terminal int) error {
	columns := make([]int, len(t.header))
	used := 0
	for i := range columns {
		columns[i] = cmdline.TextWidth(t.header[i])
		for _, row := range t.rows {
			columns[i] = max(columns[i], cmdline.TextWidth(row[i]))
		}
		used += columns[i] + columnGap
	}
	noteWidth := 0
	for _, note := range t.notes {
		noteWidth = max(noteWidth, cmdline.TextWidth(note))
	}
	apart := terminal > 0 && noteWidth > 0 && used+max(noteWidth, len(t.note)) > terminal
	hidden := map[int]bool{}
	if terminal > 0 {
		for _, name := range t.dispensable {
			if used-columnGap <= terminal {
				break
			}
			i := slices.Index(t.header, name)
			hidden[i] = true
			used -= columns[i] + columnGap
		}
	}
	var b strings.Builder
	line := func(cells []string, note string) {
		var text strings.Builder
		for i, cell := range cells {
			if !hidden[i] {
				text.WriteString(cell + strings.Repeat(" ", columns[i]-cmdline.TextWidth(cell)+columnGap))
			}
		}
		if !apart {
			text.WriteString(note)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	line(t.header, t.note)
	for i, row := range t.rows {
		line(row, t.notes[i])
		if !apart || t.notes[i] == "" {
			continue
		}
		for _, text := range cmdline.Wrap(t.notes[i], max(terminal-noteIndent, minNoteWidth)) {
			b.WriteString(strings.Repeat(" ", noteIndent) + text + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
