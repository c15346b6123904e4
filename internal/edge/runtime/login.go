package runtime

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
)

// maxLoginBytes bounds the file of logins.
const maxLoginBytes = 1 << 20

// home returns the folder of the user that weir-edge runs as; a systemd unit does not say.
func home() string { return cmp.Or(os.Getenv("HOME"), "/root") }

// loginFile returns the file in which docker login keeps the logins of that user.
func loginFile() string {
	return filepath.Join(cmp.Or(os.Getenv("DOCKER_CONFIG"), filepath.Join(home(), ".docker")), "config.json")
}

// RegistryAuth returns the login for an image's registry, as the engine takes it; empty if there is
// none. It is that of the registry's credential helper, or in the file of logins or, if that only notes
// it, of the credential store. Errors: the file cannot be read, the helper has no answer.
func RegistryAuth(ctx context.Context, image string) (encoded string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", nil //nolint:nilerr // an ID has no registry, and the engine refuses what is no name
	}
	file, err := os.Open(loginFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("read logins of registries: %w", err)
	}
	defer file.Close()
	var kept struct {
		Auths       map[string]registry.AuthConfig `json:"auths"`
		CredHelpers map[string]string              `json:"credHelpers"`
		CredsStore  string                         `json:"credsStore"`
	}
	if err := json.NewDecoder(io.LimitReader(file, maxLoginBytes)).Decode(&kept); err != nil {
		return "", fmt.Errorf("read logins of registries from %s: %w", file.Name(), err)
	}
	for server, helper := range kept.CredHelpers {
		if registryHost(server) == reference.Domain(named) {
			return encodeHelpers(ctx, helper, server)
		}
	}
	noted := ""
	for server, login := range kept.Auths {
		switch {
		case registryHost(server) != reference.Domain(named):
		case login.Auth == "" && login.IdentityToken == "":
			noted = server
		default:
			said, err := base64.StdEncoding.DecodeString(login.Auth)
			if err != nil {
				return "", fmt.Errorf("read the login of %s from %s: %w", server, file.Name(), err)
			}
			login.Username, login.Password, _ = strings.Cut(string(said), ":")
			login.Auth, login.ServerAddress = "", server
			return authconfig.Encode(login)
		}
	}
	if noted == "" || kept.CredsStore == "" {
		return "", nil
	}
	return encodeHelpers(ctx, kept.CredsStore, noted)
}

// encodeHelpers returns the login that a helper has of a server.
func encodeHelpers(ctx context.Context, helper, server string) (encoded string, err error) {
	login, err := askHelper(ctx, helper, server)
	if err != nil || login == (registry.AuthConfig{}) {
		return "", err
	}
	return authconfig.Encode(login)
}

// registryHost returns the registry of a key in the file of logins: a host, or a URL of version 1 of
// the protocol.
func registryHost(key string) string {
	_, rest, isURL := strings.Cut(key, "://")
	if !isURL {
		rest = key
	}
	host, _, _ := strings.Cut(rest, "/")
	if host == "index.docker.io" {
		return "docker.io"
	}
	return host
}
