package run

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

const (
	// orphanTimeout is after how long a promise without an instance is taken back. Who
	// takes longer to start it, because the image is large, finds that it is gone.
	orphanTimeout = 15 * time.Second
	// lateStart is how long the start of an instance may be on its way whose service has
	// been removed meanwhile.
	lateStart = 5 * time.Second
)

// mendPromises takes back what is promised to instances that nobody starts, and
// promises what instances have that nobody promised anything, where they are.
func (m *Manager) mendPromises(ctx context.Context, s *seen) {
	if m.opts.DryRun {
		return
	}
	gone := m.orphaned(s)
	adopted := engine.Promises{}
	m.mu.Lock()
	for _, c := range s.state.Instances {
		p, promised := s.promises[c.ID]
		if promised && p.Node == c.Node || m.stopping[c.ID] != nil || m.ended[c.ID].After(s.at) {
			continue
		}
		if !promised {
			parsed := s.specs[c.Service]
			p = engine.Promise{Service: c.Service, MinBPS: parsed.MinBPS(), LimitBytes: parsed.Limits.MemoryBytes}
		}
		p.Node = c.Node // nodes are called something else when another one of their name joins
		adopted[c.ID] = p
	}
	m.mu.Unlock()
	if len(gone) == 0 && len(adopted) == 0 {
		return
	}
	err := engine.Release(ctx, m.rt.Ledger(), gone...)
	if err == nil {
		err = m.adopt(ctx, adopted)
	}
	if err != nil && !errors.Is(err, engine.ErrConflict) { // the next round tries again
		m.failed("", "", "", err)
		return
	}
	for _, id := range gone {
		delete(m.orphans, id)
	}
}

// adopt promises instances what they have.
func (m *Manager) adopt(ctx context.Context, adopted engine.Promises) error {
	if len(adopted) == 0 {
		return nil
	}
	promises, token, err := m.rt.Ledger().Read(ctx)
	if err != nil {
		return err
	}
	maps.Copy(promises, adopted)
	return m.rt.Ledger().Swap(ctx, token, promises)
}

// orphaned are promises that have had no instance for too long.
func (m *Manager) orphaned(s *seen) (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.orphans, func(id string, _ time.Time) bool { _, promised := s.promises[id]; return !promised })
	for id, p := range s.promises {
		if p.Relay {
			continue
		}
		_, deployed := s.specs[p.Service]
		_, broken := s.broken[p.Service]
		removed := !deployed && !broken
		here := slices.ContainsFunc(s.state.Instances, func(c runtime.Instance) bool { return c.ID == id })
		switch since := m.orphans[id]; {
		case here || m.starting[id] != nil && !removed || m.stopping[id] != nil:
			delete(m.orphans, id)
		case since.IsZero():
			m.orphans[id] = time.Now()
		case time.Since(since) > orphanTimeout, removed && time.Since(since) > lateStart:
			gone = append(gone, id)
		}
	}
	return gone
}
