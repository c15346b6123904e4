// Package quiet keeps commands from asking the terminal for the colour of its background.
//
// Bubble Tea does that as it is initialized (tea_init.go, until its version 2), in every
// command of a program that it is a part of, and waits up to 5 s for the answer: a terminal
// that nobody sits at (script, a CI's, docker run -t) has none, and one whose input goes
// elsewhere (docker exec -t) answers to the shell. Nothing here has colours that depend on it.
//
// The library behind it, termenv, asks nothing where CI is in the environment. So that is there
// until [Restore], from before the library is initialized: of packages that could be next the
// first by import path is (The Go Programming Language Specification, Package initialization),
// and this one, which imports os alone, is before os/exec, which termenv imports. If that were
// wrong, the terminal would be asked, and no more.
package quiet

import "os"

const name = "CI"

var value, given = hide()

// hide returns what was in the environment.
func hide() (string, bool) {
	value, given := os.LookupEnv(name)
	_ = os.Setenv(name, "1") // it fails for other names
	return value, given
}

// Restore puts the environment back as it was, for a package that imports Bubble Tea to call
// as it is initialized. It is always true.
func Restore() bool {
	if given {
		_ = os.Setenv(name, value)
	} else {
		_ = os.Unsetenv(name)
	}
	return true
}
