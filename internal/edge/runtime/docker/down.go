package docker

import (
	"context"
	"errors"
	"fmt"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Down removes what weir-edge keeps in the engine when no service is left: what is
// promised, and the proxies' image.
func (r *Runtime) Down(ctx context.Context) error {
	listed, err := r.own(ctx, runtime.LabelRole+"="+runtime.RoleLedger)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range listed {
		errs = append(errs, r.remove(ctx, c.ID))
	}
	if _, err := r.api.ImageRemove(ctx, proxy.Image, client.ImageRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what weir-edge keeps in the engine: %w", err)
	}
	return nil
}
