package server

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/repo"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/edge/spec"
)

var (
	errBadPush   = errors.New("push a service")
	errInUse     = errors.New("is deployed")
	errReadOnly  = errors.New("this weir-edge runs with --dry-run and changes nothing")
	errNoAddress = errors.New("this weir-edge gives no images to nodes: start it with --repository ADDRESS:PORT")
)

// The parts of a push.
const (
	partSpecification = "specification"
	partImage         = "image"
)

// push stores a service. The specification comes first, so that an error is reported before the
// image is sent.
func (a *api) push(r *http.Request) (any, error) {
	if a.ReadOnly {
		return nil, fmt.Errorf("%w: %w", errBadPush, errReadOnly)
	}
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
	parsed, err := run.Check(text)
	if err != nil {
		return nil, err
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
	return a.Repository.Push(parsed, archive, a.inUse)
}

// inUse reports whether a deployed service, or one being deployed, needs an image. Before the first
// round every image counts as needed.
func (a *api) inUse(digest string) bool {
	a.mu.Lock()
	deploying := a.deploying[digest] > 0
	a.mu.Unlock()
	seen := a.Manager.Snapshot()
	return deploying || seen.At.IsZero() ||
		slices.ContainsFunc(seen.Services, func(s edge.Service) bool { return strings.HasSuffix(s.Image, "@"+digest) })
}

// hold keeps an image from removal until release is called.
func (a *api) hold(digest string) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deploying[digest]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.deploying[digest]--; a.deploying[digest] == 0 {
			delete(a.deploying, digest)
		}
	}
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
	if a.ReadOnly {
		return fmt.Errorf("take %s out of the repository: %w", service, errReadOnly)
	}
	if stored, err := a.Repository.Find(service); err == nil && a.inUse(stored.Digest) {
		return fmt.Errorf("service %s %w, and nodes may need its image: remove it first (weir-edge rm %[1]s)", service, errInUse)
	}
	return a.Repository.Remove(service, a.inUse)
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
	defer a.hold(stored.Digest)()
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
