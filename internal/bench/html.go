package bench

import "io"

// WriteHTML writes a report.
func (r Report) WriteHTML(w io.Writer) error { return nil }
