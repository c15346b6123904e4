package runtime

import (
	"cmp"
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

// loginFile returns the file in which docker login keeps logins of the user that weir-edge runs as.
// A systemd unit has no HOME.
func loginFile() string {
	return filepath.Join(cmp.Or(os.Getenv("DOCKER_CONFIG"), filepath.Join(cmp.Or(os.Getenv("HOME"), "/root"), ".docker")), "config.json")
}

// RegistryAuth returns the login for an image's registry, as the engine takes it; empty if there is
// none. Logins in a credential store are not read.
func RegistryAuth(image string) (encoded string, err error) {
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
		Auths map[string]registry.AuthConfig `json:"auths"`
	}
	if err := json.NewDecoder(io.LimitReader(file, maxLoginBytes)).Decode(&kept); err != nil {
		return "", fmt.Errorf("read logins of registries from %s: %w", file.Name(), err)
	}
	for key, login := range kept.Auths {
		if registryHost(key) != reference.Domain(named) || login.Auth == "" && login.IdentityToken == "" {
			continue
		}
		said, err := base64.StdEncoding.DecodeString(login.Auth)
		if err != nil {
			return "", fmt.Errorf("read the login of %s from %s: %w", key, file.Name(), err)
		}
		login.Username, login.Password, _ = strings.Cut(string(said), ":")
		login.Auth, login.ServerAddress = "", key
		return authconfig.Encode(login)
	}
	return "", nil
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
