//go:build deb

package deb

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPackage(t *testing.T) {
	path := build(t, "")
	files := map[string]string{} // mode by path
	for line := range strings.Lines(run(t, "dpkg-deb", "-c", path)) {
		fields := strings.Fields(line)
		files[strings.TrimPrefix(fields[5], ".")] = fields[0] + " " + fields[1]
	}
	const file, program, folder = "-rw-r--r-- root/root", "-rwxr-xr-x root/root", "drwxr-xr-x root/root"
	for name, mode := range map[string]string{
		"/usr/bin/weir": program, "/usr/lib/systemd/system/weir.service": file, "/etc/weir/": folder,
		"/usr/share/man/man1/weir.1.gz": file, "/usr/share/man/man1/weir-agent.1.gz": file,
		"/usr/share/bash-completion/completions/weir": file, "/usr/share/zsh/vendor-completions/_weir": file,
		"/usr/share/fish/vendor_completions.d/weir.fish": file, "/usr/share/doc/weir/copyright": file,
		"/usr/share/doc/weir/changelog.gz": file, "/usr/share/doc/weir/licenses.gz": file, "/usr/share/doc/weir/weir.cdx.json": file,
		"/usr/share/doc/weir/examples/weir.yaml": file, "/usr/share/doc/weir/examples/edge.yaml": file,
		"/usr/lib/systemd/system/weir-edge.service": file, "/usr/lib/systemd/system/weir-sdn.service": file,
		"/usr/bin/weir-edge": program, "/usr/share/man/man1/weir-edge-run.1.gz": file,
		"/usr/share/bash-completion/completions/weir-edge": file, "/usr/share/doc/weir/weir-edge.cdx.json": file,
	} {
		if files[name] != mode {
			t.Errorf("%s is %q, want %q", name, files[name], mode)
		}
	}
	for name, mode := range files {
		if !strings.HasSuffix(mode, " root/root") || strings.HasPrefix(name, "/usr/local") || strings.Contains(name, "nfpm") {
			t.Errorf("%s is in it, %s", name, mode)
		}
	}
	for field, want := range map[string]string{
		"Package": "^weir$", "Version": `^[0-9][0-9A-Za-z.+~-]*$`, "Architecture": "^(amd64|arm64|armhf)$", "Section": "^net$",
		"Description": "(?s)^Share a host's network uplink.*\n ",
	} {
		if got := strings.TrimSpace(run(t, "dpkg-deb", "-f", path, field)); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s is %q", field, got)
		}
	}
	unpacked := t.TempDir()
	run(t, "dpkg-deb", "-x", path, unpacked)
	unit, err := os.ReadFile(filepath.Join(unpacked, "usr/lib/systemd/system/weir.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/usr/bin/weir agent ") || strings.Contains(string(unit), "@") {
		t.Errorf("the unit is %s, %v", unit, err)
	}
	edge, err := os.ReadFile(filepath.Join(unpacked, "usr/lib/systemd/system/weir-edge.service"))
	if err != nil || !strings.Contains(string(edge), "ExecStart=/usr/bin/weir-edge run\n") || strings.Contains(string(edge), "@") {
		t.Errorf("weir-edge's unit is %s, %v", edge, err)
	}
	sdn, err := os.ReadFile(filepath.Join(unpacked, "usr/lib/systemd/system/weir-sdn.service"))
	if err != nil || !strings.Contains(string(sdn), "ExecStart=/usr/bin/weir sdn run $OPTIONS\n") || strings.Contains(string(sdn), "@") {
		t.Errorf("the controller's unit is %s, %v", sdn, err)
	}
	if page := run(t, "gzip", "-dc", filepath.Join(unpacked, "usr/share/man/man1/weir-set.1.gz")); !strings.Contains(page, ".SH SYNOPSIS") || !strings.Contains(page, "weight") {
		t.Errorf("the manual of weir set: %.300s", page)
	}
	licenses := run(t, "gzip", "-dc", filepath.Join(unpacked, "usr/share/doc/weir/licenses.gz"))
	for _, part := range []string{"\nMIT-uPlot\n", "\ngithub.com/cilium/ebpf\n", "\nGo's library\n", "Redistributions in binary form"} {
		if !strings.Contains("\n"+licenses, part) {
			t.Errorf("the licences have no %q", part)
		}
	}
	if script, err := os.ReadFile(filepath.Join(unpacked, "usr/share/bash-completion/completions/weir")); err != nil || !strings.Contains(string(script), "__start_weir") {
		t.Errorf("the completion: %v", err)
	}
}

// TestInstallAndRemove: what is installed works; an upgrade keeps the configuration;
// after removal the uplink is as before, and after purging nothing is left. It happens
// on a copy-on-write view of this machine's files, in namespaces of its own.
func TestInstallAndRemove(t *testing.T) {
	path := build(t, "")
	script, err := filepath.Abs("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", script, path, t.TempDir())
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("%s", said)
	if !strings.HasSuffix(strings.TrimSpace(string(said)), "nothing is left") {
		t.Error("it did not come to its end")
	}
}
