package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// A plain engine has no store whose entries have versions. It has containers, whose
// names only one can have at a time. So the ledger is a container that was never
// started, with the promises as a label and its version in its name, and the one with
// the highest version is in force.
//
// A change makes the next version. If that name is taken, another weir-edge was faster. If
// versions above it are there afterwards, another weir-edge was faster by more than one and
// has removed those in between; then the new one is removed again. A version is removed only
// when a higher one is there, so that is always seen.

const (
	labelVersion  = "weir-edge.version"
	labelPromises = "weir-edge.promises"
)

// ledger implements engine.Ledger.
type ledger struct{ r *Runtime }

// Ledger implements runtime.Runtime.
func (r *Runtime) Ledger() engine.Ledger { return ledger{r} }

func ledgerName(version uint64) string { return fmt.Sprintf("edgeledger-%d", version) }

// versions are the containers that are or were the ledger, by version.
func (l ledger) versions(ctx context.Context) (byVersion map[uint64]container.Summary, latest uint64, err error) {
	listed, err := l.r.own(ctx, runtime.LabelRole+"="+runtime.RoleLedger)
	if err != nil {
		return nil, 0, err
	}
	byVersion = map[uint64]container.Summary{}
	for _, c := range listed {
		version, ok := versionOf(c)
		if !ok {
			continue // not ours
		}
		byVersion[version] = c
		latest = max(latest, version)
	}
	return byVersion, latest, nil
}

// Read implements engine.Ledger.
func (l ledger) Read(ctx context.Context) (engine.Promises, engine.Token, error) {
	byVersion, latest, err := l.versions(ctx)
	if err != nil {
		return nil, "", err
	}
	// What cannot be read is skipped, and Look reports it. The next change is a version after
	// it.
	token := engine.Token(strconv.FormatUint(latest, 10))
	for _, version := range slices.Backward(slices.Sorted(maps.Keys(byVersion))) {
		if promises, err := promisesOf(byVersion[version]); err == nil {
			return promises, token, nil
		}
	}
	return engine.Promises{}, token, nil
}

// Swap implements engine.Ledger.
func (l ledger) Swap(ctx context.Context, token engine.Token, promises engine.Promises) error {
	version, err := strconv.ParseUint(string(token), 10, 64)
	if err != nil {
		return fmt.Errorf("change what is promised: %q is not a version", token)
	}
	text, err := json.Marshal(promises)
	if err != nil {
		return fmt.Errorf("write what is promised: %w", err)
	}
	if err := runtime.LoadProxyImage(ctx, l.r.api); err != nil { // it needs one, and that is there anyway
		return err
	}
	created, err := l.r.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: ledgerName(version + 1),
		Config: &container.Config{Image: proxy.Image, Cmd: []string{"-"}, Labels: map[string]string{
			runtime.LabelRole: runtime.RoleLedger,
			labelVersion:      strconv.FormatUint(version+1, 10),
			labelPromises:     string(text),
		}},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if cerrdefs.IsConflict(err) {
		return engine.ErrConflict
	} else if err != nil {
		return fmt.Errorf("write what is promised: %w", err)
	}
	byVersion, latest, err := l.versions(ctx)
	if err != nil {
		return errors.Join(err, l.r.remove(context.WithoutCancel(ctx), created.ID))
	}
	if latest > version+1 {
		return errors.Join(engine.ErrConflict, l.r.remove(ctx, created.ID))
	}
	for v, c := range byVersion {
		if v <= version {
			err = errors.Join(err, l.r.remove(ctx, c.ID))
		}
	}
	if err != nil {
		return fmt.Errorf("remove an old version of what is promised: %w", err)
	}
	return nil
}
