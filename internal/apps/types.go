// Package apps classifies flows by their first packets: the kind of application, and how
// urgent it is.
//
// Problem: voice must not wait behind a download of the same container, and
// listing flows by hand is too much work. Method: Li and others, "A SDN-based QoS
// guaranteed technique for cloud applications", section III.B: decision trees
// (grown by internal/lab/train) over features of the first packet name one of ten application
// types; each type has one of three levels (table 1 there). A second stage
// looks again when the first packets' sizes are known. A verdict that is not
// confident enough is best effort, as it would be without Weir.
//
// Here differs from the paper: the initiator's port is not trusted, ports are
// looked up in a table of what listens where (package flow), and scores are
// taken on captures that the training never saw.
//
// Limits: all encrypted flows to port 443 look much the same at the first packet; docs/classifier.md has the numbers.
package apps

import (
	"fmt"
	"slices"
	"strings"
)

// Level is the urgency of a flow.
type Level uint8

// The levels, most urgent first.
const (
	EF Level = iota
	AF
	BE
	NumLevels = 3
)

var levelNames = [NumLevels]string{"EF", "AF", "BE"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// ParseLevel parses a level's name in upper or lower case.
func ParseLevel(s string) (Level, error) {
	if i := slices.Index(levelNames[:], strings.ToUpper(s)); i >= 0 {
		return Level(i), nil
	}
	return 0, fmt.Errorf("parse level: %q is none of EF, AF and BE", s)
}

// Types are the application types of the paper's table 1. A type is referred to by its
// index.
var Types = []string{"VOIP", "GAME", "SERVICES", "CHAT", "MULTIMEDIA", "WEB", "INTERACTIVE", "EMAIL", "BULK", "P2P"}

// NumTypes is the number of application types.
const NumTypes = 10

// Levels maps each type to its level.
type Levels [NumTypes]Level

// DefaultLevels returns the paper's table 1.
func DefaultLevels() Levels {
	return Levels{EF, EF, EF, EF, AF, AF, AF, BE, BE, BE}
}

// Override changes levels; each setting is TYPE=LEVEL.
func (l *Levels) Override(settings []string) error {
	for _, s := range settings {
		name, level, ok := strings.Cut(s, "=")
		i := slices.Index(Types, strings.ToUpper(strings.TrimSpace(name)))
		if !ok || i < 0 {
			return fmt.Errorf("set level: %q is not TYPE=LEVEL with a type of %s", s, strings.Join(Types, ", "))
		}
		parsed, err := ParseLevel(strings.TrimSpace(level))
		if err != nil {
			return fmt.Errorf("set level of %s: %w", Types[i], err)
		}
		l[i] = parsed
	}
	return nil
}
