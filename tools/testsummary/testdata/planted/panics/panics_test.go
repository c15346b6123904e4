// Package panics ends in the middle of a test.
package panics

import "testing"

func TestPanic(*testing.T) { panic("planted panic") }

func TestNeverReached(*testing.T) {}
