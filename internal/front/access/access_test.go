package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	reader, err := AddToken(path, "hub", Read)
	must.Succeed(t, err)
	admin, err := AddToken(path, "me", Admin)
	must.Succeed(t, err)
	data, err := os.ReadFile(path)
	if err != nil || bytes.Contains(data, []byte(reader)) || bytes.Contains(data, []byte(admin[5:])) {
		t.Errorf("the file has a token: %s, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	list := NewTokens(path, quiet())
	for token, want := range map[string]Caller{
		reader: {"token hub", Read}, admin: {"token me", Admin},
		"": {}, reader[:len(reader)-1]: {}, reader + "x": {}, strings.ToUpper(reader): {}, "weir_": {},
	} {
		if got, ok := list.Find(token); got != want || ok != (want.Role != None) {
			t.Errorf("%.12q: %+v, %t", token, got, ok)
		}
	}
	if !list.Any() || NewTokens(path+"-not", quiet()).Any() {
		t.Error("whether there are any")
	}

	// A token that is taken out is out, soon, and so are all if the file says nothing
	// that can be understood.
	for _, text := range []string{string(data[bytes.IndexByte(data, '\n')+1:]), "hub read nonsense"} {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		list.file.checked = time.Time{} // a second later
		if _, ok := list.Find(reader); ok {
			t.Errorf("with %.20q it still lets in", text)
		}
	}
	must.Succeed(t, os.Remove(path))
	if _, ok := list.Find(admin); ok {
		t.Error("lets in without a file")
	}
}

func TestBadTokens(t *testing.T) {
	dir := t.TempDir()
	hash := strings.Repeat("0f", 32)
	for text, says := range map[string]string{
		"hub read " + hash + "\n# comment\n\n me admin " + hash[1:] + "0 # mine": "",
		"hub read":         "1: a line is a name, a role and the SHA-256",
		"hub root " + hash: `1: "root" is not a role: write read or admin`,
		"\nhub read 00ff":  `2: "00ff" is not a SHA-256 in hex`,
		"hub read " + hash + "\nhub admin " + hash:     `2: there is another token "hub"`,
		"hub read " + strings.Repeat("0", 70_000):      "token too long",
		strings.Repeat("# much\n", maxTokensBytes/7+1): "it is not a tokens file",
	} {
		path := filepath.Join(dir, "tokens")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := readTokens(path)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	open := filepath.Join(dir, "open")
	must.Succeed(t, os.WriteFile(open, nil, 0o600))
	must.Succeed(t, os.Chmod(open, 0o666))
	if _, err := readTokens(open); err == nil || !strings.Contains(err.Error(), "chmod 600 "+open) {
		t.Errorf("a file that everybody may write: %v", err)
	}
	path := filepath.Join(dir, "mine")
	if _, err := AddToken(path, "hub", Read); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a b", "a#b", "\x1b[31m", "a\nb", strings.Repeat("x", 65), "hub"} {
		if _, err := AddToken(path, name, Read); err == nil {
			t.Errorf("a token for %q", name)
		}
	}
	if _, err := AddToken(filepath.Join(dir, "no", "where"), "hub", Read); err == nil {
		t.Error("a token in a folder that is not there")
	}
}

func TestCertificates(t *testing.T) {
	authority, other := pki.New(t), pki.New(t)
	server := authority.Server(t, "node.example")
	files := TLSFiles{Certificate: server.Certificate, Key: server.Key, ClientCA: authority.Path}
	var said bytes.Buffer
	c, err := NewCertificates(files, []string{"hub", ""}, slog.New(slog.NewTextHandler(&said, nil)))
	must.Succeed(t, err)
	for host, want := range map[string]bool{"node.example": true, "127.0.0.1": true, "evil.example": false, "": false, "127.0.0.2": false, "localhost": false} {
		if c.IsFor(host) != want {
			t.Errorf("for %q: %t", host, !want)
		}
	}
	for _, bad := range []TLSFiles{
		{Certificate: "/nowhere", Key: server.Key}, {Certificate: server.Certificate, Key: other.Server(t, "x").Key},
		{Certificate: server.Certificate, Key: server.Key, ClientCA: server.Key}, {Certificate: server.Certificate, Key: server.Key, ClientCA: "/nowhere"},
	} {
		if _, err := NewCertificates(bad, nil, quiet()); err == nil {
			t.Errorf("%+v will do", bad)
		}
	}
	// What cannot be used any more does not end what works.
	must.Succeed(t, os.WriteFile(server.Certificate, []byte("torn"), 0o600))
	c.files.checked = time.Time{}
	if !c.IsFor("node.example") || !strings.Contains(said.String(), "go on with the certificates") {
		t.Errorf("after a torn file: %s", said.String())
	}
	if _, ok, err := c.Caller(&tls.ConnectionState{}); ok || err != nil {
		t.Errorf("without a certificate: %t, %v", ok, err)
	}
	// One that ends while it is used.
	pair := authority.Client(t, "hub", time.Now().Add(time.Minute))
	loaded, err := tls.LoadX509KeyPair(pair.Certificate, pair.Key)
	must.Succeed(t, err)
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{loaded.Leaf}, VerifiedChains: [][]*x509.Certificate{{loaded.Leaf}}}
	if caller, ok, err := c.Caller(state); !ok || err != nil || caller != (Caller{"certificate hub", Admin}) {
		t.Errorf("%+v, %t, %v", caller, ok, err)
	}
	c.now = func() time.Time { return time.Now().Add(time.Hour) }
	if _, ok, err := c.Caller(state); ok || !errors.Is(err, errExpired) {
		t.Errorf("an hour later: %t, %v", ok, err)
	}
}

func TestLimits(t *testing.T) {
	l := NewLimits(10, 3)
	now := time.Now()
	for i, want := range []bool{true, true, true, false} {
		if l.Allow("a", now) != want {
			t.Errorf("request %d: %t", i, !want)
		}
	}
	if !l.Allow("b", now) || !l.Allow("a", now.Add(100*time.Millisecond)) {
		t.Error("others, and later ones, are let in")
	}
	// However many ask, memory is bounded, and they share one limit.
	allowed := 0
	for i := range 2 * maxLimited {
		if l.Allow(fmt.Sprint(i), now) {
			allowed++
		}
	}
	if len(l.by) > maxLimited || allowed > maxLimited+3 {
		t.Errorf("%d are known, %d were let in", len(l.by), allowed)
	}
	if !l.Allow("later", now.Add(time.Minute)) || len(l.by) > maxLimited {
		t.Errorf("who comes later: %d known", len(l.by))
	}
	for from, want := range map[string]string{
		"192.0.2.1:99": "192.0.2.1", "[::ffff:192.0.2.1]:99": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::/64", "@": "",
	} {
		if got := Network(from); got != want {
			t.Errorf("%s is limited as %q, want %q", from, got, want)
		}
	}
}
