package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/policy"
)

// ProxyName is the name of a service's proxy: only one can have it.
func ProxyName(service string) string { return "edgeproxy-" + service }

// InstanceName is the name of what an instance is in an engine: only one can have it, and
// no proxy or ledger, whatever services are called.
func InstanceName(id string) string { return "edge-" + strings.ReplaceAll(id, ".", "-") }

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

// ReadProgress reads what an engine says while it takes an image: it answers before
// that is done, and says at the end whether it was.
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

// Architecture is Go's and the images' word for the kernel's.
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

// pullTimeout is how long an image may take.
const pullTimeout = 10 * time.Minute

// Pull gets an image from its registry. Errors: ErrNoImage.
func Pull(ctx context.Context, api *client.Client, image string) error {
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
