package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-project/weir/internal/share/policy"
)

// Problem: ctr and nerdctl give the labels of an image to its containers. Which ones those are the agent has to know, as an
// image's author may not take bandwidth.
//
// Method: they are read from the image's configurations, by the rules of containerd's client, or an author could hide a label
// from Weir: the media type of a descriptor says what a document is, a configuration is only what a manifest's descriptor of one
// refers to, and documents are decoded into the types of the image specification. Of a key that is repeated, or written in
// another case, those merge the values.
//
// What was found first counts until the container ends, as its image may be removed meanwhile, or its name given to another
// one; the agent keeps it while weir-k8s is away. Limit: the first look-up, also after a restart of weir-k8s, is of the image that
// has the name then, not of the one that had it when the container was made.

const (
	// mostBlob is the size of the largest document of an image that is read.
	mostBlob = 4 << 20
	// mostDocuments limits the documents of an image, which may have several for each platform.
	mostDocuments = 256
	// imageTimeout limits the reading of one image: containers of others wait.
	imageTimeout = 2 * time.Second
)

// imageLabels are the labels of an image, or the reason why they are unknown.
type imageLabels struct {
	labels  map[string]string
	unknown string
}

// Kinds of documents of an image.
const (
	indexKind         = "index"
	manifestKind      = "manifest"
	configurationKind = "configuration"
)

// kinds are the kinds of documents by their media types. containerd makes no container of others.
var kinds = map[string]string{
	ocispec.MediaTypeImageIndex:                                 indexKind,
	"application/vnd.docker.distribution.manifest.list.v2+json": indexKind,
	ocispec.MediaTypeImageManifest:                              manifestKind,
	"application/vnd.docker.distribution.manifest.v2+json":      manifestKind,
	ocispec.MediaTypeImageConfig:                                configurationKind,
	"application/vnd.docker.container.image.v1+json":            configurationKind,
}

// document is what a document of an image says.
type document struct {
	// refers are the documents that it refers to, and which may be of the kinds below.
	refers []ocispec.Descriptor
	below  []string
	labels map[string]string
}

// documentKey names a document. One that may be read as several kinds says something else as each of them.
type documentKey struct{ namespace, kind, digest string }

// imageKey names an image.
type imageKey struct{ namespace, name string }

// imageCache is what is known of images.
type imageCache struct {
	// documents are those that were there. One that is missing may be pulled later, so no result of an index is kept.
	documents map[documentKey]document
	// slow are the images that took longer than imageTimeout. The next list tries them again.
	slow map[imageKey]imageLabels
}

func newImageCache() imageCache {
	return imageCache{documents: map[documentKey]document{}, slow: map[imageKey]imageLabels{}}
}

// labelsOf returns the labels of an image of a namespace, which is also the context's; none without a name.
func (s services) labelsOf(ctx context.Context, namespace, name string) imageLabels {
	if name == "" {
		return imageLabels{}
	}
	key := imageKey{namespace, name}
	if found, there := s.images.slow[key]; there {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	found := s.lookUp(ctx, key)
	if found.unknown != "" && ctx.Err() != nil {
		s.images.slow[key] = found
	}
	return found
}

// lookUp asks containerd for the labels of an image.
func (s services) lookUp(ctx context.Context, key imageKey) imageLabels {
	got, err := images.NewImagesClient(s.conn).Get(ctx, &images.GetImageRequest{Name: key.name})
	if status.Code(err) == codes.NotFound {
		return imageLabels{unknown: fmt.Sprintf("its image %s is gone", key.name)}
	}
	if err != nil {
		return imageLabels{unknown: fmt.Sprintf("look up image %s: %v", key.name, status.Convert(err).Message())}
	}
	target := got.GetImage().GetTarget()
	r := imageReader{services: s, namespace: key.namespace, labels: map[string]string{}}
	err = r.read(ctx, ocispec.Descriptor{MediaType: target.GetMediaType(), Digest: digest.Digest(target.GetDigest())}, indexKind, manifestKind)
	if err == nil && r.configurations == 0 {
		err = errors.New("no configuration of it is there")
	}
	if err != nil {
		return imageLabels{unknown: fmt.Sprintf("read image %s: %v", key.name, err)}
	}
	return imageLabels{labels: r.labels}
}

// imageReader reads one image. Its labels are those of all variants that were pulled, also of other platforms than the host's:
// which one a container has is not known.
type imageReader struct {
	services
	namespace string
	labels    map[string]string
	// documents and configurations count what was read.
	documents, configurations int
}

// read reads a document, if it is of one of the kinds, and those that it refers to. One that is not there was not pulled.
func (r *imageReader) read(ctx context.Context, d ocispec.Descriptor, of ...string) error {
	kind := kinds[d.MediaType]
	if !slices.Contains(of, kind) {
		return nil
	}
	if r.documents++; r.documents > mostDocuments {
		return fmt.Errorf("it has more than %d documents", mostDocuments)
	}
	found, err := r.document(ctx, kind, d)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if kind == configurationKind {
		r.configurations++
	}
	for name, value := range found.labels {
		if other, there := r.labels[name]; there && other != value && policy.ReadsLabel(name) {
			return fmt.Errorf("its variants for several platforms have different labels %s", name)
		}
		r.labels[name] = value
	}
	for _, other := range found.refers {
		if err := r.read(ctx, other, found.below...); err != nil {
			return err
		}
	}
	return nil
}

// document returns a document of a kind.
func (r *imageReader) document(ctx context.Context, kind string, d ocispec.Descriptor) (document, error) {
	key := documentKey{r.namespace, kind, string(d.Digest)}
	if known, there := r.images.documents[key]; there {
		return known, nil
	}
	text, err := r.blob(ctx, string(d.Digest))
	if status.Code(err) == codes.NotFound && len(d.Data) > 0 {
		return document{}, fmt.Errorf("its %s %s is not in containerd's store, but inside another document", kind, d.Digest)
	}
	if err != nil {
		return document{}, err
	}
	found, err := decode(kind, text)
	if err != nil {
		return document{}, fmt.Errorf("decode its %s %s: %w", kind, d.Digest, err)
	}
	r.images.documents[key] = found
	return found, nil
}

// decode decodes a document of a kind as containerd's client does.
func decode(kind string, text []byte) (document, error) {
	switch kind {
	case indexKind:
		var index ocispec.Index
		err := json.Unmarshal(text, &index)
		return document{refers: index.Manifests, below: []string{indexKind, manifestKind}}, err
	case manifestKind:
		var manifest ocispec.Manifest
		err := json.Unmarshal(text, &manifest)
		return document{refers: []ocispec.Descriptor{manifest.Config}, below: []string{configurationKind}}, err
	}
	var image ocispec.Image
	err := json.Unmarshal(text, &image)
	return document{labels: image.Config.Labels}, err
}

// blob returns the text of a document in the context's namespace.
func (s services) blob(ctx context.Context, digest string) ([]byte, error) {
	stream, err := content.NewContentClient(s.conn).Read(ctx, &content.ReadContentRequest{Digest: digest, Size: 0})
	if err != nil {
		return nil, err
	}
	var text []byte
	for len(text) <= mostBlob {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		text = append(text, part.GetData()...)
	}
	return nil, fmt.Errorf("its document %s is larger than %d bytes", digest, mostBlob)
}
