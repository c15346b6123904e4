package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// LoadTLS reads whom to trust from caFile, certificates in PEM (empty: the authorities
// that the system trusts), and who asks from certFile and keyFile (empty: nobody, or a
// token says).
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
	config.Certificates = []tls.Certificate{certificate}
	return config, nil
}
