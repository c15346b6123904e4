package cli

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/controller"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// sdnAPIFlags say where and to whom the controller answers on other hosts.
type sdnAPIFlags struct {
	address, tokens string
	files           access.TLSFiles
	admins          []string
}

func (f *sdnAPIFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.address, "api", "", "address at which other hosts read and promise, such as weir-edge, over TLS: ADDR:PORT, e.g. 192.0.2.9:7485")
	set.StringVar(&f.files.Certificate, "api-cert", "", "certificate of --api, PEM")
	set.StringVar(&f.files.Key, "api-key", "", "key of --api-cert, PEM")
	set.StringVar(&f.files.ClientCA, "api-client-ca", "", "authority of clients' certificates for --api, PEM; without one clients need a token")
	set.StringSliceVar(&f.admins, "api-admin", nil, "common name of clients' certificates that may promise; may be repeated")
	set.StringVar(&f.tokens, "tokens", config.DefaultTokensPath, "file of tokens for --api, which weir token writes; those with the role admin may promise")
}

// isLoose reports whether flags are written that have no effect without --api.
func (f *sdnAPIFlags) isLoose(written func(string) bool) bool {
	for _, name := range []string{"api-cert", "api-key", "api-client-ca", "api-admin", "tokens"} {
		if written(name) && f.address == "" {
			return true
		}
	}
	return false
}

// check returns an error for wrong options, before a listener opens.
func (f *sdnAPIFlags) check() error {
	address, err := config.ParseListen(f.address)
	if err != nil {
		return cmdline.Usagef("--api: %q %w", f.address, err)
	}
	if f.address = address; f.address == "" {
		return nil
	}
	if f.files.Certificate == "" || f.files.Key == "" {
		return cmdline.Usagef("--api needs TLS: give --api-cert and --api-key")
	}
	return nil
}

// open returns the listener and the server of --api.
func (f *sdnAPIFlags) open(c *controller.Controller, queues func() map[topology.Port]qos.PortState, log *slog.Logger) (net.Listener, *http.Server, error) {
	certificates, err := access.NewCertificates(f.files, f.admins, log)
	if err != nil {
		return nil, nil, err
	}
	l, err := httpapi.ListenTLS(f.address, certificates)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for other hosts: %w: give --api another address", err)
	}
	log.Info("listening for other hosts", "address", l.Addr().String())
	return l, c.Remote(queues, access.NewTokens(f.tokens, log), certificates), nil
}
