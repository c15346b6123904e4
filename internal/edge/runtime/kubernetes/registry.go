package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"

	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// # Digests of images
//
// Kubelets get images by name, each when its first pod needs one, so a tag that moves would give a service two programs, and
// the way back from an update the new one. So the registry is asked for the digest when a service is deployed, with the login
// that docker login has kept for it, as on a swarm (the distribution protocol: one HEAD, and its token; redirects are followed). Kubelets have
// logins of their own, and may reach registries that weir-edge does not reach: then pods run the name, and deploy prints a note.

// pinTimeout bounds the questions for a digest.
const pinTimeout = 5 * time.Second

// manifestTypes are the manifests that may be answered with: of one image, or of one for each platform.
const manifestTypes = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, " +
	"application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

// pin returns the name of an image with the digest that its registry has for it now.
func pin(ctx context.Context, image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("read the name of the image: %w", err)
	}
	if _, is := named.(reference.Digested); is {
		return image, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	login, err := loginOf(ctx, image)
	if err != nil {
		return "", err
	}
	client := transport.Client(&http.Transport{Proxy: http.ProxyFromEnvironment})
	client.CheckRedirect = checkRedirect
	defer client.CloseIdleConnections()
	root := registryURL(reference.Domain(named))
	_, asked, _ := strings.Cut(root, "://")
	path := root + "/v2/" + reference.Path(named) + "/manifests/" + reference.TagNameOnly(named).(reference.Tagged).Tag()
	ask := func(authorize func(*http.Request)) (status string, header http.Header, err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, path, http.NoBody)
		if err != nil {
			return "", nil, fmt.Errorf("ask the registry for the image: %w", err)
		}
		request.Header.Set("Accept", manifestTypes)
		authorize(request)
		response, err := client.Do(request)
		if err != nil {
			return "", nil, fmt.Errorf("ask the registry for the image: %w", err)
		}
		if at := response.Request.URL; at.Host != asked { // the login of the registry is for no other
			login, path, asked = registry.AuthConfig{}, at.String(), at.Host
		}
		return response.Status, response.Header, response.Body.Close()
	}
	status, header, err := ask(func(*http.Request) {})
	if challenge := header.Get("WWW-Authenticate"); err == nil && challenge != "" {
		var authorize func(*http.Request)
		if authorize, err = answerChallenge(ctx, client, challenge, &login); err == nil {
			status, header, err = ask(authorize)
		}
	}
	if err != nil {
		return "", err
	}
	pinned := reference.TrimNamed(named).String() + "@" + header.Get("Docker-Content-Digest")
	if _, err := reference.ParseNormalizedNamed(pinned); err != nil {
		return "", fmt.Errorf("the registry says %q, and no digest", status)
	}
	return pinned, nil
}

// checkRedirect follows a few redirects, such as those of registry.k8s.io to a registry nearby, but not from TLS to a
// connection without it. Only the first host gets the authorization.
func checkRedirect(to *http.Request, before []*http.Request) error {
	switch from := before[0].URL; {
	case len(before) > mostRedirects:
		return fmt.Errorf("more than %d redirects", mostRedirects)
	case from.Scheme == "https" && to.URL.Scheme != "https":
		return fmt.Errorf("a redirect to %s, which has no TLS", to.URL.Host)
	case to.URL.Host != from.Host:
		to.Header.Del("Authorization")
	}
	return nil
}

// mostRedirects bounds the redirects of a request.
const mostRedirects = 3

// loginOf returns what docker login has kept for an image's registry; nothing if it has not.
func loginOf(ctx context.Context, image string) (login registry.AuthConfig, err error) {
	encoded, err := runtime.RegistryAuth(ctx, image)
	if err != nil || encoded == "" {
		return login, err
	}
	kept, err := authconfig.Decode(encoded)
	if err != nil {
		return login, fmt.Errorf("read the login of the registry: %w", err)
	}
	return *kept, nil
}

// registryURL returns the URL of a registry, which is without TLS on this host alone.
func registryURL(domain string) string {
	if domain == "docker.io" {
		return "https://registry-1.docker.io"
	}
	host := domain
	if name, _, err := net.SplitHostPort(domain); err == nil {
		host = name
	}
	if address, err := netip.ParseAddr(host); host == "localhost" || err == nil && address.IsLoopback() {
		return "http://" + domain
	}
	return "https://" + domain
}

// challengePart matches a part of a challenge: realm="https://...".
var challengePart = regexp.MustCompile(`(\w+)="([^"]*)"`)

// answerChallenge returns how to authorize a request as a registry wants it: by the login, or by a token that it has
// another server give.
func answerChallenge(ctx context.Context, client *http.Client, challenge string, login *registry.AuthConfig) (func(*http.Request), error) {
	byLogin := func(request *http.Request) {
		if login.Username != "" {
			request.SetBasicAuth(login.Username, login.Password)
		}
	}
	if !strings.HasPrefix(strings.ToLower(challenge), "bearer ") {
		return byLogin, nil
	}
	query, realm := url.Values{}, ""
	for _, part := range challengePart.FindAllStringSubmatch(challenge, -1) {
		if part[1] == "realm" {
			realm = part[2]
			continue
		}
		query.Set(part[1], part[2])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, realm+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for a token of the registry: %w", err)
	}
	byLogin(request)
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for a token of the registry: %w", err)
	}
	defer response.Body.Close()
	var said struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	err = json.NewDecoder(&transport.Bounded{R: response.Body, MaxBytes: maxTokenBytes}).Decode(&said)
	token := cmp.Or(said.Token, said.AccessToken)
	if err == nil && token == "" {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for a token of the registry: %w", err)
	}
	return func(request *http.Request) { request.Header.Set("Authorization", "Bearer "+token) }, nil
}

// maxTokenBytes bounds the answer with a token.
const maxTokenBytes = 1 << 20
