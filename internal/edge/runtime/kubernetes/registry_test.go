package kubernetes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
)

// TestPin: an image is named by the digest that its registry has of it, by a login or a token if it wants one.
func TestPin(t *testing.T) {
	const sum = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	var challenge, wants, answer string
	registry := httptest.NewServer(nil)
	defer registry.Close()
	registry.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/token" && r.URL.Query().Get("scope") == "repository:shop/web:pull" && user == "u" && password == "p":
			fmt.Fprint(w, `{"token": "t"}`)
		case r.Method != http.MethodHead || r.URL.Path != "/v2/shop/web/manifests/2" || !strings.Contains(r.Header.Get("Accept"), "oci.image.index"):
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("Authorization") != wants:
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Docker-Content-Digest", answer)
		}
	})
	host := strings.TrimPrefix(registry.URL, "http://")
	logins := t.TempDir()
	t.Setenv("DOCKER_CONFIG", logins)
	must.Succeed(t, os.WriteFile(filepath.Join(logins, "config.json"), []byte(`{"auths": {"`+host+`": {"auth": "dTpw"}}}`), 0o600)) // u:p
	for name, test := range map[string]struct{ challenge, wants, answer, image, want, fails string }{
		"open":             {"", "", sum, "web:2", "web@" + sum, ""},
		"by a login":       {`Basic realm="r"`, "Basic dTpw", sum, "web:2", "web@" + sum, ""},
		"by a token":       {`Bearer realm="` + registry.URL + `/token",service="s",scope="repository:shop/web:pull"`, "Bearer t", sum, "web:2", "web@" + sum, ""},
		"no token":         {`Bearer realm="` + registry.URL + `/token",scope="x"`, "Bearer t", sum, "web:2", "", "ask for a token"},
		"another login":    {`Basic realm="r"`, "Basic eDp5", sum, "web:2", "", "401 Unauthorized"},
		"no such image":    {"", "", sum, "web:3", "", "404 Not Found"},
		"no digest":        {"", "", "", "web:2", "", "no digest"},
		"an odd digest":    {"", "", "sha256:xyz", "web:2", "", "no digest"},
		"a digest already": {"", "Basic never", "", "web@" + sum, "web@" + sum, ""},
	} {
		challenge, wants, answer = test.challenge, test.wants, test.answer
		got, err := pin(t.Context(), host+"/shop/"+test.image)
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got != host+"/shop/"+test.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for domain, want := range map[string]string{
		"docker.io": "https://registry-1.docker.io", "registry.local": "https://registry.local", "localhost": "http://localhost", "[::1]:5000": "http://[::1]:5000",
	} {
		if got := registryURL(domain); got != want {
			t.Errorf("%s is %s", domain, got)
		}
	}

	for name, test := range map[string]struct {
		from, to string
		want     bool
	}{
		"TLS":         {"https://a/v2/", "https://b/v2/", true},
		"no TLS":      {"http://localhost:5000/v2/", "http://localhost:5001/v2/", true},
		"without TLS": {"https://a/v2/", "http://a/v2/", false},
	} {
		from, to := httptest.NewRequest(http.MethodHead, test.from, http.NoBody), httptest.NewRequest(http.MethodHead, test.to, http.NoBody)
		if err := checkRedirect(to, []*http.Request{from}); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A service keeps its digest while the registry is away, also if another service has another one of that name.
	_, r := newFake(t)
	image := host + "/shop/web:2"
	challenge, wants, answer = "", "", sum
	found, err := r.Fetch(t.Context(), "Web_1", image)
	if err != nil || found.Pinned != host+"/shop/web@"+sum || found.Note != "" {
		t.Errorf("%+v, %v", found, err)
	}
	other := host + "/shop/web@" + strings.Replace(sum, "0", "f", 1)
	for name, pinned := range map[string]string{"Another": other, "Web_1": found.Pinned, "named": image} {
		s := runtime.Service{Name: name, Document: `{"par": {"serviceName": "` + name + `", "imageName": "` + image + `"}}`, Pinned: pinned}
		must.Succeed(t, r.Deploy(t.Context(), s))
	}
	registry.Close()
	for name, want := range map[string]struct{ pinned, note string }{
		"Another": {other, "as before"}, "Web_1": {found.Pinned, "as before"}, "new": {other, "as those of Another"}, "named": {image, "which may differ"},
	} {
		if again, err := r.Fetch(t.Context(), name, image); err != nil || again.Pinned != want.pinned || !strings.Contains(again.Note, want.note) {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
	}
	if other, err := r.Fetch(t.Context(), "Web_1", host+"/shop/web:3"); err != nil || other.Pinned != host+"/shop/web:3" || !strings.Contains(other.Note, "which may differ") {
		t.Errorf("%+v, %v", other, err)
	}
}

// TestPinRedirected: a registry that redirects is followed, and its login stays with it.
func TestPinRedirected(t *testing.T) {
	const sum = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	var near *httptest.Server
	near = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		switch {
		case r.URL.Path == "/token" && authorization == "":
			fmt.Fprint(w, `{"token": "t"}`)
		case r.URL.Path == "/v2/open/manifests/2" && authorization == "", r.URL.Path == "/v2/closed/manifests/2" && authorization == "Bearer t":
			w.Header().Set("Docker-Content-Digest", sum)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+near.URL+`/token",scope="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer near.Close()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		image := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v2/shop/"), "/manifests/2")
		_, _, known := r.BasicAuth()
		to := map[string]string{
			"open": near.URL + "/v2/open/manifests/2", "closed": near.URL + "/v2/closed/manifests/2", "mine": near.URL + "/v2/open/manifests/2",
			"moved": "/v2/shop/here/manifests/2", "loop": r.URL.Path,
		}[image]
		switch {
		case (image == "mine" || image == "moved" || image == "here") && !known:
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
		case to != "":
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Docker-Content-Digest", sum)
		}
	}))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")
	logins := t.TempDir()
	t.Setenv("DOCKER_CONFIG", logins)
	must.Succeed(t, os.WriteFile(filepath.Join(logins, "config.json"), []byte(`{"auths": {"`+host+`": {"auth": "dTpw"}}}`), 0o600)) // u:p
	for _, image := range []string{"open", "closed", "mine", "moved"} {
		if got, err := pin(t.Context(), host+"/shop/"+image+":2"); err != nil || got != host+"/shop/"+image+"@"+sum {
			t.Errorf("%s: %s, %v", image, got, err)
		}
	}
	if got, err := pin(t.Context(), host+"/shop/loop:2"); err == nil || !strings.Contains(err.Error(), "more than 3 redirects") {
		t.Errorf("a loop: %s, %v", got, err)
	}
}
