package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-project/weir/internal/share/policy"
)

// ctr and nerdctl give the labels of an image to its containers. Which ones those are the agent has to know, as an image's
// author may not take bandwidth: they are read from the image's configuration. What was found first counts until the
// container ends, as its image may be removed meanwhile, or its name given to another one; the agent keeps it while weir-k8s
// is away. Limit: the first look-up, also after a restart of weir-k8s, is of the image that has the name then, not of the one
// that had it when the container was made.

const (
	// mostBlob is the size of the largest document of an image that is read.
	mostBlob = 4 << 20
	// imageTimeout limits the reading of one image, which may have many documents: containers of others wait.
	imageTimeout = 2 * time.Second
)

// imageLabels are the labels of an image, or the reason why they are unknown.
type imageLabels struct {
	labels  map[string]string
	unknown string
}

// document is an index, a manifest or a configuration of an image.
type document struct {
	Manifests []struct{ Digest string }
	Config    json.RawMessage
}

// labelsOf returns the labels of an image of the context's namespace; none without a name.
func (s services) labelsOf(ctx context.Context, name string) imageLabels {
	if name == "" {
		return imageLabels{}
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	got, err := images.NewImagesClient(s.conn).Get(ctx, &images.GetImageRequest{Name: name})
	if status.Code(err) == codes.NotFound {
		return imageLabels{unknown: fmt.Sprintf("its image %s is gone", name)}
	}
	if err != nil {
		return imageLabels{unknown: fmt.Sprintf("look up image %s: %v", name, status.Convert(err).Message())}
	}
	digest := got.GetImage().GetTarget().GetDigest()
	if known, there := s.images[digest]; there {
		return known
	}
	labels, err := s.read(ctx, digest)
	s.images[digest] = imageLabels{labels: labels}
	if err != nil {
		s.images[digest] = imageLabels{unknown: fmt.Sprintf("read image %s: %v", name, err)}
	}
	return s.images[digest]
}

// read returns the labels of an image from its index, manifest or configuration. Of an index these are the labels of all
// variants that were pulled: which one a container has is not known. It may be that of another platform than the host's.
func (s services) read(ctx context.Context, digest string) (map[string]string, error) {
	found, err := s.document(ctx, digest)
	if err != nil {
		return nil, err
	}
	if len(found.Manifests) > 0 {
		return s.readVariants(ctx, found)
	}
	var config struct {
		Digest string
		Labels map[string]string
	}
	if err := json.Unmarshal(found.Config, &config); err != nil {
		return nil, errors.New("it has no configuration")
	}
	if config.Digest != "" {
		return s.read(ctx, config.Digest)
	}
	return config.Labels, nil
}

// readVariants returns the labels of all variants in an index that were pulled.
func (s services) readVariants(ctx context.Context, index document) (map[string]string, error) {
	all, pulled := map[string]string{}, false
	for _, m := range index.Manifests {
		labels, err := s.read(ctx, m.Digest)
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		for name, value := range labels {
			if other, there := all[name]; there && other != value && (name == labelName || policy.ReadsLabel(name)) {
				return nil, fmt.Errorf("its variants for several platforms have different labels %s", name)
			}
			all[name] = value
		}
		pulled = true
	}
	if !pulled {
		return nil, errors.New("none of its variants is there")
	}
	return all, nil
}

// document returns a document of an image.
func (s services) document(ctx context.Context, digest string) (d document, err error) {
	stream, err := content.NewContentClient(s.conn).Read(ctx, &content.ReadContentRequest{Digest: digest, Size: 0})
	if err != nil {
		return d, err
	}
	var text []byte
	for len(text) <= mostBlob {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return d, json.Unmarshal(text, &d)
		}
		if err != nil {
			return d, err
		}
		text = append(text, part.GetData()...)
	}
	return d, fmt.Errorf("its document %s is larger than %d bytes", digest, mostBlob)
}
