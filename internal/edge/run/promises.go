package run

import (
	"context"
	"errors"
	"maps"

	"github.com/weir-project/weir/internal/edge/engine"
)

// promiseStep is the change of instances' promises besides decisions: gone are withdrawn, adopted are
// added.
type promiseStep struct {
	gone    []string
	adopted engine.Promises
	err     error // of apply
}

// apply changes the ledger. On a conflict the next round tries again.
func (s *promiseStep) apply(ctx context.Context, ledger engine.Ledger) {
	if len(s.gone) == 0 && len(s.adopted) == 0 {
		return
	}
	err := engine.Release(ctx, ledger, s.gone...)
	if err == nil {
		err = s.adopt(ctx, ledger)
	}
	if !errors.Is(err, engine.ErrConflict) {
		s.err = err
	}
}

func (s *promiseStep) adopt(ctx context.Context, ledger engine.Ledger) error {
	if len(s.adopted) == 0 {
		return nil
	}
	promises, token, err := ledger.Read(ctx)
	if err != nil {
		return err
	}
	maps.Copy(promises, s.adopted)
	return ledger.Swap(ctx, token, promises)
}
