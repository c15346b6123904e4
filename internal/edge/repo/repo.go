// Package repo is PiCasso's Service Repository (section III.B.3): images of services as
// compressed layers, and their specifications beside them.
//
// On disk it is an OCI image layout. Each service has two entries in its index: the
// image, and an artefact whose subject is the image and whose only layer is the
// specification. Files are named by the digest of what is in them and written whole or
// not at all, the index last; so there is never an image of which a part is missing. An
// image that something else takes the place of stays in the index, without a name, while a
// service that is deployed may need it on another node.
//
// What is damaged is no reason for anything else not to work, and is mended by pushing it
// again.
//
// Nodes get images from a registry (Handler) that only reads. It runs in a container of
// its own (container.go), so that what it sends has a policy of Weir's.
package repo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/spec"
)

const (
	// specificationType is the media type of the artefact beside an image.
	specificationType = "application/vnd.weir.specification.v1+json"
	// annotationName is OCI's for the name of an entry of an index.
	annotationName = "org.opencontainers.image.ref.name"
	indexFile      = "index.json"
	// emptyConfig is the empty configuration of artefacts (OCI image specification).
	emptyConfig     = "{}"
	emptyConfigType = types.MediaType("application/vnd.oci.empty.v1+json")
)

// ErrUnknown is the error for a service that the repository does not have.
var ErrUnknown = errors.New("is not in the repository; weir-edge services lists what is")

// BadImageError is the error of an archive that is not an image.
type BadImageError struct{ error }

// Repository is a folder of images. Its methods may be called concurrently.
type Repository struct {
	dir string
	// unusable is the error that all methods return; nil if the repository works.
	unusable error
	// changes is held while files are written, which may take minutes; mu only while the index and
	// the files do not match.
	changes sync.Mutex
	mu      sync.RWMutex
}

// Unusable returns a repository whose methods all fail with that error.
func Unusable(why error) *Repository { return &Repository{unusable: why} }

