// Package planted has one test of each outcome. It shows that the harness can
// fail; see summary_test.go.
package planted

import "testing"

func TestPass(t *testing.T) {
	t.Run("a", func(*testing.T) {})
	t.Run("b", func(*testing.T) {})
}

func TestFail(t *testing.T) {
	t.Run("good", func(*testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("planted failure") })
}

func TestSkip(t *testing.T) { t.Skip("planted skip") }
