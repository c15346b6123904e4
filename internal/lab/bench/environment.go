package bench

import (
	"context"

	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Environment describes the machine and what stands for containers on it.
func (b *Bed) Environment(ctx context.Context, version string) report.Environment {
	e := machine.Read(version)
	e.TC = testbed.SaysOr(ctx, report.Unknown, "tc", "-V")
	e.Containers = "network namespaces"
	if b.engine != nil {
		e.Containers = testbed.SaysOr(ctx, "docker "+report.Unknown, "dockerd", "--version")
	}
	return e
}
