// Package exposition writes metrics in Prometheus' text exposition format, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/.
package exposition

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ContentType is the content type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Family is one metric with all its values: a counter or a gauge.
type Family struct {
	Name, Help string
	Counter    bool

	series []series
}

type series struct {
	labels string
	value  float64
}

// Add adds a sample; labels alternates names and values.
func (f *Family) Add(value float64, labels ...string) {
	f.series = append(f.series, series{Labels(labels...), value})
}

// Write writes families, omitting those without samples.
func Write(w io.Writer, families ...Family) error {
	out := NewWriter(w)
	for _, f := range families {
		for i, s := range f.series {
			if i == 0 {
				out.Head(f.Name, f.Help, Kind(f.Counter))
			}
			out.Sample(f.Name, s.labels, s.value)
		}
	}
	return out.Err()
}

// Kind returns the name of a family's type.
func Kind(counter bool) string {
	if counter {
		return "counter"
	}
	return "gauge"
}

// Writer writes samples line by line in a reused buffer, for families too large to hold in
// memory. After an error it writes nothing more.
type Writer struct {
	w    io.Writer
	line []byte
	err  error
}

// NewWriter returns a writer of metrics to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Err returns the first error.
func (w *Writer) Err() error {
	if w.err != nil {
		return fmt.Errorf("write metrics: %w", w.err)
	}
	return nil
}

// Head writes the lines above the samples of a family.
func (w *Writer) Head(name, help, kind string) {
	w.writeLine(fmt.Appendf(w.line[:0], "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind))
}

// Sample writes one sample, with labels as [Labels] returns them.
func (w *Writer) Sample(name, labels string, value float64) {
	line := w.line[:0]
	line = append(line, name...)
	if labels != "" {
		line = append(line, '{')
		line = append(line, labels...)
		line = append(line, '}')
	}
	line = strconv.AppendFloat(append(line, ' '), value, 'g', -1, 64)
	w.writeLine(append(line, '\n'))
}

func (w *Writer) writeLine(line []byte) {
	w.line = line
	if w.err == nil {
		_, w.err = w.w.Write(line)
	}
}

// inQuotes escapes the value of a label.
var inQuotes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// Labels formats alternating label names and values for Sample. Invalid UTF-8 in values is
// replaced.
func Labels(words ...string) string {
	var b strings.Builder
	for i := 0; i < len(words); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(words[i] + `="` + inQuotes.Replace(strings.ToValidUTF8(words[i+1], "\uFFFD")) + `"`)
	}
	return b.String()
}

// BytesPerSecond converts bits per second to Prometheus' base unit.
func BytesPerSecond(bps uint64) float64 { return float64(bps) / 8 }

// Truth returns 1 for true and 0 for false.
func Truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
