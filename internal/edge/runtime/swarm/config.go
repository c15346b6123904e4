package swarm

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
)

// Names of Swarm configs.
const (
	keyName    = "edge-keys"
	ledgerName = "edge-ledger"
	// labelPromises is the ledger's content: the data of a config never change, its
	// labels do, and only together with the version that was read.
	labelPromises = "weir-edge.promises"
)

func fileName(service string) string { return "edge-proxy-" + service }

// makeConfig creates a config, or returns the existing one.
func (r *Runtime) makeConfig(ctx context.Context, name string, data []byte, labels map[string]string) (swarm.Config, error) {
	_, err := r.api.ConfigCreate(ctx, client.ConfigCreateOptions{Spec: swarm.ConfigSpec{
		Annotations: swarm.Annotations{Name: name, Labels: labels}, Data: data,
	}})
	if err != nil && !cerrdefs.IsConflict(err) && !cerrdefs.IsAlreadyExists(err) {
		return swarm.Config{}, fmt.Errorf("make the swarm's config %s: %w", name, err)
	}
	return r.config(ctx, name)
}

func (r *Runtime) config(ctx context.Context, name string) (swarm.Config, error) {
	found, err := r.api.ConfigInspect(ctx, name, client.ConfigInspectOptions{})
	if err != nil {
		return swarm.Config{}, fmt.Errorf("read the swarm's config %s: %w", name, err)
	}
	return found.Config, nil
}

// saveFile stores the proxies' configuration file. It contains no servers; proxies get them at run
// time.
func (r *Runtime) saveFile(ctx context.Context, service, file string) (id string, err error) {
	config, err := r.makeConfig(ctx, fileName(service), []byte(file), nil)
	if err == nil && string(config.Spec.Data) != file { // of a service that is no more
		if err = r.removeFile(ctx, service); err == nil {
			config, err = r.makeConfig(ctx, fileName(service), []byte(file), nil)
		}
	}
	return config.ID, err
}

func (r *Runtime) removeFile(ctx context.Context, service string) error {
	_, err := r.api.ConfigRemove(ctx, fileName(service), client.ConfigRemoveOptions{})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("remove the swarm's config %s: %w", fileName(service), err)
	}
	return nil
}

// key authenticates weir-edge and proxies to each other. The config keyName has the certificates
// and keys of both. No service refers to it, so it never leaves the managers. What proxies need of
// it is made from it: a secret with their own key, and a config with weir-edge's certificate. So the
// key of a captured worker commands nothing.
type key struct {
	// name is that of the secret and the config of proxies; empty if there are none.
	name                string
	secretID, clientsID string
	config              *tls.Config
	// proxies is the certificate and the key of proxies, clients weir-edge's certificate, in PEM.
	proxies, clients []byte
}

// keyHost is the name in the certificates; proxies are reached by address.
const keyHost = "weir-edge"

// findKey returns the key, and makes what is missing of it.
func (r *Runtime) findKey(ctx context.Context) (key, error) {
	fresh, err := makeKeys()
	if err != nil {
		return key{}, fmt.Errorf("make a key: %w", err)
	}
	config, err := r.makeConfig(ctx, keyName, fresh, nil)
	if err != nil {
		return key{}, err
	}
	k, err := readKey(config)
	if err != nil {
		return key{}, err
	}
	clients, err := r.makeConfig(ctx, k.name, k.clients, nil)
	if err != nil {
		return key{}, err
	}
	_, err = r.api.SecretCreate(ctx, client.SecretCreateOptions{Spec: swarm.SecretSpec{Annotations: swarm.Annotations{Name: k.name}, Data: k.proxies}})
	if err != nil && !cerrdefs.IsConflict(err) && !cerrdefs.IsAlreadyExists(err) {
		return key{}, fmt.Errorf("make the swarm's secret %s: %w", k.name, err)
	}
	secret, err := r.api.SecretInspect(ctx, k.name, client.SecretInspectOptions{})
	if err != nil {
		return key{}, fmt.Errorf("read the swarm's secret %s: %w", k.name, err)
	}
	k.clientsID, k.secretID = clients.ID, secret.Secret.ID
	return k, nil
}

