//go:build deb

package deb

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackages: each package has its program with what belongs to that, and no file of another.
func TestPackages(t *testing.T) {
	const file, program, folder = "-rw-r--r-- root/root", "-rwxr-xr-x root/root", "drwxr-xr-x root/root"
	const onePackage = `weir \(<< 0~20261123231541\)` // had the files of weir-edge and weir-sdn, too
	owner := map[string]string{}
	for name, p := range map[string]struct {
		summary, suggests, depends, replaces string
		start                                string            // the command of its unit
		files                                map[string]string // further ones, with their modes
		page, words                          string            // a manual page and what it has
		licensed                             []string
	}{
		"weir": {
			summary: "Share a host's network uplink", suggests: "weir-sdn, weir-lab, weir-edge, weir-k8s", start: "/usr/bin/weir agent --config",
			files: map[string]string{
				"/etc/weir/": folder, "/usr/share/man/man1/weir-agent.1.gz": file, "/usr/share/doc/weir/examples/weir.yaml": file,
				"/usr/share/doc/weir/examples/grafana.json": file, "/usr/share/doc/weir/examples/prometheus.rules.yaml": file,
			},
			page: "weir-set", words: "weight", licensed: []string{"\nMIT-uPlot\n", "\ngithub.com/cilium/ebpf\n"},
		},
		"weir-edge": {
			summary: "Place services", suggests: "haproxy", replaces: onePackage, start: "/usr/bin/weir-edge run\n",
			files: map[string]string{"/etc/weir/": folder, "/usr/share/doc/weir-edge/examples/edge.yaml": file},
			page:  "weir-edge-run", words: "config", licensed: []string{"\nMIT-uPlot\n"},
		},
		"weir-sdn": {
			summary: "Control OpenFlow switches", suggests: "openvswitch-switch", replaces: onePackage, start: "/usr/bin/weir-sdn run $OPTIONS\n",
			files: map[string]string{"/etc/weir/": folder},
			page:  "weir-sdn-run", words: "ovsdb",
		},
		"weir-k8s": {
			summary: "Share a host's network uplink between pods", suggests: "^containerd$", depends: "weir", start: "/usr/bin/weir-k8s $OPTIONS\n",
			files: map[string]string{"/etc/weir/": folder},
			page:  "weir-k8s", words: "hard", licensed: []string{"\ngithub.com/containerd/nri\n"},
		},
		"weir-lab": {summary: "Demos, benchmarks", depends: `weir \(= VERSION\)`, page: "weir-lab-bench-netmodes", words: "netmodes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, "", name)
			doc := "/usr/share/doc/" + name + "/"
			want := map[string]string{
				"/usr/bin/" + name: program, "/usr/share/man/man1/" + name + ".1.gz": file,
				"/usr/share/bash-completion/completions/" + name: file, "/usr/share/zsh/vendor-completions/_" + name: file,
				"/usr/share/fish/vendor_completions.d/" + name + ".fish": file,
				doc + "copyright": file, doc + "changelog.gz": file, doc + "licenses.gz": file, doc + name + ".cdx.json": file,
			}
			unit := "/usr/lib/systemd/system/" + name + ".service"
			if p.start != "" {
				want[unit] = file
			}
			maps.Copy(want, p.files)
			for line := range strings.Lines(run(t, "dpkg-deb", "-c", path)) {
				fields := strings.Fields(line)
				file, mode := strings.TrimPrefix(fields[5], "."), fields[0]+" "+fields[1]
				if expected := want[file]; expected != "" && expected != mode {
					t.Errorf("%s is %q, want %q", file, mode, expected)
				}
				delete(want, file)
				if !strings.HasSuffix(mode, " root/root") || strings.HasPrefix(file, "/usr/local") || strings.Contains(file, "nfpm") {
					t.Errorf("%s is in it, %s", file, mode)
				}
				if other := owner[file]; other != "" && !strings.HasSuffix(file, "/") {
					t.Errorf("%s is in %s, too", file, other)
				}
				owner[file] = name
			}
			for file := range want {
				t.Errorf("it lacks %s", file)
			}
			version := strings.TrimSpace(run(t, "dpkg-deb", "-f", path, "Version"))
			for field, want := range map[string]string{
				"Package": "^" + name + "$", "Version": `^[0-9][0-9A-Za-z.+~-]*$`, "Architecture": "^(amd64|arm64|armhf)$", "Section": "^net$",
				"Description": "(?s)^" + p.summary + ".*\n ", "Suggests": p.suggests, "Depends": "^" + strings.Replace(p.depends, "VERSION", regexp.QuoteMeta(version), 1) + "$",
				"Breaks": "^$", "Replaces": "^" + p.replaces + "$",
			} {
				if got := strings.TrimSpace(run(t, "dpkg-deb", "-f", path, field)); !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("%s is %q", field, got)
				}
			}
			unpacked := t.TempDir()
			run(t, "dpkg-deb", "-x", path, unpacked)
			if text, err := os.ReadFile(unpacked + unit); p.start != "" &&
				(err != nil || !strings.Contains(string(text), "ExecStart="+p.start) || strings.Contains(string(text), "@")) {
				t.Errorf("the unit is %s, %v", text, err)
			}
			manual := run(t, "gzip", "-dc", filepath.Join(unpacked, "usr/share/man/man1", p.page+".1.gz"))
			if !strings.Contains(manual, ".SH SYNOPSIS") || !strings.Contains(manual, p.words) {
				t.Errorf("the manual %s: %.300s", p.page, manual)
			}
			licenses := "\n" + run(t, "gzip", "-dc", unpacked+doc+"licenses.gz")
			for _, part := range append(p.licensed, "\nGo's library\n", "Redistributions in binary form") {
				if !strings.Contains(licenses, part) {
					t.Errorf("the licences have no %q", part)
				}
			}
			script, err := os.ReadFile(unpacked + "/usr/share/bash-completion/completions/" + name)
			if err != nil || !strings.Contains(string(script), "__start_"+name) {
				t.Errorf("the completion: %v", err)
			}
		})
	}
}

// TestInstallAndRemove: what is installed works; an upgrade keeps the configuration;
// after removal the uplink is as before, and after purging nothing is left. It happens
// on a copy-on-write view of this machine's files, in namespaces of its own.
func TestInstallAndRemove(t *testing.T) {
	path := filepath.Dir(build(t, "", "weir"))
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
