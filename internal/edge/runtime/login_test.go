package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"

	"github.com/weir-project/weir/test/must"
)

// Logins are those that docker login keeps.
func TestRegistryAuth(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	write := func(text string) {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
	}
	if auth, err := RegistryAuth("nginx"); auth != "" || err != nil {
		t.Errorf("without a file: %q, %v", auth, err)
	}
	write(`{"auths":{"https://index.docker.io/v1/":{"auth":"bWU6c2VjcmV0"},"registry.lan:5000":{"auth":"eW91OmE6Yg=="},
		"token.lan":{"auth":"PHRva2VuPjo=","identitytoken":"t"},"stored.lan":{}},"credsStore":"pass"}`)
	for image, want := range map[string]registry.AuthConfig{
		"nginx":                       {Username: "me", Password: "secret", ServerAddress: "https://index.docker.io/v1/"},
		"docker.io/me/shop@" + digest: {Username: "me", Password: "secret", ServerAddress: "https://index.docker.io/v1/"},
		"registry.lan:5000/shop:1":    {Username: "you", Password: "a:b", ServerAddress: "registry.lan:5000"},
		"token.lan/shop":              {Username: "<token>", IdentityToken: "t", ServerAddress: "token.lan"},
		"registry.lan/shop":           {},
		"stored.lan/shop":             {},
	} {
		auth, err := RegistryAuth(image)
		must.Succeed(t, err)
		got := &registry.AuthConfig{}
		if auth != "" {
			got, err = authconfig.Decode(auth)
			must.Succeed(t, err)
		}
		if *got != want {
			t.Errorf("%s: %+v, want %+v", image, got, want)
		}
	}
	for text, says := range map[string]string{`{"auths":`: "config.json", `{"auths":{"docker.io":{"auth":"?"}}}`: "docker.io"} {
		write(text)
		if _, err := RegistryAuth("nginx"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
