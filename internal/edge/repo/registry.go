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

// Reference returns the image reference of a service at a registry, by digest so that nodes verify
// it.
func Reference(address, service, digest string) string {
	return address + "/" + repositoryName(service) + "@" + digest
}

// repositoryName turns a service name into a valid repository name (lower case, single hyphens).
// Two services may share one, because images are found by digest.
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

// manifest serves a manifest by digest, or an image's by the tag latest.
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

// serve sends a file, or the requested range of it.
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

// transferTimeout limits the time of a file transfer, so that a client that reads nothing does not
// hold its connection for ever.
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

// refuse sends an error in the OCI specification's format.
func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, "application/json", status, map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}

func answer(w http.ResponseWriter, kind string, status int, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has left does not need it
}
