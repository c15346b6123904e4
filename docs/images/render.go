//go:build ignore

// Render turns what `weir demo` prints without a terminal into a picture: the
// last table of each scene that is named by its number.
//
//	go run docs/images/render.go 4 5 6 <demo.txt >docs/images/demo.svg
//
// Bars are drawn as boxes, so that no font has to have their characters.
package main

import (
	"bufio"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scene is a scene's text and its last table.
type scene struct{ text, table []string }

// read splits the demo's output: scenes begin with "== ", tables end with an
// empty line after the last row.
func read() []scene {
	var scenes []scene
	var block []string
	inText := false
	flush := func() {
		if len(block) > 0 && len(scenes) > 0 {
			last := &scenes[len(scenes)-1]
			switch {
			case inText:
				last.text = block
			case strings.HasPrefix(block[0], "NAME"):
				last.table = append(last.table[:1:1], block...)
			default:
				last.table = append([]string(nil), block...)
			}
		}
		block, inText = nil, false
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "== "); ok {
			flush()
			scenes = append(scenes, scene{})
			inText, line = true, text
		}
		if line == "" {
			flush()
			continue
		}
		block = append(block, line)
	}
	flush()
	return scenes
}

const (
	cellWidth, lineHeight = 7.4, 17.0
	margin                = 14.0
	background            = "#16191f"
	plain, dim, strong    = "#c9d1d9", "#3b4350", "#ffffff"
	caption, barColour    = "#e8b454", "#4aa3df"
)

func main() {
	scenes := read()
	var body strings.Builder
	y, columns := margin, 0
	for i, arg := range os.Args[1:] {
		number, err := strconv.Atoi(arg)
		if err != nil || number < 1 || number > len(scenes) {
			fmt.Fprintf(os.Stderr, "render: there is no scene %q\n", arg)
			os.Exit(1)
		}
		if i > 0 {
			y += lineHeight
		}
		for _, line := range scenes[number-1].text {
			y = text(&body, y, line, caption)
			columns = max(columns, utf8.RuneCountInString(line))
		}
		y += lineHeight / 3
		for j, line := range scenes[number-1].table {
			colour := plain
			if j < 2 {
				colour = strong
			}
			y = text(&body, y, line, colour)
			columns = max(columns, utf8.RuneCountInString(line))
		}
	}
	width, height := float64(columns)*cellWidth+2*margin, y+margin
	fmt.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="12">
<rect width="100%%" height="100%%" rx="6" fill="%s"/>
%s</svg>
`, width, height, width, height, background, body.String())
}

// text draws a line of text and bars and returns where the next one goes.
func text(out *strings.Builder, y float64, line, colour string) float64 {
	const partial = "▏▎▍▌▋▊▉█"
	var word []rune
	start := 0
	flush := func() {
		if len(word) > 0 {
			fmt.Fprintf(out, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s">%s</text>`+"\n",
				margin+float64(start)*cellWidth, y+12, float64(len(word))*cellWidth, colour, html.EscapeString(string(word)))
		}
		word = nil
	}
	box := func(column int, part, top, height float64, colour string) {
		fmt.Fprintf(out, `<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" fill="%s"/>`+"\n",
			margin+float64(column)*cellWidth, y+top, part*cellWidth, height, colour)
	}
	column := 0
	inBar := strings.Contains(line, "·") || strings.Contains(line, "█")
	for rest := []rune(line); len(rest) > 0; {
		run := 1 // characters that are drawn at once
		switch r := rest[0]; {
		case strings.ContainsRune(partial, r):
			flush()
			part := 0.0
			for run = 0; run < len(rest) && strings.ContainsRune(partial, rest[run]); run++ {
				part += float64(strings.IndexRune(partial, rest[run])/len("█")+1) / 8
			}
			box(column, part, 2, 12, barColour)
		case r == '·':
			flush()
			for run < len(rest) && rest[run] == '·' {
				run++
			}
			fmt.Fprintf(out, `<path d="M%.1f %.1fh%.1f" stroke="%s" stroke-width="2" stroke-dasharray="2 %.1f"/>`+"\n",
				margin+(float64(column)+0.3)*cellWidth, y+8, (float64(run)-0.3)*cellWidth, dim, cellWidth-2)
		case r == '|' && inBar:
			flush()
			box(column, 0.25, 0, 16, strong)
		case r == ' ':
			flush()
		default:
			if len(word) == 0 {
				start = column
			}
			word = append(word, r)
		}
		rest, column = rest[run:], column+run
	}
	flush()
	return y + lineHeight
}
