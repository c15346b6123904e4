//go:build netns

package netns

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

const (
	dashboardAddress = "127.0.0.1:7480"
	remoteAddress    = "127.0.0.1:7481"
)

// TestChangesFromElsewhere: an agent that listens for other hosts and has a dashboard
// lets those with a token do what its role allows, and no other, and what they change is
// what the kernel does.
func TestChangesFromElsewhere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	reader := addToken(t, tokens, "hub", access.Read)
	admin := addToken(t, tokens, "me", access.Admin)
	authority, stranger := pki.New(t), pki.New(t)
	pair := authority.Server(t, "gateway")
	flooding := b.Add("flooding", nil)
	agent := b.StartAgent(harness.AgentOptions{Settings: map[string]any{
		"tokens": tokens, "dashboard": dashboardAddress,
		"listen": map[string]any{"address": remoteAddress, "certificate": pair.Certificate, "key": pair.Key},
	}})
	b.Send(flooding, harness.Flood)
	b.AwaitTraffic(flooding.Slot, 5*time.Second)

	t.Run("other hosts", func(t *testing.T) {
		checkRemote(t, b, authority.Path, stranger.Path, reader, admin)
	})
	if got := agent.Container("flooding"); got.Policy.MaxBPS != 20*mbit || got.PolicyFrom.Max != v1.LayerSet {
		t.Errorf("changed over TLS: %+v, from %+v", got.Policy, got.PolicyFrom)
	}
	b.CheckMaximum(flooding.Slot, 20*mbit, time.Second)

	t.Run("the dashboard", func(t *testing.T) { checkDashboard(t, b, reader, admin) })
	if got := agent.Container("flooding"); got.Policy.MaxBPS != 10*mbit {
		t.Errorf("changed from the dashboard: %+v", got.Policy)
	}
	b.CheckMaximum(flooding.Slot, 10*mbit, time.Second)
	agent.Stop()
}

