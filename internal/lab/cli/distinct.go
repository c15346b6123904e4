package cli

import (
	"fmt"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/share/policy"
)

// distinct refuses the values of a list flag if one is there twice: it would be measured
// twice, and the results be told apart by nothing. text is how a value is written.
func distinct[T comparable](flag string, values []T, text func(T) string) error {
	seen := map[T]bool{}
	for _, value := range values {
		if seen[value] {
			return cmdline.Usagef("%s has %s twice: name each once", flag, text(value))
		}
		seen[value] = true
	}
	return nil
}

// plainText writes a value as it is.
func plainText[T any](value T) string { return fmt.Sprint(value) }

// linkText writes the rate of a link, which may be none.
func linkText(rateBPS uint64) string {
	if rateBPS == 0 {
		return "none"
	}
	return policy.FormatRate(rateBPS)
}
