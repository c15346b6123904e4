package repo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Reference is how nodes ask the registry at an address for a service's image: by digest,
// so that they check what they get.
func Reference(address, service, digest string) string {
	return address + "/" + repositoryName(service) + "@" + digest
}

// repositoryName is a service's name as repositories may be called: lower case, and
// words with a hyphen between them. Images are found by digest, so two may have the same.
func repositoryName(service string) string {
	words := strings.FieldsFunc(strings.ToLower(service), func(c rune) bool { return c == '-' || c == '_' })
	return "services/" + strings.Join(words, "-")
}

// Handler is the part of the OCI distribution specification (version 1.1) that reads:
// the end-points 1 to 3, 8 and 12. Files are served with HTTP ranges, so that a transfer
// that broke off goes on where it did.
func (r *Repository) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	})
	mux.HandleFunc("GET /v2/services/{name}/manifests/{reference}", r.manifest)
	mux.HandleFunc("GET /v2/services/{name}/blobs/{digest}", r.blob)
	mux.HandleFunc("GET /v2/services/{name}/referrers/{digest}", r.referrers)
	mux.HandleFunc("GET /v2/services/{name}/tags/list", r.tags)
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry only gives: put services into it with weir-edge push")
			return
		}
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "there is no "+q.URL.Path)
	})
	return mux
}

// manifest is an image's or an artefact's, by digest, or an image's by the tag latest.
func (r *Repository) manifest(w http.ResponseWriter, q *http.Request) {
	index, err := r.index()
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	name, reference := "services/"+q.PathValue("name"), q.PathValue("reference")
	for _, d := range index.Manifests {
		tagged := reference == "latest" && d.ArtifactType == "" && repositoryName(d.Annotations[annotationName]) == name
		if d.Digest.String() == reference || tagged {
			w.Header().Set("Content-Type", string(d.MediaType))
			r.serve(w, q, d.Digest)
			return
		}
	}
	refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", fmt.Sprintf("%s %s is not in the repository (any more): push it again", name, reference))
}

func (r *Repository) blob(w http.ResponseWriter, q *http.Request) {
	digest, err := registry.NewHash(q.PathValue("digest"))
	if err != nil || digest.Algorithm != "sha256" {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", q.PathValue("digest")+" is not a SHA-256 digest")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	r.serve(w, q, digest)
}

// serve answers with a file, or the part of it that is asked for.
func (r *Repository) serve(w http.ResponseWriter, q *http.Request, digest registry.Hash) {
	f, err := os.Open(r.blobPath(digest))
	if err != nil {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", digest.String()+" is not in the repository (any more): push it again")
		return
	}
	defer f.Close()
	if about, err := f.Stat(); err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(transferTimeout(about.Size())))
	}
	w.Header().Set("Docker-Content-Digest", digest.String())
	w.Header().Set("ETag", `"`+digest.String()+`"`)
	http.ServeContent(w, q, "", time.Time{}, f)
}

// transferTimeout is how long a node may take for a file: a reader that reads nothing must
// not keep its place for ever.
func transferTimeout(bytes int64) time.Duration {
	const leastBytesPerSecond = 8000
	return time.Minute + time.Duration(bytes/leastBytesPerSecond)*time.Second
}

func (r *Repository) referrers(w http.ResponseWriter, q *http.Request) {
	index, err := r.index()
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	found := registry.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []registry.Descriptor{}}
	for _, d := range index.Manifests {
		var manifest registry.Manifest
		if d.ArtifactType == specificationType && r.readJSON(d.Digest, &manifest) == nil && manifest.Subject != nil && manifest.Subject.Digest.String() == q.PathValue("digest") {
			found.Manifests = append(found.Manifests, d)
		}
	}
	answer(w, string(types.OCIImageIndex), http.StatusOK, found)
}

func (r *Repository) tags(w http.ResponseWriter, q *http.Request) {
	answer(w, "application/json", http.StatusOK, map[string]any{"name": "services/" + q.PathValue("name"), "tags": []string{"latest"}})
}

// refuse answers as the specification says of errors.
func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, "application/json", status, map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}

func answer(w http.ResponseWriter, kind string, status int, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever is gone does not need it
}