// checkRemote ends with a maximum of 20 Mbit/s, set over TLS.
func checkRemote(t *testing.T, b *harness.Bed, authority, stranger, reader, admin string) {
	// file is of a token, as who asks has it.
	file := func(token string) string {
		path := filepath.Join(t.TempDir(), "token")
		must.Succeed(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
		return path
	}
	readerFile, adminFile := file(reader), file(admin)
	ask := func(ca, token string, args ...string) harness.Result {
		args = append(args, "--remote", "https://"+remoteAddress, "--ca", ca)
		if token != "" {
			args = append(args, "--token-file", token)
		}
		return weirWithout(t, b, args...)
	}
	for _, tc := range []struct {
		name, ca, token string
		args            []string
		wrong           string // "" where it goes well
	}{
		{"looks", authority, readerFile, []string{"ps", "-o", "json"}, ""},
		{"a token to look changes", authority, readerFile, []string{"set", "flooding", "--max", "30mbit"}, "admin"},
		{"a token to look reloads", authority, readerFile, []string{"reload"}, "admin"},
		{"no token", authority, "", []string{"ps"}, "token"},
		{"a wrong token", authority, file("weir_wrong"), []string{"ps"}, "token"},
		{"another authority", stranger, adminFile, []string{"set", "flooding", "--max", "30mbit"}, "certificate"},
		{"an administrator", authority, adminFile, []string{"set", "flooding", "--max", "20mbit"}, ""},
	} {
		got := ask(tc.ca, tc.token, tc.args...)
		if tc.wrong == "" && got.Code != 0 || tc.wrong != "" && (got.Code == 0 || !strings.Contains(got.Stderr, tc.wrong)) {
			t.Errorf("%s: exit code %d: %s, want %q in it", tc.name, got.Code, got.Stderr, tc.wrong)
		}
		if tc.args[0] == "ps" && tc.wrong == "" && !strings.Contains(got.Stdout, `"flooding"`) {
			t.Errorf("%s: %s", tc.name, got.Stdout)
		}
	}
	// What programs use, too; and who has no certificate to trust gets nowhere.
	trust, err := client.LoadTLS(authority, "", "")
	must.Succeed(t, err)
	for _, tc := range []struct {
		trust  *tls.Config
		status int
	}{{trust, http.StatusUnauthorized}, {&tls.Config{MinVersion: tls.VersionTLS13}, 0}} {
		response, err := httpOnHost(b, tc.trust).Get("https://" + remoteAddress + "/v1/containers")
		status := 0
		if err == nil {
			status = response.StatusCode
			response.Body.Close()
		}
		if status != tc.status {
			t.Errorf("without a token: %d (%v), want %d", status, err, tc.status)
		}
	}
}

// answer is what the dashboard answered.
type answer struct {
	code       int
	etag, text string
}

// checkDashboard asks as the page does, and ends with a maximum of 10 Mbit/s.
func checkDashboard(t *testing.T, b *harness.Bed, reader, admin string) {
	page := httpOnHost(b, nil)
	ask := func(method, path, token, body string, header ...string) answer {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+dashboardAddress+path, strings.NewReader(body))
		must.Succeed(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		response, err := page.Do(request)
		must.Succeed(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		return answer{code: response.StatusCode, etag: response.Header.Get("ETag"), text: string(text)}
	}
	if got := ask("GET", "/v1/snapshot", "", ""); got.code != http.StatusOK || !strings.Contains(got.text, `"flooding"`) {
		t.Errorf("anybody looks: %d: %s", got.code, got.text)
	}
	const path, wanted = "/v1/containers/flooding/policy", `{"max": "10mbit"}`
	seen := ask("GET", path, "", "")
	tag := seen.etag
	if tag == "" {
		t.Fatalf("no ETag: %d: %s", seen.code, seen.text)
	}
	previewed := ask("POST", path+"/preview", admin, wanted)
	var preview v1.Preview
	if err := json.Unmarshal([]byte(previewed.text), &preview); err != nil || preview.After.MaxBPS != 10*mbit || len(preview.Uplinks) != 1 {
		t.Errorf("preview: %d: %s (%v)", previewed.code, previewed.text, err)
	}
	for _, tc := range []struct {
		name, token string
		header      []string
		status      int
	}{
		{"no token", "", []string{"If-Match", tag}, http.StatusUnauthorized},
		{"a wrong token", "weir_wrong", []string{"If-Match", tag}, http.StatusUnauthorized},
		{"a token to look", reader, []string{"If-Match", tag}, http.StatusForbidden},
		{"of another page", admin, []string{"If-Match", tag, "Origin", "http://evil.example"}, http.StatusForbidden},
		{"without what was seen", admin, nil, http.StatusPreconditionRequired},
		{"what was seen is old", admin, []string{"If-Match", `"old"`}, http.StatusPreconditionFailed},
		{"as the page does it", admin, []string{"If-Match", tag, "Origin", "http://" + dashboardAddress, "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{"once more", admin, []string{"If-Match", tag}, http.StatusPreconditionFailed},
	} {
		if got := ask("PATCH", path, tc.token, wanted, tc.header...); got.code != tc.status {
			t.Errorf("%s: %d: %s, want %d", tc.name, got.code, got.text, tc.status)
		}
	}
}

// weirWithout runs a command of weir's that is not told of the bed's socket.
func weirWithout(t *testing.T, b *harness.Bed, args ...string) harness.Result {
	t.Helper()
	var stdout, stderr strings.Builder
	command := b.Host.Command(t.Context(), harness.Program(t), args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return harness.Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: command.ProcessState.ExitCode()}
}

func addToken(t *testing.T, path, name string, role access.Role) string {
	t.Helper()
	token, err := access.AddToken(path, name, role)
	must.Succeed(t, err)
	return token
}

// httpOnHost is a client on the bed's host.
func httpOnHost(b *harness.Bed, trust *tls.Config) *http.Client {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		enter := testbed.InNetNS(b.Host.NetNSPath(), func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return nil
		})
		if enter != nil {
			return nil, enter
		}
		return conn, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: trust, DisableKeepAlives: true}}
}
