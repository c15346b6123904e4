package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/weir-project/weir/internal/agent/server"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/httpapi"
)

// checkListen refuses to listen for other hosts without TLS.
func checkListen(listen config.Listen, file string) error {
	if listen.Address == "" || listen.CertificatePath != "" {
		return nil
	}
	return cmdline.Usagef("--listen %s needs TLS: name a certificate and its key under listen in %s (docs/api.md says how to make them), or reach the socket from elsewhere with ssh",
		listen.Address, file)
}

// openRemote serves the API to other hosts. If that fails, the agent runs without it: shares stay
// in force.
func openRemote(api *server.API, listen config.Listen, tokens *access.Tokens, log *slog.Logger) *http.Server {
	certificates, err := access.NewCertificates(access.TLSFiles{
		Certificate: listen.CertificatePath, Key: listen.KeyPath, ClientCA: listen.ClientCAPath,
	}, listen.Admins, log)
	if err != nil {
		log.Error("cannot listen for other hosts; the agent runs without that", "error", err)
		return nil
	}
	remote := api.Remote(tokens, certificates)
	listener, err := httpapi.ListenTLS(listen.Address, certificates)
	if err != nil {
		log.Error("cannot listen for other hosts; the agent runs without that", "error", fmt.Errorf("%w: give listen another address", err))
		return nil
	}
	log.Info("listening for other hosts", "address", listener.Addr())
	if listen.ClientCAPath == "" && !tokens.Any() {
		log.Warn("no other host can use the API: make a token with `weir token NAME`, or give listen a client_ca")
	}
	go func() {
		if err := remote.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve other hosts", "error", err)
		}
	}()
	return remote
}
