package repo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/weir-project/weir/internal/edge/spec"
)

// writeImage writes an image's layers, compressed, its configuration and its manifest;
// size is what a node without it gets.
func (r *Repository) writeImage(image registry.Image) (d registry.Descriptor, size uint64, err error) {
	manifest, err := image.Manifest()
	if err != nil {
		return d, 0, &BadImageError{err}
	}
	layers, err := image.Layers()
	if err != nil {
		return d, 0, &BadImageError{err}
	}
	for _, layer := range layers {
		compressed, err := layer.Compressed()
		if err != nil {
			return d, 0, err
		}
		digest, err := layer.Digest()
		if err == nil {
			err = r.writeBlob(digest, compressed)
		}
		if err = errors.Join(err, compressed.Close()); err != nil {
			return d, 0, err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return d, 0, err
	}
	raw, err := image.RawManifest()
	if err != nil {
		return d, 0, err
	}
	size = uint64(len(config) + len(raw))
	for _, layer := range manifest.Layers {
		size += uint64(layer.Size)
	}
	parsed, err := image.ConfigFile()
	if err != nil {
		return d, 0, &BadImageError{err}
	}
	if err := r.writeBlob(manifest.Config.Digest, bytes.NewReader(config)); err != nil {
		return d, 0, err
	}
	d, err = r.writeManifest(raw, manifest.MediaType)
	d.Platform = &registry.Platform{OS: parsed.OS, Architecture: parsed.Architecture}
	return d, size, err
}

// writeSpecification writes the artefact beside an image.
func (r *Repository) writeSpecification(s spec.Spec, subject registry.Descriptor) (d registry.Descriptor, err error) {
	document, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return d, fmt.Errorf("write the specification: %w", err)
	}
	config, err := r.writeBytes([]byte(emptyConfig), emptyConfigType)
	if err != nil {
		return d, err
	}
	layer, err := r.writeBytes(document, specificationType)
	if err != nil {
		return d, err
	}
	subject.Annotations, subject.Platform = nil, nil
	raw, err := json.Marshal(artefactManifest{registry.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []registry.Descriptor{layer}, Subject: &subject,
	}, specificationType})
	if err != nil {
		return d, err
	}
	d, err = r.writeManifest(raw, types.OCIManifestSchema1)
	d.ArtifactType = specificationType
	return d, err
}

// artefactManifest is an OCI manifest with the field that makes it an artefact.
type artefactManifest struct {
	registry.Manifest
	ArtifactType string `json:"artifactType"`
}

func (r *Repository) writeManifest(raw []byte, kind types.MediaType) (registry.Descriptor, error) {
	return r.writeBytes(raw, cmp.Or(kind, types.DockerManifestSchema2))
}

func (r *Repository) writeBytes(data []byte, kind types.MediaType) (registry.Descriptor, error) {
	digest, size, err := registry.SHA256(bytes.NewReader(data))
	if err != nil {
		return registry.Descriptor{}, err
	}
	return registry.Descriptor{MediaType: kind, Size: size, Digest: digest}, r.writeBlob(digest, bytes.NewReader(data))
}

// writeBlob writes a file that is named by its digest, unless it is there and whole.
func (r *Repository) writeBlob(want registry.Hash, data io.Reader) error {
	if r.isWhole(want) {
		return nil
	}
	f, err := os.CreateTemp(r.blobDir(), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it has another name by then
	got, _, err := registry.SHA256(io.TeeReader(data, f))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the digest of what was written is %s and not %s", got, want)
	}
	return os.Rename(f.Name(), r.blobPath(want))
}

func (r *Repository) isWhole(want registry.Hash) bool {
	f, err := os.Open(r.blobPath(want))
	if err != nil {
		return false
	}
	defer f.Close()
	got, _, err := registry.SHA256(f)
	return err == nil && got == want
}
