package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/share/policy"
)

// LabelsWithoutMinimum are a service's labels without those of its minimum, for containers
// that do not have it as a label: instances on one engine, where what users get is sent by
// the proxy, and on a swarm all, of which agents are told where it is in force.
func LabelsWithoutMinimum(labels map[string]string) map[string]string {
	kept := maps.Clone(labels)
	if kept == nil {
		kept = map[string]string{}
	}
	for _, name := range []string{"min", "latency"} {
		delete(kept, policy.Prefix+name)
	}
	return kept
}

// LoadProxyImage loads the proxy image into an engine that lacks it.
func LoadProxyImage(ctx context.Context, api *client.Client) error {
	_, err := api.ImageInspect(ctx, proxy.Image)
	if err == nil {
		return nil
	} else if !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("look for the proxy's image: %w", err)
	}
	archive, _, err := proxy.Archive()
	if err != nil {
		return err
	}
	progress, err := api.ImageLoad(ctx, bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("load the proxy's image: %w", err)
	}
	defer progress.Close()
	return ReadProgress(progress)
}

// ReadProgress reads an engine's progress stream for an image until it ends, and returns the error
// in it, if any.
func ReadProgress(r io.Reader) error {
	for decoder := json.NewDecoder(r); ; {
		var line struct {
			Error string `json:"error"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("take an image: %w", err)
		}
		if line.Error != "" {
			return fmt.Errorf("take an image: %s", line.Error)
		}
	}
}

// Architecture converts the kernel's machine name to that of Go and images.
func Architecture(machine string) string {
	switch {
	case machine == "x86_64":
		return "amd64"
	case machine == "aarch64":
		return "arm64"
	case strings.HasPrefix(machine, "armv"):
		return "arm"
	}
	return machine
}

// pullTimeout limits fetching an image.
const pullTimeout = 10 * time.Minute

// FetchImage returns an image of an engine, which fetches it from its registry if it has none, and
// how long that took. Errors: ErrNoImage, and those of the engine, as unreachable wraps them.
func FetchImage(ctx context.Context, api *client.Client, image string, unreachable func(error) error) (found client.ImageInspectResult, took time.Duration, err error) {
	began := time.Now()
	if found, err = api.ImageInspect(ctx, image); cerrdefs.IsNotFound(err) {
		if err = pull(ctx, api, image); err != nil {
			return found, 0, err
		}
		took = time.Since(began)
		found, err = api.ImageInspect(ctx, image)
	}
	if err != nil {
		err = unreachable(err)
	}
	return found, took, err
}

// pull gets an image from its registry. Errors: ErrNoImage.
func pull(ctx context.Context, api *client.Client, image string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	missing := func(err error) error {
		return fmt.Errorf("run %s: %w, and fetching it failed: %w: check the name, or import or push the image first", image, ErrNoImage, err)
	}
	progress, err := api.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return missing(err)
	}
	defer progress.Close()
	if err := progress.Wait(ctx); err != nil {
		return missing(err)
	}
	return nil
}
