package k8s

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-project/weir/internal/share/policy"
)

// store is the content and the images of a containerd, whose client may make containers of them.
type store struct {
	content.UnimplementedContentServer

	mu     sync.Mutex
	blobs  map[documentKey]string // of no kind
	target *types.Descriptor
}

func (s *store) Read(r *content.ReadContentRequest, to content.Content_ReadServer) error {
	if _, err := digest.Parse(r.GetDigest()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	sent, _ := metadata.FromIncomingContext(to.Context())
	s.mu.Lock()
	text, there := s.blobs[documentKey{namespace: sent.Get("containerd-namespace")[0], digest: r.GetDigest()}]
	s.mu.Unlock()
	if !there {
		return status.Error(codes.NotFound, "no such content")
	}
	return to.Send(&content.ReadContentResponse{Data: []byte(text)})
}

// storedImages are its images: each name is that of the target.
type storedImages struct {
	images.UnimplementedImagesServer
	*store
}

func (s storedImages) Get(context.Context, *images.GetImageRequest) (*images.GetImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &images.GetImageResponse{Image: &images.Image{Target: s.target}}, nil
}

func (s *store) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

// possible is what containerd's client could give to a container as the labels of an image, for any platform; doubtful that it
// could not read all of it.
type possible struct {
	store     *store
	namespace string
	labels    []map[string]string
	doubtful  bool
}

// blob is ReadBlob of containerd's client.
func (p *possible) blob(d ocispec.Descriptor, to any) bool {
	text, there := p.store.blobs[documentKey{namespace: p.namespace, digest: string(d.Digest)}]
	if embedded := len(d.Data) > 0; !there && embedded {
		p.doubtful = true
		text, there = string(d.Data), int64(len(d.Data)) == d.Size && digest.FromBytes(d.Data) == d.Digest
	}
	if d.Digest.Validate() != nil {
		p.doubtful = true
	}
	if !there {
		return false
	}
	err := json.Unmarshal([]byte(text), to)
	p.doubtful = p.doubtful || err != nil
	return err == nil
}

// add adds what images.Manifest and WithImageConfigLabels of containerd's client find, whichever platform they look for.
func (p *possible) add(d ocispec.Descriptor) {
	switch d.MediaType {
	case "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json":
		var index ocispec.Index
		if p.blob(d, &index) {
			for _, m := range index.Manifests {
				p.add(m)
			}
		}
	case "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json":
		var manifest ocispec.Manifest
		if !p.blob(d, &manifest) {
			return
		}
		switch manifest.Config.MediaType {
		case "application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json":
			var image ocispec.Image
			if p.blob(manifest.Config, &image) {
				p.labels = append(p.labels, image.Config.Labels)
			}
		}
	}
}

// author writes documents of images that may be read as several kinds at once.
type author struct {
	*rand.Rand
	written map[string][]string // by the kinds that they are meant to be
	all     []string
}

func pick[T any](a *author, of ...T) T { return of[a.IntN(len(of))] }

// oneIn returns true with a probability of 1/times.
func (a *author) oneIn(times int) bool { return a.IntN(times) == 0 }

// key writes a key as it is, or so that Go's decoder takes it for the same.
func (a *author) key(name string) string {
	switch a.IntN(9) {
	case 0:
		return strings.ToUpper(name)
	case 1:
		return strings.ToUpper(name[:1]) + name[1:]
	case 2:
		return strings.ReplaceAll(name, "s", "ſ")
	}
	return name
}

// object writes an object with some of the members, some of them more than once; the first one most often.
func (a *author) object(most int, members ...member) string {
	var list []string
	for i := range 1 + a.IntN(most) {
		m := members[0]
		if i > 0 || a.oneIn(6) {
			m = pick(a, members...)
		}
		list = append(list, fmt.Sprintf("%q: %s", a.key(m.name), m.value()))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

type member struct {
	name  string
	value func() string
}

// digest writes the digest of a document that is meant to be of a kind, or of any.
func (a *author) digest(kind string) string {
	of := a.written[kind]
	if a.oneIn(8) {
		of = a.all
	}
	if len(of) == 0 || a.oneIn(60) {
		return pick(a, `""`, `"sha256:none"`, fmt.Sprintf("%q", digest.FromString("not there")))
	}
	return fmt.Sprintf("%q", digest.FromString(pick(a, of...)))
}

// dockerTypes are Docker's media types for those of the image specification.
var dockerTypes = map[string]string{
	ocispec.MediaTypeImageIndex:    "application/vnd.docker.distribution.manifest.list.v2+json",
	ocispec.MediaTypeImageManifest: "application/vnd.docker.distribution.manifest.v2+json",
	ocispec.MediaTypeImageConfig:   "application/vnd.docker.container.image.v1+json",
}

func (a *author) mediaType(usual string) string {
	if a.oneIn(4) {
		usual = dockerTypes[usual]
	} else if a.oneIn(12) {
		usual = pick(a, append(slices.Sorted(maps.Keys(kinds)), "", "application/vnd.oci.empty.v1+json")...)
	}
	return fmt.Sprintf("%q", usual)
}

func (a *author) labels() string {
	if a.oneIn(12) {
		return pick(a, "null", "{}", "[]")
	}
	value := func() string { return pick(a, `"1"`, `"1"`, `"1"`, `"1"`, `"1"`, `"2"`) }
	return a.object(3, member{"weir.min", value}, member{"weir.weight", value}, member{policy.LabelNerdctlName, value}, member{"maker", value})
}

// descriptor writes the descriptor of a document, often with keys that are repeated.
func (a *author) descriptor(mediaType string) string {
	kind := kinds[mediaType]
	list := []string{fmt.Sprintf(`"digest": %s, "mediaType": %s`, a.digest(kind), a.mediaType(mediaType))}
	if a.oneIn(4) {
		again := a.object(2, member{"digest", func() string { return a.digest(kind) }},
			member{"mediaType", func() string { return a.mediaType(mediaType) }}, member{"data", func() string { return "null" }})
		list = append(list, strings.Trim(again, "{}"))
	}
	if len(a.all) > 0 && a.oneIn(12) {
		data := pick(a, a.all...)
		list = append(list, fmt.Sprintf(`"size": %d, "data": %q`, len(data), base64.StdEncoding.EncodeToString([]byte(data))))
		if a.oneIn(2) {
			list = append(list, fmt.Sprintf(`"digest": %q`, digest.FromString(data)))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// write writes a document that is meant to be of a kind, and may have what others have.
func (a *author) write(kind string) {
	odd := func() string { return pick(a, "null", "{}", "{}", "{}", "[]", "7", "[{}, {}]") }
	labels := member{"Labels", a.labels}
	configuration := member{"config", func() string {
		if a.oneIn(8) {
			return odd()
		}
		return a.object(3, labels, labels, member{"digest", func() string { return a.digest(configurationKind) }},
			member{"mediaType", func() string { return a.mediaType(ocispec.MediaTypeImageConfig) }})
	}}
	config := member{"config", func() string {
		if a.oneIn(20) {
			return odd()
		}
		return a.descriptor(ocispec.MediaTypeImageConfig)
	}}
	manifests := member{"manifests", func() string {
		if a.oneIn(20) {
			return odd()
		}
		var list []string
		for range 1 + a.IntN(3) {
			list = append(list, a.descriptor(pick(a, ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex)))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}}
	reference := member{"digest", func() string { return a.digest(configurationKind) }}
	var text string
	switch kind {
	case configurationKind:
		text = a.object(3, configuration, configuration, configuration, manifests, reference, labels)
	case manifestKind:
		text = a.object(3, config, config, configuration, manifests, reference)
	default:
		text = a.object(2, manifests, manifests, config, configuration, reference)
	}
	a.written[kind] = append(a.written[kind], text)
	a.all = append(a.all, text)
}

// TestImageWorlds: of all images that an author can write, no label that containerd's client may give to a container is
// taken for the user's; and what it gives is known where nothing is odd.
func TestImageWorlds(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	st, server := &store{}, grpc.NewServer()
	images.RegisterImagesServer(server, storedImages{store: st})
	content.RegisterContentServer(server, st)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })

	namespaces := []string{"default", "other"}
	labeled, unknown, grown := 0, 0, 0
	for seed := range uint64(400) {
		a := &author{Rand: rand.New(rand.NewPCG(seed, 1)), written: map[string][]string{}}
		for _, kind := range []string{configurationKind, manifestKind, indexKind} {
			for range 5 {
				a.write(kind)
			}
		}
		st.change(func() { st.blobs = map[documentKey]string{} })
		s := services{conn: conn, images: newImageCache()}
		before := map[string]int{}
		var roots []ocispec.Descriptor
		for _, mediaType := range []string{ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest} {
			roots = append(roots, ocispec.Descriptor{MediaType: pick(a, mediaType, dockerTypes[mediaType]), Digest: digest.Digest(strings.Trim(a.digest(kinds[mediaType]), `"`))})
		}
		for range 30 {
			namespace := pick(a, namespaces...)
			for range a.IntN(6) { // pulls
				text := pick(a, a.all...)
				st.change(func() { st.blobs[documentKey{namespace: namespace, digest: string(digest.FromString(text))}] = text })
			}
			root := pick(a, roots...)
			st.change(func() { st.target = &types.Descriptor{MediaType: root.MediaType, Digest: string(root.Digest)} })
			found := s.labelsOf(inNamespace(t.Context(), namespace), namespace, "web:1")
			may := possible{store: st, namespace: namespace}
			may.add(root)
			all, differs := map[string]string{}, false
			for _, labels := range may.labels {
				for name, value := range labels {
					if found.unknown == "" && name != "maker" && found.labels[name] != value {
						t.Fatalf("seed %d: a container may have the label %s=%s of its image, of which Weir knows %v: %s in\n%s",
							seed, name, value, found.labels, root.Digest, strings.Join(a.all, "\n"))
					}
					differs = differs || all[name] != "" && all[name] != value && name != "maker"
					all[name] = value
				}
			}
			delete(all, "maker")
			delete(found.labels, "maker")
			switch {
			case !may.doubtful && !differs && len(may.labels) > 0:
				if found.unknown != "" || !maps.Equal(found.labels, all) {
					t.Fatalf("seed %d: Weir knows %+v of %v: %s in\n%s", seed, found, all, root.Digest, strings.Join(a.all, "\n"))
				}
			case len(may.labels) == 0 && found.unknown == "":
				t.Fatalf("seed %d: Weir knows %+v of an image that has no configuration: %s in\n%s", seed, found, root.Digest, strings.Join(a.all, "\n"))
			}
			if key := namespace + string(root.Digest) + root.MediaType; found.unknown == "" && len(all) > 0 {
				labeled++
				if was, there := before[key]; there && was < len(may.labels) {
					grown++
				}
				before[key] = len(may.labels)
			} else if found.unknown != "" {
				unknown++
			}
		}
	}
	t.Logf("%d look-ups with labels, %d of them with more variants than before, and %d unknown", labeled, grown, unknown)
	if labeled < 500 || grown < 20 {
		t.Error("these are few")
	}
}
