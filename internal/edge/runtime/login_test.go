package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if auth, err := RegistryAuth(t.Context(), "nginx"); auth != "" || err != nil {
		t.Errorf("without a file: %q, %v", auth, err)
	}
	write(`{"auths":{"https://index.docker.io/v1/":{"auth":"bWU6c2VjcmV0"},"registry.lan:5000":{"auth":"eW91OmE6Yg=="},
		"token.lan":{"auth":"PHRva2VuPjo=","identitytoken":"t"},"noted.lan":{}}}`)
	for image, want := range map[string]registry.AuthConfig{
		"nginx":                       {Username: "me", Password: "secret", ServerAddress: "https://index.docker.io/v1/"},
		"docker.io/me/shop@" + digest: {Username: "me", Password: "secret", ServerAddress: "https://index.docker.io/v1/"},
		"registry.lan:5000/shop:1":    {Username: "you", Password: "a:b", ServerAddress: "registry.lan:5000"},
		"token.lan/shop":              {Username: "<token>", IdentityToken: "t", ServerAddress: "token.lan"},
		"registry.lan/shop":           {},
		"noted.lan/shop":              {},
	} {
		auth, err := RegistryAuth(t.Context(), image)
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
		if _, err := RegistryAuth(t.Context(), "nginx"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHelpers: logins that credential helpers keep, for registries that name one or that docker login
// has noted, and what is said of a helper that has no answer.
func TestHelpers(t *testing.T) {
	logins, programs := t.TempDir(), t.TempDir()
	t.Setenv("DOCKER_CONFIG", logins)
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	must.Succeed(t, os.WriteFile(filepath.Join(logins, "config.json"), []byte(`{"auths":{"https://index.docker.io/v1/":{},"gone.lan":{}},"credsStore":"keeps",
		"credHelpers":{"cloud.lan:5000":"keeps","none.lan":"missing","path.lan":"../keeps","open.lan":"open","odd.lan":"odd","slow.lan":"slow","linked.lan":"linked"}}`), 0o600))
	helper := func(name, script string, mode os.FileMode) {
		path := filepath.Join(programs, "docker-credential-"+name)
		must.Succeed(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
		must.Succeed(t, os.Chmod(path, mode))
	}
	helper("keeps", `test "$1" = get && test -n "$HOME" && read -r server && case "$server" in
		cloud.lan:5000) printf '{"ServerURL":"%s","Username":"<token>","Secret":"t"}' "$server";;
		gone.lan) echo "credentials not found in native keychain"; exit 1;;
		*) printf '{"ServerURL":"%s","Username":"me","Secret":"a:b"}' "$server";; esac`, 0o700)
	helper("open", "exit", 0o722)
	helper("odd", "echo no key; exit 3", 0o700)
	helper("slow", "sleep 60", 0o700)
	helper("linked", "exit", 0o700)
	others := filepath.Join(t.TempDir(), "others") // a folder that other users can change
	must.Succeed(t, errors.Join(os.Mkdir(others, 0o700), os.Chmod(others, 0o777), os.Rename(programs+"/docker-credential-linked", others+"/program"),
		os.Symlink(others+"/program", programs+"/docker-credential-linked")))
	for image, want := range map[string]registry.AuthConfig{
		"nginx":               {Username: "me", Password: "a:b", ServerAddress: "https://index.docker.io/v1/"},
		"cloud.lan:5000/shop": {IdentityToken: "t", ServerAddress: "cloud.lan:5000"},
		"gone.lan/shop":       {},
		"other.lan/shop":      {},
	} {
		auth, err := RegistryAuth(t.Context(), image)
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
	for image, says := range map[string]string{
		"none.lan/shop":   "ask docker-credential-missing for the login of none.lan: it is in no folder of PATH",
		"path.lan/shop":   "not a program's name",
		"open.lan/shop":   "chown root " + programs + "/docker-credential-open",
		"linked.lan/shop": "chown root " + others + " && chmod go-w",
		"odd.lan/shop":    `exit status 3: "no key": see what`,
	} {
		if auth, err := RegistryAuth(t.Context(), image); auth != "" || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v, want %q", image, auth, err, says)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := RegistryAuth(ctx, "slow.lan/shop"); err == nil || time.Since(began) > helperTimeout {
		t.Errorf("a helper without an answer: %v, after %v", err, time.Since(began))
	}
}