// Open opens or creates a repository.
func Open(dir string) (*Repository, error) {
	r := &Repository{dir: dir}
	err := os.MkdirAll(r.blobDir(), 0o700)
	if _, missing := os.Stat(filepath.Join(dir, indexFile)); err == nil && errors.Is(missing, fs.ErrNotExist) {
		err = errors.Join(writeFile(dir, "oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`)), r.writeIndex(nil))
	}
	if err == nil {
		err = errors.Join(r.removeTemporary(), r.sweep())
	}
	if err != nil {
		return nil, fmt.Errorf("open the repository of services: %w", err)
	}
	return r, nil
}

// removeTemporary removes unfinished files of a killed weir-edge.
func (r *Repository) removeTemporary() error {
	var errs []error
	for _, dir := range []string{r.dir, r.blobDir()} {
		left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
		errs = append(errs, err)
		for _, path := range left {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

func (r *Repository) blobDir() string { return filepath.Join(r.dir, "blobs", "sha256") }

func (r *Repository) blobPath(h registry.Hash) string { return filepath.Join(r.blobDir(), h.Hex) }

// Push stores a service, replacing one of that name: its specification, and its image from a
// `docker save` archive. inUse reports whether a replaced image has to stay. Errors:
// *BadImageError.
func (r *Repository) Push(s spec.Spec, archive string, inUse func(digest string) bool) (edge.Stored, error) {
	if r.unusable != nil {
		return edge.Stored{}, r.unusable
	}
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return edge.Stored{}, &BadImageError{fmt.Errorf("read the image of %s: %w: it has to be an archive of one image, as docker save makes it", s.Name, err)}
	}
	r.changes.Lock()
	defer r.changes.Unlock()
	described, size, err := r.writeImage(image)
	if err == nil && s.ImageBytes == 0 {
		s.ImageBytes = size
	}
	var artefact registry.Descriptor
	if err == nil {
		artefact, err = r.writeSpecification(s, described)
	}
	if err == nil {
		described.Annotations = map[string]string{annotationName: s.Name}
		artefact.Annotations = described.Annotations
		err = r.replace(s.Name, inUse, described, artefact)
	} else {
		err = errors.Join(err, r.sweep())
	}
	if err != nil {
		return edge.Stored{}, fmt.Errorf("put %s into the repository: %w", s.Name, err)
	}
	return r.Find(s.Name)
}

// replace replaces the index entries of a service and removes the files that no entry needs any
// more.
func (r *Repository) replace(service string, inUse func(digest string) bool, by ...registry.Descriptor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	index, err := r.index()
	if err != nil {
		return err
	}
	entries := slices.Clone(by)
	for _, d := range index.Manifests {
		name := d.Annotations[annotationName]
		there := slices.ContainsFunc(entries, func(e registry.Descriptor) bool { return e.Digest == d.Digest })
		switch {
		case name != "" && name != service:
			entries = append(entries, d)
		case d.ArtifactType == "" && !there && inUse(d.Digest.String()):
			d.Annotations = nil
			entries = append(entries, d)
		}
	}
	return errors.Join(r.writeIndex(entries), r.sweep())
}

// Receive saves an uploaded archive to a temporary file; the caller removes it.
func (r *Repository) Receive(archive io.Reader) (path string, err error) {
	if r.unusable != nil {
		return "", r.unusable
	}
	f, err := os.CreateTemp(r.dir, ".new-")
	if err == nil {
		_, err = io.Copy(f, archive)
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}
	if err != nil {
		return "", fmt.Errorf("take an image: %w", err)
	}
	return f.Name(), nil
}

func (r *Repository) index() (*registry.IndexManifest, error) {
	if r.unusable != nil {
		return nil, r.unusable
	}
	f, err := os.Open(filepath.Join(r.dir, indexFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	index, err := registry.ParseIndexManifest(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return index, nil
}

func (r *Repository) writeIndex(entries []registry.Descriptor) error {
	if entries == nil {
		entries = []registry.Descriptor{}
	}
	data, err := json.MarshalIndent(registry.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: entries}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(r.dir, indexFile, data)
}

// writeFile writes a file whole or not at all.
func writeFile(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// List returns all services, sorted by name.
func (r *Repository) List() ([]edge.Stored, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	index, err := r.index()
	if err != nil {
		return nil, fmt.Errorf("list the repository: %w", err)
	}
	list := []edge.Stored{}
	for _, d := range index.Manifests {
		if d.ArtifactType != specificationType {
			continue
		}
		stored, err := r.stored(d, index)
		if err != nil {
			stored = edge.Stored{Service: d.Annotations[annotationName], Specification: json.RawMessage("null"), Reason: fmt.Sprintf("it cannot be read (%v): push it again", err)}
		}
		list = append(list, stored)
	}
	slices.SortFunc(list, func(a, b edge.Stored) int { return strings.Compare(a.Service, b.Service) })
	return list, nil
}

func (r *Repository) stored(artefact registry.Descriptor, index *registry.IndexManifest) (edge.Stored, error) {
	var described artefactManifest
	if err := r.readJSON(artefact.Digest, &described); err != nil {
		return edge.Stored{}, err
	}
	if described.Subject == nil || len(described.Layers) != 1 {
		return edge.Stored{}, errors.New("it is not a specification")
	}
	var image registry.Manifest
	if err := r.readJSON(described.Subject.Digest, &image); err != nil {
		return edge.Stored{}, err
	}
	var document json.RawMessage
	if err := r.readJSON(described.Layers[0].Digest, &document); err != nil {
		return edge.Stored{}, err
	}
	s := edge.Stored{
		Service: artefact.Annotations[annotationName], Digest: described.Subject.Digest.String(), Specification: document,
		SizeBytes: uint64(described.Subject.Size + image.Config.Size),
	}
	for _, layer := range image.Layers {
		s.SizeBytes += uint64(layer.Size)
	}
	for _, d := range index.Manifests {
		if d.Digest == described.Subject.Digest && d.Platform != nil {
			s.Architecture = d.Platform.Architecture
		}
	}
	return s, nil
}

func (r *Repository) readJSON(h registry.Hash, into any) error {
	data, err := os.ReadFile(r.blobPath(h))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Find returns a service. Errors: ErrUnknown.
func (r *Repository) Find(service string) (edge.Stored, error) {
	list, err := r.List()
	if err != nil {
		return edge.Stored{}, err
	}
	for _, s := range list {
		switch {
		case s.Service != service:
		case s.Reason != "":
			return edge.Stored{}, fmt.Errorf("service %s is damaged in the repository: %s", service, s.Reason)
		default:
			return s, nil
		}
	}
	return edge.Stored{}, fmt.Errorf("service %s %w", service, ErrUnknown)
}

// Remove deletes a service, and its layers unless other services have them or inUse says that the
// image is needed. Errors: ErrUnknown.
func (r *Repository) Remove(service string, inUse func(digest string) bool) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	index, err := r.index()
	if err == nil && !slices.ContainsFunc(index.Manifests, func(d registry.Descriptor) bool { return d.Annotations[annotationName] == service }) {
		return fmt.Errorf("service %s %w", service, ErrUnknown)
	}
	if err == nil {
		err = r.replace(service, inUse)
	}
	if err != nil {
		return fmt.Errorf("remove %s from the repository: %w", service, err)
	}
	return nil
}

// sweep removes files that no index entry needs. It removes none while an entry is damaged.
func (r *Repository) sweep() error {
	index, err := r.index()
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, d := range index.Manifests {
		var manifest registry.Manifest
		if err := r.readJSON(d.Digest, &manifest); err != nil {
			return nil //nolint:nilerr // List says it
		}
		needed[d.Digest.Hex], needed[manifest.Config.Digest.Hex] = true, true
		for _, layer := range manifest.Layers {
			needed[layer.Digest.Hex] = true
		}
	}
	files, err := os.ReadDir(r.blobDir())
	if err != nil {
		return err
	}
	for _, f := range files {
		if !needed[f.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(r.blobDir(), f.Name())))
		}
	}
	return err
}
