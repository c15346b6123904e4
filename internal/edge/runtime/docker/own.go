package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// A container has the labels of its image as well, which may have any author. So a
// container is weir-edge's if its name is what its labels make it, and if its role is
// not what its image says.

// ownLabels are the labels that only weir-edge sets.
var ownLabels = []string{
	runtime.LabelService, runtime.LabelRole, runtime.LabelDocument, runtime.LabelInstance,
	runtime.LabelNode, runtime.LabelImage, runtime.LabelPinned, runtime.LabelProject, runtime.LabelMade, runtime.LabelUpdate,
	labelConfig, labelVersion, labelPromises, labelPorts,
}

// own returns the containers with a label that weir-edge created.
func (r *Runtime) own(ctx context.Context, label string) ([]container.Summary, error) {
	listed, err := r.list(ctx, label)
	if err != nil {
		return nil, err
	}
	var own []container.Summary
	for _, c := range listed {
		if !wellNamed(c) {
			continue
		}
		labels, err := r.labelsOf(ctx, c.ImageID)
		if err != nil {
			return nil, err
		}
		if _, copied := labels[runtime.LabelRole]; !copied {
			own = append(own, c)
		}
	}
	return own, nil
}

// labelsOf returns an image's labels; none if it has been removed.
func (r *Runtime) labelsOf(ctx context.Context, image string) (map[string]string, error) {
	r.mu.Lock()
	labels, known := r.imageLabels[image]
	r.mu.Unlock()
	if known {
		return labels, nil
	}
	found, err := r.api.ImageInspect(ctx, image)
	if cerrdefs.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, r.unreachable(err)
	}
	if found.Config != nil {
		labels = found.Config.Labels
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.imageLabels[image] = labels
	return labels, nil
}

// wellNamed reports whether a container's name matches its role.
func wellNamed(c container.Summary) bool {
	var name string
	switch c.Labels[runtime.LabelRole] {
	case runtime.RoleProxy:
		name = proxy.ContainerName(c.Labels[runtime.LabelService])
	case runtime.RoleInstance:
		name = proxy.InstanceName(c.Labels[runtime.LabelInstance])
	case runtime.RoleLedger:
		version, ok := versionOf(c)
		if !ok {
			return false
		}
		name = ledgerName(version)
	case roleTrial:
		return slices.ContainsFunc(c.Names, func(name string) bool { return strings.HasPrefix(name, "/"+trialPrefix) })
	default:
		return false
	}
	return slices.Contains(c.Names, "/"+name)
}

// maxVersion of the ledger is far beyond what one change a millisecond reaches in a
// thousand years, and far below where counting on would begin at 0 again.
const maxVersion = 1 << 53

func versionOf(c container.Summary) (uint64, bool) {
	version, err := strconv.ParseUint(c.Labels[labelVersion], 10, 64)
	return version, err == nil && version > 0 && version < maxVersion
}

// promisesOf returns the promises in a ledger version.
func promisesOf(c container.Summary) (engine.Promises, error) {
	promises := engine.Promises{}
	if err := json.Unmarshal([]byte(c.Labels[labelPromises]), &promises); err != nil {
		return nil, fmt.Errorf("read what is promised from the container %s: %w", strings.TrimPrefix(strings.Join(c.Names, " "), "/"), err)
	}
	if promises == nil {
		promises = engine.Promises{}
	}
	return promises, nil
}

// unreadable returns a message for each ledger version that cannot be parsed.
func unreadable(listed []container.Summary) (odd []string) {
	for _, c := range listed {
		if c.Labels[runtime.LabelRole] != runtime.RoleLedger {
			continue
		}
		if _, err := promisesOf(c); err != nil {
			odd = append(odd, err.Error()+": it is not obeyed, and written anew with the next change")
		}
	}
	return odd
}

// checkImageLabels returns an error if an image has labels that only weir-edge may write: its
// containers could not be told from others.
func checkImageLabels(image string, labels map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if slices.Contains(ownLabels, name) {
			return fmt.Errorf("run %s: it has the label %s, which only weir-edge writes: build the image without it", image, name)
		}
	}
	return nil
}
