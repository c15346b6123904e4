package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// listsAge is how old apt's lists may become before they are read again.
const listsAge = 7 * 24 * time.Hour

// releasesTried is how many releases of a series are tried, newest first: a
// mirror may have lost one, or there is no network and only an older one is
// here.
const releasesTried = 3

// errUnavailable is why a machine cannot be had here.
var errUnavailable = errors.New("not available")

// Packages fetches packages of Debian releases other than this machine's, with
// apt and from the mirror that it is set up for, and keeps them. This
// machine's lists of sources and packages are not changed: apt gets lists of
// its own in a directory of ours.
type Packages struct {
	dir string
}

// OpenPackages prepares the lists in a directory, which is kept and used again.
func OpenPackages(ctx context.Context, dir string) (*Packages, error) {
	p := &Packages{dir: dir}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: kernels come from Debian packages, and there is no %s", errUnavailable, tool)
		}
	}
	for _, sub := range []string{"lists/partial", "archives/partial", "none", "packages"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("make the cache: %w", err)
		}
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	sources, err := machineSources(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	info, err := os.Stat(p.path("updated"))
	listed, _ := os.ReadFile(p.path("sources.list"))
	if err == nil && time.Since(info.ModTime()) < listsAge && string(listed) == sources {
		return p, nil
	}
	if err := p.update(ctx, sources); err != nil {
		if _, old := os.Stat(p.path("updated")); old != nil {
			return nil, fmt.Errorf("%w: %w", errUnavailable, err)
		}
		// What was read before is as good, and what was fetched is there.
	}
	return p, nil
}

// configure writes the configuration that apt gets besides the machine's.
func (p *Packages) configure() error {
	config := fmt.Sprintf(`Dir::State::lists %[1]q;
Dir::State::status "/dev/null";
Dir::Cache %[2]q;
Dir::Etc::sourcelist %[3]q;
Dir::Etc::sourceparts %[4]q;
APT::Architectures { "amd64"; "arm64"; "armhf"; };
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
`, p.path("lists"), p.dir, p.path("sources.list"), p.path("none"))
	if os.Geteuid() == 0 {
		config += "APT::Sandbox::User \"root\";\n" // no other user has the cache
	}
	if err := os.WriteFile(p.path("apt.conf"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("write apt's configuration: %w", err)
	}
	return nil
}

func (p *Packages) path(name string) string { return filepath.Join(p.dir, name) }

func (p *Packages) update(ctx context.Context, sources string) error {
	if err := os.WriteFile(p.path("sources.list"), []byte(sources), 0o644); err != nil {
		return fmt.Errorf("write apt's sources: %w", err)
	}
	if _, err := p.apt(ctx, "apt-get", "-qq", "update"); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("updated"), nil, 0o644); err != nil {
		return fmt.Errorf("note that apt's lists are new: %w", err)
	}
	return nil
}

// machineSources are the sources of all releases from this machine's mirror.
func machineSources(ctx context.Context) (string, error) {
	mirror, err := machineMirror(ctx)
	if err != nil {
		return "", err
	}
	signed := ""
	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err == nil {
		signed = " signed-by=" + keyring
	}
	var sources strings.Builder
	for _, release := range releases {
		fmt.Fprintf(&sources, "deb [arch=%s%s] %s %s main\n", release.archs, signed, mirror, release.name)
	}
	return sources.String(), nil
}

