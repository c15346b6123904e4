package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ctr and nerdctl give the labels of an image to its containers. Which ones those are the agent has to know, as an image's
// author may not take bandwidth: they are read from the image's configuration. What was found first counts until the
// container ends, as its image may be removed meanwhile, or its name given to another one. Limits: the first look-up, also
// after a restart of weir-k8s, is of the image that has the name then, not of the one that had it when the container was
// made; and of an image that is gone by then the labels are unknown.

// mostBlob is the size of the largest document of an image that is read.
const mostBlob = 4 << 20

// imageLabels are the labels of an image, or the reason why they are unknown.
type imageLabels struct {
	labels  map[string]string
	unknown string
}

// document is an index, a manifest or a configuration of an image.
type document struct {
	Manifests []struct {
		Digest   string
		Platform struct{ Architecture, OS string }
	}
	Config json.RawMessage
}

// labelsOf returns the labels of an image of the context's namespace; none without a name.
func (s services) labelsOf(ctx context.Context, name string) imageLabels {
	if name == "" {
		return imageLabels{}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
	if err != nil {
		return imageLabels{unknown: fmt.Sprintf("read image %s: %v", name, err)}
	}
	s.images[digest] = imageLabels{labels: labels}
	return s.images[digest]
}

// read returns the labels of an image from its index or manifest.
func (s services) read(ctx context.Context, digest string) (map[string]string, error) {
	found, err := s.document(ctx, digest)
	if err != nil {
		return nil, err
	}
	for _, m := range found.Manifests {
		if m.Platform.OS != "linux" || m.Platform.Architecture != runtime.GOARCH {
			continue
		}
		labels, err := s.read(ctx, m.Digest)
		if status.Code(err) != codes.NotFound { // of a variant that was not pulled
			return labels, err
		}
	}
	var config struct {
		Digest string
		Labels map[string]string
	}
	if err := json.Unmarshal(found.Config, &config); err != nil {
		return nil, errors.New("it has no configuration for this host")
	}
	if config.Digest != "" {
		return s.read(ctx, config.Digest)
	}
	return config.Labels, nil
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
