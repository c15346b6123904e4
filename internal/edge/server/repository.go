package server

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"slices"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/spec"
)

var (
	errBadPush   = errors.New("push a service")
	errInUse     = errors.New("is deployed")
	errNoAddress = errors.New("this weir-edge gives no images to nodes: start it with --repository ADDRESS:PORT")
)

// The parts of a push.
const (
	partSpecification = "specification"
	partImage         = "image"
)

// push takes a service: what it is first, so that a mistake is said before the image has
// been sent.
func (a *api) push(r *http.Request) (any, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadPush, err)
	}
	document, err := readPart(parts, partSpecification)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(document, maxBodyBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: read the specification: %w", errBadPush, err)
	}
	parsed, err := spec.Parse(text)
	if err != nil {
		return nil, &run.SpecificationError{Err: err}
	}
	image, err := readPart(parts, partImage)
	if err != nil {
		return nil, err
	}
	archive, err := a.Repository.Receive(image)
	if err != nil {
		return nil, err
	}
	defer os.Remove(archive)
	return a.Repository.Push(parsed, archive)
}

func readPart(parts *multipart.Reader, name string) (*multipart.Part, error) {
	part, err := parts.NextPart()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the part %s is missing: %w", errBadPush, name, err)
	case part.FormName() != name:
		return nil, fmt.Errorf("%w: the part %s is missing, there is %q", errBadPush, name, part.FormName())
	}
	return part, nil
}

func (a *api) discard(service string) error {
	deployed := a.Manager.Snapshot().Services
	if slices.ContainsFunc(deployed, func(s edge.Service) bool { return s.Name == service }) {
		return fmt.Errorf("service %s %w, and nodes may need its image: remove it first (weir-edge rm %[1]s)", service, errInUse)
	}
	return a.Repository.Remove(service)
}

// deployStored deploys a service with the image that the repository has, by digest.
func (a *api) deployStored(r *http.Request) (any, error) {
	stored, err := a.Repository.Find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if a.Address == "" {
		return nil, fmt.Errorf("deploy %s: %w", stored.Service, errNoAddress)
	}
	parsed, err := spec.Parse(stored.Specification)
	if err != nil {
		return nil, fmt.Errorf("read what was pushed: %w", err)
	}
	parsed.Image = repo.Reference(a.Address, stored.Service, stored.Digest)
	document, err := parsed.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write the specification of %s: %w", stored.Service, err)
	}
	return a.Manager.Deploy(r.Context(), document)
}
