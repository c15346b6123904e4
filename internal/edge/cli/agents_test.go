package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/run"
)

// TestAgentOptions: with what no node could be reached is said at once.
func TestAgentOptions(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const url = "https://{address}:7481"
	for name, tc := range map[string]struct {
		options agentOptions
		says    string
	}{
		"a token":                 {agentOptions{url: url, tokenFile: file("weir_token\n")}, ""},
		"a socket":                {agentOptions{url: "unix:///run/{address}.sock"}, ""},
		"nobody":                  {agentOptions{}, ""},
		"no port":                 {agentOptions{url: "https://{address}"}, "write https://HOST:PORT"},
		"an empty token":          {agentOptions{url: url, tokenFile: file(" \n")}, "is empty: `weir token weir-edge --role admin`"},
		"words":                   {agentOptions{url: url, tokenFile: file("two words")}, "this is not a token"},
		"no token file":           {agentOptions{url: url, tokenFile: "/nonexistent/token"}, "read the token of the agents: open /nonexistent/token"},
		"an authority that is no": {agentOptions{url: url, ca: file("nothing")}, "has no certificate in PEM"},
		"half a certificate":      {agentOptions{url: url, cert: "cert.pem"}, "give both"},
	} {
		nodes, err := tc.options.nodes(t.Context())
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if _, none := nodes.(run.Unmeasured); none != (tc.options == agentOptions{}) {
			t.Errorf("%s: nodes are measured: %t", name, !none)
		}
	}
}