func readKey(config swarm.Config) (k key, err error) {
	var blocks [][]byte
	for block, rest := pem.Decode(config.Spec.Data); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, pem.EncodeToMemory(block))
	}
	if len(blocks) != 4 {
		err = fmt.Errorf("it has %d certificates and keys instead of 4", len(blocks))
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(blocks[0], blocks[1])
	}
	if err != nil {
		return key{}, fmt.Errorf("read the swarm's config %s: %w: docker config rm %s, start weir-edge again, and deploy services anew", keyName, err, keyName)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(blocks[2])
	return key{
		name: keyName + "-" + config.ID, clients: blocks[0], proxies: slices.Concat(blocks[2], blocks[3]),
		config: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: trusted, ServerName: keyHost, MinVersion: tls.VersionTLS12},
	}, nil
}

// makeKeys returns two self-signed certificates with their keys, weir-edge's and that of proxies.
// They do not expire.
func makeKeys() ([]byte, error) {
	var text bytes.Buffer
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: keyHost}, DNSNames: []string{keyHost},
			NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), // clocks may be apart
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}
		certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			return nil, err
		}
		encoded, err := x509.MarshalECPrivateKey(private)
		if err != nil {
			return nil, err
		}
		for _, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: certificate}, {Type: "EC PRIVATE KEY", Bytes: encoded}} {
			if err := pem.Encode(&text, block); err != nil {
				return nil, err
			}
		}
	}
	return text.Bytes(), nil
}

// ledger is a config whose labels are what is promised. It implements engine.Ledger.
type ledger struct{ r *Runtime }

// Ledger implements runtime.Runtime.
func (r *Runtime) Ledger() engine.Ledger { return ledger{r} }

// findLedger finds or creates the ledger, and keeps there the heartbeat that the swarm has before it
// is changed; empty if it stays.
func (r *Runtime) findLedger(ctx context.Context, heartbeatBefore string) error {
	config, err := r.makeConfig(ctx, ledgerName, []byte("The labels of this config are what weir-edge promises to instances.\n"), map[string]string{
		runtime.LabelRole: runtime.RoleLedger, labelPromises: "{}", labelHeartbeat: heartbeatBefore,
	})
	if err != nil || heartbeatBefore == "" || config.Spec.Labels[labelHeartbeat] == heartbeatBefore {
		return err
	}
	config.Spec.Labels[labelHeartbeat] = heartbeatBefore
	if _, err = r.api.ConfigUpdate(ctx, config.ID, client.ConfigUpdateOptions{Version: config.Version, Spec: config.Spec}); err != nil {
		return fmt.Errorf("keep the swarm's heartbeat: %w", err) // another weir-edge was faster: the next start tries again
	}
	return nil
}

// Read implements engine.Ledger.
func (l ledger) Read(ctx context.Context) (engine.Promises, engine.Token, error) {
	config, err := l.r.config(ctx, ledgerName)
	if l.r.opts.LookOnly && cerrdefs.IsNotFound(err) {
		return engine.Promises{}, "", nil
	} else if err != nil {
		return nil, "", err
	}
	promises := engine.Promises{}
	if err := json.Unmarshal([]byte(config.Spec.Labels[labelPromises]), &promises); err != nil {
		return nil, "", fmt.Errorf("read what is promised from the swarm's config %s: %w: remove it and start weir-edge again to have it written anew", ledgerName, err)
	}
	return promises, engine.Token(strconv.FormatUint(config.Version.Index, 10)), nil
}

// Swap implements engine.Ledger.
func (l ledger) Swap(ctx context.Context, token engine.Token, promises engine.Promises) error {
	version, err := strconv.ParseUint(string(token), 10, 64)
	if err != nil {
		return fmt.Errorf("change what is promised: %q is not a version", token)
	}
	text, err := json.Marshal(promises)
	if err != nil {
		return fmt.Errorf("write what is promised: %w", err)
	}
	config, err := l.r.config(ctx, ledgerName)
	if err != nil {
		return err
	}
	if config.Version.Index != version {
		return engine.ErrConflict
	}
	spec := config.Spec
	spec.Labels = map[string]string{runtime.LabelRole: runtime.RoleLedger, labelPromises: string(text), labelHeartbeat: spec.Labels[labelHeartbeat]}
	_, err = l.r.api.ConfigUpdate(ctx, config.ID, client.ConfigUpdateOptions{Version: swarm.Version{Index: version}, Spec: spec})
	if err == nil {
		return nil
	}
	// The manager says "update out of sequence", as an unknown error.
	if now, again := l.r.config(ctx, ledgerName); again == nil && now.Version.Index != version {
		return engine.ErrConflict
	}
	return errors.Join(errors.New("write what is promised"), err)
}
