package cli

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-project/weir/internal/agent/server"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// From another host: a token of `weir token` lets one look, one with the role admin
// lets one change policies, and what is missing is said.
func TestRemote(t *testing.T) {
	dir := t.TempDir()
	authority := pki.New(t)
	pair := authority.Server(t, "node.example")
	tokens := filepath.Join(dir, "tokens")
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	agent := busyHost()
	remote := openRemote(server.New(agent, log), config.Listen{
		Address: "127.0.0.1:0", CertificatePath: pair.Certificate, KeyPath: pair.Key,
	}, access.NewTokens(tokens, log), log)
	if remote == nil {
		t.Fatal(said.String())
	}
	defer remote.Close()
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(said.String())
	if !strings.Contains(said.String(), "no other host can use the API: make a token") {
		t.Errorf("without tokens the log has %s", said.String())
	}
	files := map[string]string{}
	for _, role := range []string{"read", "admin"} {
		code, token, hint := run("token", role, "--role", role, "--file", tokens)
		if code != 0 || !strings.HasPrefix(token, "weir_") || !strings.Contains(hint, role+" may read") {
			t.Fatalf("%d %q %q", code, token, hint)
		}
		files[role] = filepath.Join(dir, role)
		must.Succeed(t, os.WriteFile(files[role], []byte(token), 0o600))
	}
	there := []string{"--remote", "https://" + address, "--ca", authority.Path}
	for _, tc := range []struct {
		args      []string
		code      int
		out, says string
		called    string
	}{
		{append([]string{"ps", "--token-file", files["read"]}, there...), 0, "backup", "", "snapshot"},
		{append([]string{"explain", "web", "--token-file", files["read"]}, there...), 0, "Asks for", "", "snapshot"},
		{append([]string{"set", "web", "--weight", "3", "--token-file", files["admin"]}, there...), 0, "web", "", "set web"},
		{append([]string{"set", "web", "--weight", "3", "--token-file", files["read"]}, there...), 1, "", "token read has no role for changes, which need the role admin", ""},
		{append([]string{"reload", "--token-file", files["read"]}, there...), 1, "", "has no role for changes", ""},
		{append([]string{"ps"}, there...), 1, "", "the caller is unknown: send a token", ""},
		{append([]string{"ps", "--token-file", authority.Path}, there...), 2, "", "this is not a token", ""},
		{append([]string{"ps", "--token-file", "/nowhere"}, there...), 1, "", "read the token: ", ""},
		{[]string{"ps", "--remote", "https://" + address, "--token-file", files["read"]}, 1, "", "certificate", ""},
		{[]string{"ps", "--remote", address}, 2, "", "write https://HOST:PORT", ""},
		{[]string{"ps", "--token-file", files["read"]}, 2, "", "add --remote", ""},
		{[]string{"token", "read", "--file", tokens}, 1, "", `there is a token "read" already: give this one another name`, ""},
		{[]string{"token", "x", "--file", tokens, "--role", "root"}, 2, "", `--role: "root" is not a role: write read or admin`, ""},
		{[]string{"token"}, 2, "", "NAME is missing", ""},
	} {
		agent.called = nil
		code, out, errors := run(tc.args...)
		if code != tc.code || !strings.Contains(out, tc.out) || !strings.Contains(errors, tc.says) {
			t.Errorf("%q: %d, %q, %q", tc.args, code, out, errors)
		}
		if got := strings.Join(agent.called, ","); got != tc.called {
			t.Errorf("%q: the agent was asked for %q, want %q", tc.args, got, tc.called)
		}
	}
	if !strings.Contains(said.String(), `by="token admin" method=PATCH`) {
		t.Errorf("the log does not say who changed something: %s", said.String())
	}
}

// What cannot listen says so, and containers keep their guarantees.
func TestRemoteCannotListen(t *testing.T) {
	pair := pki.New(t).Server(t, "node.example")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for says, listen := range map[string]config.Listen{
		"give listen another address": {Address: taken.Addr().String(), CertificatePath: pair.Certificate, KeyPath: pair.Key},
		"read the certificate":        {Address: "127.0.0.1:0", CertificatePath: "/nowhere", KeyPath: pair.Key},
	} {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		if remote := openRemote(server.New(busyHost(), log), listen, access.NewTokens("/nowhere", log), log); remote != nil {
			t.Errorf("%+v is served", listen)
		}
		if text := said.String(); !strings.Contains(text, says) || !strings.Contains(text, "cannot listen for other hosts") {
			t.Errorf("%+v: %s", listen, text)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestTokenThatNobodyHas: a token that could not be printed is nowhere.
func TestTokenThatNobodyHas(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	var errs bytes.Buffer
	code := Run([]string{"token", "hub", "--file", tokens}, fullDisk{}, &errs)
	if code != 1 || !strings.Contains(errs.String(), "delete the line of hub in "+tokens) {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
