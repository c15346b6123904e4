package repo

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// The registry's container. It is in the host's network, as services' proxies are, so
// that the Weir agent knows what it sends by its cgroup and gives it the policy of its
// labels: getting an image must not take from users what services promise them.
const (
	ContainerName = "edgerepository"
	// RoleRepository is the registry's, beside the roles of package runtime.
	RoleRepository = "repository"
	labelConfig    = "weir-edge.repository"
	labelFolder    = "weir-edge.repository-folder"

	// The files in the container.
	programFile, dataDir = "/weir-edge", "/repository"
	certFile, keyFile    = "/tls/cert.pem", "/tls/key.pem"

	// startTimeout limits the wait for the registry's first answer, answerTimeout each request:
	// another program may listen at the address and never answer.
	startTimeout  = 15 * time.Second
	answerTimeout = time.Second
)

// DefaultLabels give image transfers a low weight, so that users' traffic comes first.
var DefaultLabels = map[string]string{"weir.weight": "10"}

// ContainerOptions set how nodes fetch images.
type ContainerOptions struct {
	// Socket is the socket of the container engine.
	Socket string
	// Program is the path of weir-edge, Dir the repository's folder.
	Program, Dir string
	// Address is where nodes reach the registry.
	Address netip.AddrPort
	// Cert and Key are TLS files. Without them engines accept only loopback addresses and those of
	// --insecure-registry.
	Cert, Key string
	// Labels are the container's Weir policy.
	Labels map[string]string
	// Version is the program's version; a container of another version is replaced.
	Version string
}

// ParseAddress parses the address at which nodes reach the repository.
func ParseAddress(text string) (netip.AddrPort, error) {
	address, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return address, fmt.Errorf("%q is not an address and a port, such as 127.0.0.1:7482", text)
	case address.Addr().IsUnspecified():
		return address, fmt.Errorf("%q is every address: write the one at which nodes reach this host", text)
	case address.Port() == 0:
		return address, fmt.Errorf("port 0 in %q is not possible: give the port at which nodes reach the repository", text)
	}
	return address, nil
}

// StartContainer starts the registry's container and waits until it answers. One that runs with the
// same options is kept.
func StartContainer(ctx context.Context, o ContainerOptions) error {
	api, err := runtime.NewClient(o.Socket)
	if err != nil {
		return err
	}
	defer api.Close()
	if err := start(ctx, api, o); err != nil {
		return fmt.Errorf("start the repository at %s: %w", o.Address, err)
	}
	return nil
}

func start(ctx context.Context, api *client.Client, o ContainerOptions) error {
	spec, host, err := describe(o)
	if err != nil {
		return err
	}
	there, err := api.ContainerInspect(ctx, ContainerName, client.ContainerInspectOptions{})
	switch {
	case err == nil && !isOurs(there.Container):
		return fmt.Errorf("a container %s is there that weir-edge has not made: rename it", ContainerName)
	case err == nil && isRunning(there.Container) && there.Container.Config.Labels[labelFolder] != spec.Labels[labelFolder]:
		return fmt.Errorf("another weir-edge gives nodes what is in %s: give this one the same --state-dir, or end that one (docker rm -f %s)", there.Container.Config.Labels[labelFolder], ContainerName)
	case err == nil && maps.Equal(there.Container.Config.Labels, spec.Labels) && isRunning(there.Container):
		return await(ctx, api, o)
	case err == nil:
		if _, err := api.ContainerRemove(ctx, ContainerName, client.ContainerRemoveOptions{Force: true}); err != nil {
			return err
		}
	case !cerrdefs.IsNotFound(err):
		return err
	}
	if err := runtime.LoadProxyImage(ctx, api); err != nil {
		return err
	}
	created, err := api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: ContainerName, Config: spec, HostConfig: host})
	if err != nil {
		return err
	}
	if _, err = api.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err == nil {
		err = await(ctx, api, o)
	}
	if err != nil {
		_, removed := api.ContainerRemove(context.WithoutCancel(ctx), created.ID, client.ContainerRemoveOptions{Force: true})
		return errors.Join(err, removed)
	}
	return nil
}

