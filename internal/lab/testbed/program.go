package testbed

import (
	"context"
	"os/exec"
	"strings"
)

// SaysOr is what a program prints of itself, or something else if it cannot.
func SaysOr(ctx context.Context, otherwise, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return otherwise
	}
	return strings.TrimSpace(string(out))
}
