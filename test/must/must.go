// Package must ends tests at errors.
package must

import "testing"

// Succeed ends the test with err unless it is nil.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
