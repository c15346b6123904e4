package cmdline

import (
	"io"
	"log/slog"
)

// Version is the program's version; the build sets it.
var Version = "dev"

// NewLogger returns a daemon's log: text on w, from level info, or from debug if verbose.
func NewLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