// describe returns the container's configuration. Its label labelConfig changes with the options,
// the program and the certificate.
func describe(o ContainerOptions) (*container.Config, *container.HostConfig, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, nil, err
	}
	command := []string{programFile, "repository", "--dir", dataDir, "--listen", o.Address.String()}
	// Mounts, unlike binds, of sources that are missing fail: Docker would make folders there, in the
	// place of the program even, and at each start of the host.
	binds := []mount.Mount{
		{Type: mount.TypeBind, Source: o.Program, Target: programFile, ReadOnly: true},
		{Type: mount.TypeBind, Source: dir, Target: dataDir, ReadOnly: true},
	}
	var certificate string
	if o.Cert != "" {
		data, err := os.ReadFile(o.Cert)
		if err != nil {
			return nil, nil, err
		}
		certificate = fmt.Sprintf("certificate %x", sha256.Sum256(data))
		for from, to := range map[string]string{o.Cert: certFile, o.Key: keyFile} {
			path, err := filepath.Abs(from)
			if err != nil {
				return nil, nil, err
			}
			binds = append(binds, mount.Mount{Type: mount.TypeBind, Source: path, Target: to, ReadOnly: true})
		}
		slices.SortFunc(binds, func(a, b mount.Mount) int { return strings.Compare(a.Target, b.Target) })
		command = append(command, "--cert", certFile, "--key", keyFile)
	}
	made := map[string]string{}
	maps.Copy(made, o.Labels)
	made[runtime.LabelRole] = RoleRepository
	made[labelFolder] = dir
	parts := slices.Clone(command)
	for _, b := range binds {
		parts = append(parts, b.Source+":"+b.Target)
	}
	made[labelConfig] = strings.TrimSpace(strings.Join(append(parts, o.Version, certificate), " "))
	config := &container.Config{Image: proxy.Image, Labels: made, Cmd: command}
	return config, &container.HostConfig{
		NetworkMode: "host", UsernsMode: runtime.HostUsers, Mounts: binds, ReadonlyRootfs: true,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyUnlessStopped},
		CapDrop:       []string{"ALL"}, CapAdd: []string{"NET_BIND_SERVICE"}, SecurityOpt: runtime.HostSecurity,
	}, nil
}

func isOurs(c container.InspectResponse) bool {
	return c.Config != nil && c.Config.Labels[runtime.LabelRole] == RoleRepository && c.Config.Labels[labelConfig] != ""
}

func isRunning(c container.InspectResponse) bool { return c.State != nil && c.State.Running }

// await waits until the registry answers, or returns why it does not.
func await(ctx context.Context, api *client.Client, o ContainerOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	scheme := "http"
	// Any answer suffices: nodes verify images by digest.
	asker := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	if o.Cert != "" {
		scheme = "https"
	}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+o.Address.String()+"/v2/", nil)
		if err != nil {
			return err
		}
		response, err := asker.Do(request)
		if err == nil {
			response.Body.Close()
			return ended(ctx, api)
		}
		if said := ended(context.WithoutCancel(ctx), api); said != nil {
			return said
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ended returns the container's last error output if it has ended, because another program may
// answer at the address.
func ended(ctx context.Context, api *client.Client) error {
	found, err := api.ContainerInspect(ctx, ContainerName, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	if s := found.Container.State; s == nil || s.Running && !s.Restarting && found.Container.RestartCount == 0 {
		return nil
	}
	said, err := runtime.LastWords(ctx, api, ContainerName)
	if err != nil {
		return err
	}
	return fmt.Errorf("it ended and said %q", said)
}

// RemoveContainer removes the registry's container, that of a folder only unless dir is empty;
// removed is false if there is none.
func RemoveContainer(ctx context.Context, socket, dir string) (removed bool, err error) {
	api, err := runtime.NewClient(socket)
	if err != nil {
		return false, err
	}
	defer api.Close()
	found, err := api.ContainerInspect(ctx, ContainerName, client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) || err == nil && !isOurs(found.Container) {
		return false, nil
	}
	if path, wrong := filepath.Abs(dir); dir != "" && (wrong != nil || err == nil && found.Container.Config.Labels[labelFolder] != path) {
		return false, wrong
	}
	if err == nil {
		_, err = api.ContainerRemove(ctx, ContainerName, client.ContainerRemoveOptions{Force: true})
	}
	if err != nil && !cerrdefs.IsNotFound(err) {
		return false, fmt.Errorf("remove the repository: %w", err)
	}
	return true, nil
}

// places limits open connections. They are anonymous: above the limit the oldest connection of the
// address with the most is closed.
var places = access.Budget{Strangers: 1024}

// Serve serves in the container, until ctx ends.
func Serve(ctx context.Context, dir, address, cert, key string, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve the repository: %w", err)
	}
	server := httpapi.NewServer((&Repository{dir: dir}).Handler(), log)
	access.NewPlaces(places).Watch(server, func(conn net.Conn) string { return access.Network(conn.RemoteAddr().String()) })
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if cert != "" {
		err = server.ServeTLS(listener, cert, key)
	} else {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the repository at %s: %w", address, err)
}