// machineMirror is where this machine gets Debian's packages from.
func machineMirror(ctx context.Context) (string, error) {
	out, err := run(exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Origin: Debian", "Label: Debian", "Component: main"))
	mirror, _, _ := strings.Cut(out, "\n")
	if err == nil && mirror == "" {
		err = errors.New("apt knows no mirror of Debian's here, and kernels come from there")
	}
	return mirror, err
}

func (p *Packages) apt(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = p.path("packages")
	cmd.Env = append(os.Environ(), "APT_CONFIG="+p.path("apt.conf"), "LC_ALL=C")
	return run(cmd)
}

// run runs a command and returns what it prints; its error has what it
// complained of.
func run(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Fetch returns the file of a package, from the cache if its newest version is
// there.
func (p *Packages) Fetch(ctx context.Context, name, arch string) (string, error) {
	record, err := p.apt(ctx, "apt-cache", "show", "--no-all-versions", name+":"+arch)
	if err != nil {
		return "", err
	}
	fields := parseRecord(record)
	// apt writes the colon of an epoch as %3a.
	path := filepath.Join(p.path("packages"), fmt.Sprintf("%s_%s_%s.deb", name,
		strings.ReplaceAll(fields["Version"], ":", "%3a"), fields["Architecture"]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if _, err := p.apt(ctx, "apt-get", "-qq", "download", name+":"+arch); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("apt has not fetched what it said it would: %w", err)
	}
	return path, nil
}

// FetchAll returns the files of packages and of all that these depend on, from the cache where they
// are there. All are of the first release: the newest package that is for every architecture may depend on a
// version that only this machine's architecture has.
func (p *Packages) FetchAll(ctx context.Context, arch string, names ...string) ([]string, error) {
	of := []string{"-o", "APT::Architecture=" + arch, "-t", releases[0].name}
	out, err := p.apt(ctx, slices.Concat([]string{"apt-get", "-qq", "install", "--print-uris", "--no-install-recommends"}, of, names)...)
	if err != nil {
		return nil, err
	}
	var files, missing []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line) // the address, the file's name, size and checksum
		if len(fields) < 2 {
			continue
		}
		file := p.path(filepath.Join("packages", fields[1]))
		if _, err := os.Stat(file); err != nil {
			name, _, _ := strings.Cut(fields[1], "_")
			missing = append(missing, name)
		}
		files = append(files, file)
	}
	if len(missing) > 0 {
		_, err = p.apt(ctx, slices.Concat([]string{"apt-get", "-qq", "download"}, of, missing)...)
	}
	return files, err
}

// Kernel is a kernel's packages.
type Kernel struct {
	// Release is what uname -r says, Version the package's.
	Release, Version string
	// Files are the packages that hold it and its modules.
	Files []string
}

// FetchKernel fetches the newest kernel of a series: the flavour for clouds, which is small and has all
// the modules that matter here, or of 32-bit ARM the only one for many boards.
func (p *Packages) FetchKernel(ctx context.Context, series, arch string) (Kernel, error) {
	out, err := p.apt(ctx, "apt-cache", "pkgnames", "linux-image-"+series+".")
	if err != nil {
		return Kernel{}, err
	}
	found := kernelReleases(strings.Fields(out), series, arch)
	if len(found) == 0 {
		return Kernel{}, fmt.Errorf("%w: the mirror has no kernel %s for %s in %s",
			errUnavailable, series, arch, releases)
	}
	var problems []error
	for _, release := range found[:min(len(found), releasesTried)] {
		kernel, err := p.fetchRelease(ctx, release, arch)
		if err == nil {
			return kernel, nil
		}
		problems = append(problems, err)
	}
	return Kernel{}, fmt.Errorf("%w: %w", errUnavailable, errors.Join(problems...))
}

func (p *Packages) fetchRelease(ctx context.Context, release, arch string) (Kernel, error) {
	image := "linux-image-" + release
	record, err := p.apt(ctx, "apt-cache", "show", "--no-all-versions", image+":"+arch)
	if err != nil {
		return Kernel{}, err
	}
	fields := parseRecord(record)
	k := Kernel{Release: release, Version: fields["Version"]}
	for _, name := range append([]string{image}, splitPackages(fields["Depends"], release)...) {
		file, err := p.Fetch(ctx, name, arch)
		if err != nil {
			return Kernel{}, err
		}
		k.Files = append(k.Files, file)
	}
	return k, nil
}

// splitPackages are those of a kernel's dependencies that newer releases have
// moved its contents to; none where the kernel's package has it all.
func splitPackages(depends, release string) []string {
	var names []string
	split := false
	for dependency := range strings.SplitSeq(depends, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(dependency), " ")
		switch name {
		case "linux-base-" + release, "linux-binary-" + release, "linux-modules-" + release:
			names = append(names, name)
			split = split || name == "linux-modules-"+release
		}
	}
	if !split {
		return nil
	}
	return names
}

// kernelReleases are the releases among names of packages, the newest first.
func kernelReleases(packages []string, series, arch string) []string {
	flavour := "cloud-" + arch
	if arch == armhf {
		flavour = "armmp"
	}
	image := regexp.MustCompile(`^linux-image-(` + regexp.QuoteMeta(series) + `\.[0-9][0-9a-z.+~-]*-` + flavour + `)$`)
	var found []string
	for _, name := range packages {
		if m := image.FindStringSubmatch(name); m != nil && !strings.Contains(name, "-rt-") {
			found = append(found, m[1])
		}
	}
	slices.SortFunc(found, func(a, b string) int { return compareReleases(b, a) })
	return found
}

var runs = regexp.MustCompile(`[0-9]+|[^0-9]+`)

// compareReleases orders releases of one series: numbers by value.
func compareReleases(a, b string) int {
	return slices.CompareFunc(runs.FindAllString(a, -1), runs.FindAllString(b, -1), func(a, b string) int {
		if len(a) != len(b) && isDigit(a[0]) && isDigit(b[0]) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// parseRecord reads the fields of one package from what apt-cache show prints.
func parseRecord(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
			if _, twice := fields[name]; !twice {
				fields[name] = strings.TrimSpace(value)
			}
		}
	}
	return fields
}
