package swarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// labelHeartbeat is what the swarm's heartbeat was before weir-edge set it.
const labelHeartbeat = "weir-edge.heartbeat-before"

// Down removes what weir-edge keeps in the swarm when no service is left: what is
// promised, the key of the proxies, this node's image of them, its own heartbeat, and what binds
// managed services to nodes.
func (r *Runtime) Down(ctx context.Context) error {
	errs := []error{r.putBackHeartbeat(ctx)}
	bound, err := r.services(ctx, labelMove)
	errs = append(errs, err, unbind(ctx, r.api, bound))
	configs, err := r.configs(ctx, runtime.LabelRole)
	errs = append(errs, err)
	for _, config := range configs {
		errs = append(errs, r.removeObject(ctx, kindConfig, config.Spec.Name))
	}
	secrets, err := r.api.SecretList(ctx, client.SecretListOptions{Filters: make(client.Filters).Add("label", runtime.LabelRole)})
	errs = append(errs, err)
	for _, secret := range secrets.Items {
		errs = append(errs, r.removeObject(ctx, kindSecret, secret.Spec.Name))
	}
	if _, err := r.api.ImageRemove(ctx, proxy.Image, client.ImageRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) {
		errs = append(errs, err) // a conflict: its last container is ending
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what weir-edge keeps in the swarm: %w", err)
	}
	return nil
}

// putBackHeartbeat sets the heartbeat to what it was, unless another program has
// set it since.
func (r *Runtime) putBackHeartbeat(ctx context.Context) error {
	ledger, err := r.config(ctx, ledgerName)
	if cerrdefs.IsNotFound(err) {
		return nil // weir-edge never ran here
	} else if err != nil {
		return err
	}
	before, err := time.ParseDuration(ledger.Spec.Labels[labelHeartbeat])
	if err != nil {
		return nil //nolint:nilerr // weir-edge has not set it
	}
	found, err := r.api.SwarmInspect(ctx, client.SwarmInspectOptions{})
	if err != nil {
		return r.unreachable(err)
	}
	spec := found.Swarm.Spec
	if spec.Dispatcher.HeartbeatPeriod != heartbeat {
		return nil
	}
	spec.Dispatcher.HeartbeatPeriod = before
	_, err = r.api.SwarmUpdate(ctx, client.SwarmUpdateOptions{Version: found.Swarm.Version, Spec: spec})
	return err
}
