package kubernetes

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/front/config"
)

// accountFolder is where a pod has the token of its service account, which kubelet renews.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubeconfig is the part of a kubeconfig that is read.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []contextOfConfig
	Clusters       []struct {
		Name    string
		Cluster struct {
			Server     string
			CAFile     string `yaml:"certificate-authority"`
			CAData     string `yaml:"certificate-authority-data"`
			Insecure   bool   `yaml:"insecure-skip-tls-verify"`
			ServerName string `yaml:"tls-server-name"`
			ProxyURL   string `yaml:"proxy-url"`
		}
	}
	Users []struct {
		Name string
		User userOfConfig
	}
}

// contextOfConfig names a cluster, and how to log in there.
type contextOfConfig struct {
	Name    string
	Context struct{ Cluster, User, Namespace string }
}

// userOfConfig is how a user logs in.
type userOfConfig struct {
	CertFile  string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Token     string
	TokenFile string `yaml:"tokenFile"`
	// What follows is refused.
	Exec         any
	AuthProvider any    `yaml:"auth-provider"`
	Username     string // and a password
	As           string // impersonation
}

// unsupported returns a way to log in that weir-edge does not have; empty if there is none.
func (u *userOfConfig) unsupported() string {
	switch {
	case u.Exec != nil:
		return "a program"
	case u.AuthProvider != nil:
		return "an auth-provider"
	case u.Username != "":
		return "username and password"
	case u.As != "":
		return "the name of another (as)"
	}
	return ""
}

// logIn returns how to ask the API server of a kubeconfig's current context, or of the cluster of this
// pod, and the namespace.
func logIn(path string) (*api, string, error) {
	if path == config.PodKubeconfig {
		return logInPod(accountFolder, os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	a, namespace, err := readKubeconfig(text, filepath.Dir(path))
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig %s: %w", path, err)
	}
	return a, namespace, nil
}

func logInPod(folder, host, port string) (*api, string, error) {
	namespace, err := os.ReadFile(filepath.Join(folder, "namespace"))
	if err != nil || host == "" {
		return nil, "", errors.Join(errors.New("weir-edge is not in a pod with a service account: name a kubeconfig"), err)
	}
	ca, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, "", fmt.Errorf("read the authority of the API server: %w", err)
	}
	a, err := newAPI("https://"+net.JoinHostPort(host, port), &tls.Config{RootCAs: poolOf(ca)})
	if err == nil {
		a.tokenFile = filepath.Join(folder, "token")
	}
	return a, strings.TrimSpace(string(namespace)), err
}

// readKubeconfig reads a kubeconfig whose files are relative to a folder.
func readKubeconfig(text []byte, folder string) (*api, string, error) {
	var c kubeconfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, "", err
	}
	x := slices.IndexFunc(c.Contexts, func(x contextOfConfig) bool { return x.Name == c.CurrentContext })
	if x < 0 {
		return nil, "", fmt.Errorf("it has no context %q: kubectl config use-context NAME", c.CurrentContext)
	}
	to := c.Contexts[x].Context
	trust, server := &tls.Config{}, ""
	for _, of := range c.Clusters {
		if of.Name != to.Cluster {
			continue
		}
		if of.Cluster.ProxyURL != "" {
			return nil, "", fmt.Errorf("the cluster %s has a proxy-url, which weir-edge does not use: give a kubeconfig without one", of.Name)
		}
		ca, err := contentOf(of.Cluster.CAData, of.Cluster.CAFile, folder)
		if err != nil {
			return nil, "", err
		}
		if server = of.Cluster.Server; ca != nil {
			trust.RootCAs = poolOf(ca)
		}
		trust.ServerName = of.Cluster.ServerName
		trust.InsecureSkipVerify = of.Cluster.Insecure //nolint:gosec // its user has written so
	}
	token, tokenFile := "", ""
	for _, of := range c.Users {
		if of.Name != to.User {
			continue
		}
		if by := of.User.unsupported(); by != "" {
			return nil, "", fmt.Errorf("the user %s logs in by %s, which weir-edge does not: give a kubeconfig with the token of a service account", of.Name, by)
		}
		cert, err := contentOf(of.User.CertData, of.User.CertFile, folder)
		if err != nil {
			return nil, "", err
		}
		key, err := contentOf(of.User.KeyData, of.User.KeyFile, folder)
		if err != nil {
			return nil, "", err
		}
		if cert != nil {
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				return nil, "", fmt.Errorf("the certificate of the user %s: %w", of.Name, err)
			}
			trust.Certificates = []tls.Certificate{pair}
		}
		if token = of.User.Token; of.User.TokenFile != "" {
			tokenFile = beside(folder, of.User.TokenFile)
		}
	}
	a, err := newAPI(server, trust)
	if err == nil {
		a.token, a.tokenFile = token, tokenFile
	}
	return a, cmp.Or(to.Namespace, "default"), err
}

// newAPI returns a client of an API server; it makes no request.
func newAPI(server string, trust *tls.Config) (*api, error) {
	at, err := url.Parse(server)
	if err != nil || at.Host == "" {
		return nil, fmt.Errorf("the API server %q is no URL", server)
	}
	trust.MinVersion = tls.VersionTLS12
	return &api{server: strings.TrimSuffix(server, "/"), watched: watched{changes: map[string]uint64{}, open: map[string]bool{}}, http: transport.Client(&http.Transport{
		TLSClientConfig: trust, ForceAttemptHTTP2: true,
		// Without pings all requests of a connection to a vanished API server wait until TCP gives up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	})}, nil
}

func poolOf(ca []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return pool
}

func beside(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}
