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
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/spec"
)

// LabelsWithoutMinimum are a service's labels without those of its minimum, for containers
// that do not have it as a label: instances on one engine, where what users get is sent by
// the proxy, and on a swarm all, of which agents are told where it is in force.
func LabelsWithoutMinimum(labels map[string]string) map[string]string {
	kept := maps.Clone(labels)
	if kept == nil {
		kept = map[string]string{}
	}
	for _, name := range spec.MinimumLabels {
		delete(kept, name)
	}
	return kept
}

// How containers in the host's network run: engines refuse them with a mapping of users
// (userns-remap) unless they have the host's, and with SELinux they read no file of the host unless
// its labels are disabled for them.
const HostUsers container.UsernsMode = "host"

// HostSecurity are security options, see [HostUsers].
var HostSecurity = []string{"no-new-privileges", "label=disable"}

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

// FetchImage returns an image of an engine, which fetches it from its registry if it has none.
// Errors: ErrNoImage, and those of the engine, as unreachable wraps them.
func FetchImage(ctx context.Context, api *client.Client, name string, unreachable func(error) error) (found client.ImageInspectResult, image Image, err error) {
	began := time.Now()
	if found, err = api.ImageInspect(ctx, name); cerrdefs.IsNotFound(err) {
		if image.SizeBytes, err = pull(ctx, api, name); err != nil {
			return found, image, err
		}
		image.Took = time.Since(began)
		found, err = api.ImageInspect(ctx, name)
	}
	if err != nil {
		err = unreachable(err)
	}
	image.Pinned = Pin(name, found)
	if image.SizeBytes == 0 {
		image.SizeBytes = uint64(max(found.Size, 0))
	}
	return found, image, err
}

// idPrefix begins the ID of an image.
const idPrefix = "sha256:"

// Pin returns a name of an image that names the same one on all nodes and later: by the digest of
// the repository that name is in or, if that gave none, by ID.
func Pin(name string, found client.ImageInspectResult) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return found.ID
	}
	for _, digest := range found.RepoDigests {
		if of, err := reference.ParseNormalizedNamed(digest); err == nil && of.Name() == named.Name() {
			return digest
		}
	}
	return found.ID
}

// runs lists the architectures that processors of another one often run as well.
var runs = map[string]string{"arm64": "arm", "amd64": "386"}

// CanRun reports whether a node runs an image, by their architectures, and what the user should
// know of that.
func CanRun(image, architecture, node, nodeArchitecture string) (can bool, note string) {
	if architecture == "" || nodeArchitecture == "" || architecture == nodeArchitecture {
		return true, ""
	}
	if runs[nodeArchitecture] != architecture {
		return false, ""
	}
	return true, fmt.Sprintf("%s is for %s and the node %s is %s: it runs there if processor and kernel run 32-bit programs", image, architecture, node, nodeArchitecture)
}

// pull gets an image from its registry and returns how many bytes that took, 0 if the engine does
// not say. Errors: ErrNoImage.
func pull(ctx context.Context, api *client.Client, image string) (transferred uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	missing := func(err error) error {
		return fmt.Errorf("run %s: %w, and fetching it failed: %w: check the name, or import or push the image first", image, ErrNoImage, err)
	}
	if strings.HasPrefix(image, idPrefix) {
		return 0, fmt.Errorf("run %s: %w any more, and no registry has it: load it again, or remove the service and deploy it again", image, ErrNoImage)
	}
	login, err := RegistryAuth(ctx, image)
	if err != nil {
		return 0, missing(err)
	}
	progress, err := api.ImagePull(ctx, image, client.ImagePullOptions{RegistryAuth: login})
	if err != nil {
		return 0, missing(err)
	}
	defer progress.Close()
	layers := map[string]int64{}
	for message, err := range progress.JSONMessages(ctx) {
		switch {
		case err != nil:
			return 0, missing(err)
		case message.Error != nil:
			return 0, missing(message.Error)
		case message.Status == "Downloading" && message.Progress != nil && len(layers) < maxLayers:
			layers[message.ID] = message.Progress.Total
		}
	}
	for _, size := range layers {
		transferred += uint64(max(size, 0))
	}
	return transferred, nil
}

// maxLayers is more than an image has.
const maxLayers = 1000
