package picasso

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

const (
	// memoryNodes have an engine and an agent each, and share the instances of
	// memoryServices.
	memoryNodes    = 10
	memoryServices = 5
	firstMemPort   = 8100
)

// memory measures the memory of weir-edge with ten nodes, their agents and services on them.
func (b *bed) memory(ctx context.Context) (err error) {
	if b.late() {
		return nil
	}
	if err := b.capCPUs(0); err != nil {
		return err
	}
	if err := b.grow(ctx, memoryNodes); err != nil {
		return err
	}
	if err := b.distribute(ctx); err != nil {
		return err
	}
	manager, end, err := b.startWeir(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for i := range memoryServices {
		name := fmt.Sprint("service", i)
		fmt.Fprintf(b.options.Progress, "%s on %d of %d nodes\n", name, memoryNodes/memoryServices, memoryNodes)
		if err := b.deploy(name, firstMemPort+i, memoryNodes/memoryServices, 1e6); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.remove(name)) }()
	}
	for i := range memoryServices {
		name := fmt.Sprint("service", i)
		if _, err := b.awaitShop(ctx, firstMemPort+i, memoryNodes/memoryServices, isInstanceOf(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	select { // rounds and questions go on
	case <-time.After(b.options.Duration):
	case <-ctx.Done():
		return ctx.Err()
	}
	b.found.EdgeNodes = memoryNodes
	b.found.EdgeResidentBytes, b.found.EdgePeakBytes, err = measure.ResidentBytes(manager.Pid())
	return err
}
