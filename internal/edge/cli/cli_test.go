package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/golden"
)

// TestDocsCLI holds docs/edge-cli.md to what the commands say of themselves.
// Renew it with: go test ./internal/edge/cli -run TestDocs -update
func TestDocsCLI(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Commands of weir-edge

<!-- Generated from the commands: go test ./internal/edge/cli -run TestDocs -update -->

` + NewRoot().Long + `

Data goes to standard output, everything else to standard error. Exit codes: 0 done,
1 failed, 2 called wrongly.

## Options of all commands

`)
	root := NewRoot()
	writeFlags(&b, root.PersistentFlags())
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		b.WriteString("\n## " + c.CommandPath() + "\n\n    " + c.UseLine() + "\n\n")
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		b.WriteString(text + "\n")
		writeExamples(&b, c)
		if c.LocalFlags().HasAvailableFlags() {
			b.WriteString("\n")
			writeFlags(&b, c.LocalFlags())
		}
	}
	writeComposeKeys(&b)
	golden.Compare(t, filepath.Join("..", "..", "..", "docs", "edge-cli.md"), b.String())
}

// writeComposeKeys writes what becomes of each key of a Compose file.
func writeComposeKeys(b *strings.Builder) {
	b.WriteString("\n## Compose keys\n\n| what becomes of it | keys of a service, and at the top |\n|---|---|\n")
	for as, name := range []string{"honoured", "honoured on one engine, refused on a swarm", "without effect, with a note", "refused"} {
		var keys []string
		for _, k := range composeKeys {
			path, inService := strings.CutPrefix(k.path, "services.*.")
			path = "`" + strings.NewReplacer(".*.", ".", ".[].", ".").Replace(path) + "`"
			if !inService {
				path = "top-level " + path
			}
			if k.as == treatment(as) {
				keys = append(keys, path)
			}
		}
		slices.Sort(keys)
		fmt.Fprintf(b, "| %s | %s |\n", name, strings.Join(keys, ", "))
	}
}

func writeExamples(b *strings.Builder, c *cobra.Command) {
	if c.Example == "" {
		return
	}
	b.WriteString("\nExamples:\n\n")
	for line := range strings.Lines(c.Example) {
		b.WriteString("    " + strings.TrimSpace(line) + "\n")
	}
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| option | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		name, value := "`--"+f.Name+"`", ""
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		if f.DefValue != "" && f.DefValue != "false" {
			value = "`" + f.DefValue + "`"
		}
		b.WriteString("| " + name + " | " + value + " | " + f.Usage + " |\n")
	})
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"deploy", 2, "FILE is missing"},
		{"rm a b", 2, "unexpected argument"},
		{"ps -o yaml", 2, `"yaml" is not table or json`},
		{"fly", 2, "unknown command \"fly\" for \"weir-edge\"; weir-edge --help lists the commands\n"},
		{"deplo", 2, "unknown command \"deplo\" for \"weir-edge\"; did you mean deploy?\n"},
		{"help fly", 2, "weir-edge --help lists the commands"},
		{"help ps fly", 2, `has no command "fly"`},
		{"ps --socket /nonexistent/edge.sock", 1, "weir-edge run"},
		{"run --docker /nonexistent/docker.sock --state-dir DIR", 1, "no Docker engine answers at /nonexistent/docker.sock"},
		{"run --config RULES --docker /nonexistent/docker.sock --state-dir DIR", 2, "rules.near"},
		{"run --config CLUSTER --state-dir DIR", 1, "read the kubeconfig: open /nonexistent/kubeconfig"},
		{"run --dashboard 0.0.0.0:80 --state-dir DIR", 2, "write for example 127.0.0.1:7483"},
		{"run --repository here --state-dir DIR", 2, "--repository"},
		{"run --repository-key key --state-dir DIR", 2, "--repository-cert"},
		{"run --repository-label weir.weight=5 --state-dir DIR", 2, "--repository is missing"},
		{"run --repository 127.0.0.1:7482 --repository-label weir.weigth=5 --state-dir DIR", 2, "weir.weigth=5: unknown name; did you mean weir.weight?"},
		{"run --agents https://agent:7481 --state-dir DIR", 2, "{address}"},
		{"run --agents http://{address}:7481 --state-dir DIR", 2, "over TLS only; write for example https://{address}:7481"},
		{"run --agents-token-file token --state-dir DIR", 2, "--agents is missing"},
		{"run --sdn-users 192.0.2.1 --state-dir DIR", 2, "--sdn is missing"},
		{"run --sdn unix:///sdn.sock --state-dir DIR", 2, "--sdn-users"},
		{"run --sdn http://sdn:7485 --sdn-users 192.0.2.1 --state-dir DIR", 2, "neither https://"},
		{"run --kubernetes pod --sdn unix:///sdn.sock --sdn-users 192.0.2.1 --state-dir DIR", 2, "leave it or --kubernetes out"},
		{"profile nginx --docker /nonexistent/docker.sock", 1, "no Docker engine answers"},
		{"push DIR --spec SPEC --docker /nonexistent/docker.sock", 1, "no Docker engine answers"},
		{"deploy /nonexistent.json", 1, "nonexistent.json"},
		{"deploy shop --socket /nonexistent/edge.sock", 1, "weir-edge run"},
		{"push x", 2, "--spec is missing"},
		{"push x --spec /nonexistent.json", 1, "nonexistent.json"},
		{"push /nonexistent/image --spec SPEC --docker /nonexistent/docker.sock", 1, "there is no file of that name"},
		{"services --socket /nonexistent/edge.sock", 1, "weir-edge run"},
		{"top --interval 1ms", 2, "50ms or more"},
		{"top --socket /nonexistent/edge.sock", 1, "weir-edge run"},
		{"down --docker /nonexistent/docker.sock", 1, "--docker"},
	} {
		var out, err bytes.Buffer
		spec := filepath.Join(t.TempDir(), "spec.json")
		if err := os.WriteFile(spec, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		rules := filepath.Join(t.TempDir(), "edge.yaml")
		if err := os.WriteFile(rules, []byte("rules: {near: option.nonsense > 1.0}"), 0o600); err != nil {
			t.Fatal(err)
		}
		cluster := filepath.Join(t.TempDir(), "edge.yaml")
		if err := os.WriteFile(cluster, []byte("kubernetes: /nonexistent/kubeconfig"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := strings.Fields(strings.NewReplacer("DIR", t.TempDir(), "SPEC", spec, "RULES", rules, "CLUSTER", cluster).Replace(test.args))
		if code := Run(args, &out, &err); code != test.code || !strings.Contains(err.String(), test.says) || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q on stdout, %q on stderr", test.args, code, out.String(), err.String())
		}
	}
}

// TestPrintable: what others chose does not command a terminal.
func TestPrintable(t *testing.T) {
	var b bytes.Buffer
	err := printInstances(&b, []edge.Instance{{Service: "a\x1b[2J", Node: "n", Instance: "a-1", State: "failed", Reason: "first\nsecond"}})
	if err != nil || strings.Contains(b.String(), "\x1b") || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("it prints %q, %v", b.String(), err)
	}
	b.Reset()
	if err := printEvent(&b, edge.Event{At: time.Unix(0, 0), Kind: edge.EventFailed, Service: "a", Message: "\x1b]0;x\x07"}); err != nil || strings.ContainsAny(b.String(), "\x1b\x07") {
		t.Errorf("it prints %q, %v", b.String(), err)
	}
}

func TestEventIsOneLine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "edge.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	event := edge.Event{Kind: edge.EventFailed, Node: "a\nb", Message: "no room\n2026-01-01 00:00:00  node  c  is ready"}
	daemon := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(event)
		_ = json.NewEncoder(w).Encode(event)
	})}
	defer daemon.Close()
	go func() { _ = daemon.Serve(listener) }()
	for _, format := range []string{"table", "json"} {
		var out, errs bytes.Buffer
		code := Run([]string{"events", "-o", format, "--socket", socket}, &out, &errs)
		if code != 0 || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s: exit code %d, %q on stdout, %q on stderr", format, code, out.String(), errs.String())
		}
	}
}

// TestNoEvents: that nothing has happened is said, but not to programs.
func TestNoEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "edge.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	daemon := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	defer daemon.Close()
	go func() { _ = daemon.Serve(listener) }()
	for format, want := range map[string]string{"table": "Nothing has happened yet.\n", "json": ""} {
		var out, errs bytes.Buffer
		if code := Run([]string{"events", "-o", format, "--socket", socket}, &out, &errs); code != 0 || out.Len() > 0 || errs.String() != want {
			t.Errorf("%s: exit code %d, %q on stdout, %q on stderr", format, code, out.String(), errs.String())
		}
	}
}

func TestExplanation(t *testing.T) {
	var b bytes.Buffer
	err := printExplanation(&b, edge.Explanation{
		Service: edge.Service{Name: "shop", Image: "nginx", Users: 18, Running: 1, Instances: 1},
		Now: []edge.Decision{{
			Action: "start", Reason: "too many users",
			Alternatives: []byte(`[{"node":"a","start_up_seconds":1.5,"response_seconds":0.04},{"node":"b","refused":"too slow"}]`),
			Excluded:     []byte(`[{"reason":"no room","nodes":2,"example":"c"}]`),
		}},
	})
	for _, want := range []string{"18 users, 1 of 1", "start: too many users", "on a: ready in 1.5 s, users would wait 40ms\n", "on b: ready in 0.0 s, users would wait -; not taken: too slow", "not on c: no room (2 nodes)", "Earlier\n  nothing has changed\n"} {
		if err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in it, %v:\n%s", want, err, b.String())
		}
	}
}
