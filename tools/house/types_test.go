package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestPrintLarge: what a type embeds counts as its own, also from another package.
func TestPrintLarge(t *testing.T) {
	fields := func(n int) string { return strings.Repeat("_ int\n", n) }
	methods := strings.Repeat("func Take(t *Many, _ int) {}\n", maxMethods+1)
	for _, test := range []struct {
		name, want string
		files      map[string]string
	}{
		{"at the limit", "", map[string]string{"internal/a/a.go": "type A struct {" + fields(maxFields) + "}"}},
		{"fields", "  internal/a.A 21/0\n", map[string]string{"internal/a/a.go": "type A struct {" + fields(maxFields+1) + "}"}},
		{"functions", "  internal/a.Many 0/41\n", map[string]string{"internal/a/a.go": "type Many struct{}\n" + methods}},
		{"embedded of its package", "  internal/a.A 21/1\n", map[string]string{
			"internal/a/a.go": "type A struct {" + fields(10) + "*B }\ntype B struct {" + fields(10) + "}\nfunc (*B) Do() {}",
		}},
		{"embedded of another package", "  internal/a/c.C 22/1\n", map[string]string{
			"internal/a/c/c.go": "import bb \"github.com/weir-project/weir/internal/b\"\ntype C struct {" + fields(5) + "*bb.B }",
			"internal/b/b.go":   "import \"github.com/weir-project/weir/api/v1\"\ntype B struct {" + fields(10) + "v1.D }\nfunc (B) Do() {}",
			"api/v1/d.go":       "type D struct {" + fields(5) + "}",
		}},
		{"the laboratory", "", map[string]string{"internal/lab/x/a.go": "type A struct {" + fields(maxFields+1) + "}"}},
	} {
		root := t.TempDir()
		for _, dir := range []string{"api", "internal", "test", "tools"} {
			must.Succeed(t, os.Mkdir(filepath.Join(root, dir), 0o755))
		}
		for path, text := range test.files {
			path = filepath.Join(root, path)
			must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must.Succeed(t, os.WriteFile(path, []byte("package p\n"+text), 0o644))
		}
		var b strings.Builder
		must.Succeed(t, printLarge(&b, root))
		if _, got, _ := strings.Cut(b.String(), "\n"); got != test.want {
			t.Errorf("%s: printed %q, want %q", test.name, got, test.want)
		}
	}
}
