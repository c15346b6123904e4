package swarm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
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

// Names of Swarm configs. The content of a config never changes, so that of the ledger is its labels,
// and the names of others end with a hash of their content: another form of it has another name.
const (
	keyPrefix  = "edge-keys-"
	filePrefix = "edge-proxy-"
	ledgerName = "edge-ledger"
	// labelPromises is the ledger's content: labels change only together with the version that was
	// read.
	labelPromises = "weir-edge.promises"
)

// Roles of configs and secrets, beside that of the ledger.
const (
	roleFile    = "file"         // a configuration file of proxies
	roleKey     = "key"          // the keys of weir-edge and proxies
	roleKeyPart = "part-of-keys" // what proxies get of them
)

// hashed returns a name that ends with a hash of the content.
func hashed(prefix string, data []byte) string {
	sum := sha256.Sum256(data)
	return prefix + hex.EncodeToString(sum[:8])
}

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

// configs returns weir-edge's configs with a label ("name" or "name=value"), in the order in which they
// were made.
func (r *Runtime) configs(ctx context.Context, labels ...string) ([]swarm.Config, error) {
	found, err := r.api.ConfigList(ctx, client.ConfigListOptions{Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return nil, fmt.Errorf("list the swarm's configs: %w", err)
	}
	slices.SortFunc(found.Items, func(a, b swarm.Config) int { return cmp.Compare(a.Version.Index, b.Version.Index) })
	return found.Items, nil
}

func (r *Runtime) config(ctx context.Context, name string) (swarm.Config, error) {
	found, err := r.api.ConfigInspect(ctx, name, client.ConfigInspectOptions{})
	if err != nil {
		return swarm.Config{}, fmt.Errorf("read the swarm's config %s: %w", name, err)
	}
	return found.Config, nil
}

// removeFiles removes the configuration files of a service's proxies, but those that proxies use.
func (r *Runtime) removeFiles(ctx context.Context, service string) error {
	files, err := r.configs(ctx, runtime.LabelRole+"="+roleFile, runtime.LabelService+"="+service)
	for _, file := range files {
		if removeErr := r.removeObject(ctx, kindConfig, file.ID); !cerrdefs.IsInvalidArgument(removeErr) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// The kinds of objects that a swarm gives to containers.
const (
	kindConfig = "config"
	kindSecret = "secret"
)

// removeObject removes a config or secret, if it is there. Errors: invalid argument if a service uses
// it.
func (r *Runtime) removeObject(ctx context.Context, kind, name string) (err error) {
	if kind == kindSecret {
		_, err = r.api.SecretRemove(ctx, name, client.SecretRemoveOptions{})
	} else {
		_, err = r.api.ConfigRemove(ctx, name, client.ConfigRemoveOptions{})
	}
	if err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("remove the swarm's %s %s: %w", kind, name, err)
	}
	return nil
}

// key authenticates weir-edge and proxies to each other. A config has the certificates and keys of
// both. No service refers to it, so it never leaves the managers. What proxies need of it is made from
// it: a secret of the same name with their own key, and a config with weir-edge's certificate. So the
// key of a captured worker commands nothing.
type key struct {
	// name is that of the config; empty if there is none.
	name                string
	secretID, clientsID string
	config              *tls.Config
	// proxies is the certificate and the key of proxies, clients weir-edge's certificate, in PEM.
	proxies, clients []byte
}

// clientsName returns the name of the config with weir-edge's certificate.
func clientsName(key string) string { return key + "-clients" }

// keyHost is the name in the certificates; proxies are reached by address.
const keyHost = "weir-edge"

// findKey returns the key, and makes what is missing of it.
func (r *Runtime) findKey(ctx context.Context) (key, error) {
	k, err := r.oldestKey(ctx)
	if err == nil && k.name == "" {
		var fresh []byte
		if fresh, err = makeKeys(); err == nil {
			_, err = r.makeConfig(ctx, hashed(keyPrefix, fresh), fresh, map[string]string{runtime.LabelRole: roleKey})
		}
		if err == nil {
			k, err = r.oldestKey(ctx) // another weir-edge may have been faster
		}
	}
	if err != nil {
		return key{}, err
	}
	part := map[string]string{runtime.LabelRole: roleKeyPart}
	clients, err := r.makeConfig(ctx, clientsName(k.name), k.clients, part)
	if err != nil {
		return key{}, err
	}
	_, err = r.api.SecretCreate(ctx, client.SecretCreateOptions{Spec: swarm.SecretSpec{Annotations: swarm.Annotations{Name: k.name, Labels: part}, Data: k.proxies}})
	if err != nil && !cerrdefs.IsConflict(err) && !cerrdefs.IsAlreadyExists(err) {
		return key{}, fmt.Errorf("make the swarm's secret %s: %w", k.name, err)
	}
	secret, err := r.api.SecretInspect(ctx, k.name, client.SecretInspectOptions{})
	if err != nil {
		return key{}, fmt.Errorf("read the swarm's secret %s: %w", k.name, err)
	}
	k.clientsID, k.secretID = clients.ID, secret.Secret.ID
	return k, r.removeOldKeys(ctx, k.name)
}

// oldestKey returns the first key that was made in the present form; an empty one if there is none.
func (r *Runtime) oldestKey(ctx context.Context) (key, error) {
	configs, err := r.configs(ctx, runtime.LabelRole+"="+roleKey)
	if err != nil {
		return key{}, err
	}
	for _, config := range configs {
		if k, err := readKey(config); err == nil {
			return k, nil
		}
	}
	return key{}, nil
}

// removeOldKeys removes all keys but one, and but those of proxies that run.
func (r *Runtime) removeOldKeys(ctx context.Context, keep string) error {
	configs, err := r.configs(ctx, runtime.LabelRole+"="+roleKey)
	for _, config := range configs {
		name := config.Spec.Name
		if name == keep {
			continue
		}
		removeErr := r.removeObject(ctx, kindSecret, name)
		if cerrdefs.IsInvalidArgument(removeErr) { // proxies use it
			continue
		}
		err = errors.Join(err, removeErr, r.removeObject(ctx, kindConfig, clientsName(name)), r.removeObject(ctx, kindConfig, name))
	}
	return err
}

// readKey returns the key in a config. Errors: it has another form.
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
		return key{}, fmt.Errorf("read the swarm's config %s: %w", config.Spec.Name, err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(blocks[2])
	return key{
		name: config.Spec.Name, clients: blocks[0], proxies: slices.Concat(blocks[2], blocks[3]),
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
