package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// TLSFiles are the files of a TLS listener, all in PEM.
type TLSFiles struct {
	// Certificate and Key are the agent's.
	Certificate, Key string
	// ClientCA has the authorities of client certificates; empty for none.
	ClientCA string
}

// credentials are the content of TLSFiles.
type credentials struct {
	config *tls.Config
	leaf   *x509.Certificate // the agent's
}

// Certificates are the certificates of a TLS listener. A renewed certificate is used from the
// next connection on.
type Certificates struct {
	files kept[*credentials]
	// admins are the common names of clients with the role admin.
	admins []string
	now    func() time.Time
}

// NewCertificates reads the files; admins are the common names of the clients with the role
// admin. Errors: a file cannot be read or used.
func NewCertificates(files TLSFiles, admins []string, log *slog.Logger) (*Certificates, error) {
	first, err := files.read()
	if err != nil {
		return nil, err
	}
	c := &Certificates{admins: admins, now: time.Now}
	paths := []string{files.Certificate, files.Key}
	if files.ClientCA != "" {
		paths = append(paths, files.ClientCA)
	}
	var wrong complaint
	c.files = kept[*credentials]{
		paths: paths, value: first,
		read: func() (*credentials, error) {
			read, err := files.read()
			wrong.say(log, "go on with the certificates that were read before", err)
			return read, err
		},
		failed: func(before *credentials, _ error) *credentials { return before },
	}
	return c, nil
}

func (f TLSFiles) read() (*credentials, error) {
	certificate, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", f.Certificate, f.Key, err)
	}
	c := &credentials{leaf: certificate.Leaf, config: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"},
	}}
	if f.ClientCA == "" {
		return c, nil
	}
	data, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of client certificates: %w", err)
	}
	c.config.ClientCAs = x509.NewCertPool()
	if !c.config.ClientCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read the authorities of client certificates: %s has no certificate in PEM", f.ClientCA)
	}
	c.config.ClientAuth = tls.VerifyClientCertIfGiven // a client without one has a token, or is refused with the reason
	return c, nil
}

// Config returns the configuration of a listener. Each connection uses the files as they are
// then, and its client's certificate is checked anew: there are no session tickets.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.files.get().config.Clone()
			config.SessionTicketsDisabled = true
			return config, nil
		},
	}
}

var errExpired = errors.New("the certificate that this connection began with is not valid any more: renew it and connect again")

// Caller returns the holder of the client certificate of a connection; ok is false if there is
// none. Errors: it is not valid any more.
func (c *Certificates) Caller(state *tls.ConnectionState) (caller Caller, ok bool, err error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Caller{}, false, nil
	}
	leaf := state.PeerCertificates[0]
	if now := c.now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return Caller{}, false, errExpired
	}
	caller = Caller{Name: "certificate " + leaf.Subject.CommonName, Role: Read}
	if leaf.Subject.CommonName != "" && slices.Contains(c.admins, leaf.Subject.CommonName) {
		caller.Role = Admin
	}
	return caller, true, nil
}

// IsFor reports whether the certificate of the agent is for a host name without port. A request
// for another name came through a foreign name server (DNS rebinding).
func (c *Certificates) IsFor(host string) bool {
	return c.files.get().leaf.VerifyHostname(host) == nil
}
