package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

// LoadTLS reads the trusted authorities from caFile in PEM (empty: those of the system), and the
// client's certificate from certFile and keyFile (empty: none; a token may identify the client).
func LoadTLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if caFile != "" {
		data, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read whom to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read whom to trust: %s has no certificate in PEM", caFile)
		}
	}
	switch {
	case certFile == "" && keyFile == "":
		return config, nil
	case certFile == "" || keyFile == "":
		return nil, errors.New("a client's certificate and its key belong together: give both, or none")
	}
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate %s and its key %s: %w", certFile, keyFile, err)
	}
	// Send it for all authorities that a server requests: a server that refuses it says why.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if renewed, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			return &renewed, nil
		}
		return &certificate, nil
	}
	return config, nil
}

// distrust says which side does not trust the other and what to do, or returns "" if the
// error is not about trust.
func distrust(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		other     *tls.CertificateVerificationError
		alert     *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "its certificate is of no authority that is trusted here; say whom to trust, by a file with the authority's certificate"
	case errors.As(err, &name):
		return "its certificate is not for this host; renew it there for this name or address"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is not valid now; renew it there, or set the clock here"
	case errors.As(err, &other):
		return "its certificate cannot be verified"
	case errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate"):
		return "it does not take the certificate that it is shown; show one that is valid now, for clients, and of an authority in its client_ca"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "what answers there does not speak TLS; ask at the address that `listen` of its configuration has"
	}
	return ""
}
