package bench

import (
	"context"
	"os/exec"
	"strings"

	"github.com/weir-project/weir/internal/report"
	"github.com/weir-project/weir/internal/report/machine"
)

// environment describes the machine and what stands for containers on it.
func environment(ctx context.Context, b *bed, version string) report.Environment {
	e := machine.Read(version)
	e.TC = saysOr(ctx, report.Unknown, "tc", "-V")
	e.Containers = "network namespaces"
	if b.engine != nil {
		e.Containers = saysOr(ctx, "docker "+report.Unknown, "dockerd", "--version")
	}
	return e
}

// saysOr is what a program prints of itself, or something else if it cannot.
func saysOr(ctx context.Context, otherwise, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return otherwise
	}
	return strings.TrimSpace(string(out))
}
