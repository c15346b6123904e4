package runtime

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/test/must"
)

// TestCheckProxy: an HAProxy that cannot be told of instances is refused, with what to install.
func TestCheckProxy(t *testing.T) {
	root := t.TempDir()
	if err := CheckProxy(root); err == nil || !strings.Contains(err.Error(), "apt-get install haproxy") {
		t.Error(err)
	}
	for _, path := range []string{proxy.Binary, changelog} {
		must.Succeed(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(root, path), nil, 0o700))
	}
	for first, want := range map[string]string{
		"": "",
		"haproxy (2.6.12-1+deb12u4) bookworm; urgency=high":                "",
		"haproxy (3.0.5-1ppa1~jammy) jammy; urgency=medium":                "",
		"haproxy (2.4.24-0ubuntu0.22.04.1) jammy-security; urgency=medium": "HAProxy 2.4 is here: HAProxy is older than 2.6: install a newer one",
		"haproxy (2.5.1-1) unstable; urgency=medium":                       "haproxy=2.8",
	} {
		var packed bytes.Buffer
		text := gzip.NewWriter(&packed)
		_, err := text.Write([]byte(first + "\n\n  * News.\n"))
		must.Succeed(t, errors.Join(err, text.Close(), os.WriteFile(filepath.Join(root, changelog), packed.Bytes(), 0o600)))
		if err := CheckProxy(root); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", first, err)
		}
	}
}
