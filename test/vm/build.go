package vm

import (
	"context"
	_ "embed" // the first program of a machine
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed guest/init
var guestInit []byte

// tools are the programs that the tests in a machine drive, besides those of
// busybox.
var tools = []string{"ip", "tc", "nsenter", "setpriv", "sysctl", "unshare"}

// filters are the packet filter's names in tests. The one based on nftables
// works on every kernel, the older one does not.
var filters = []string{"iptables", "ip6tables"}

// NewMachineDisk makes a machine's disk: all but the modules. Programs are
// this machine's own where the architecture is; on others there are only weir,
// the tests and a shell. The working directory is the module's root.
func NewMachineDisk(ctx context.Context, packages *Packages, m Machine) (*Disk, error) {
	d := NewDisk()
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "suites"} {
		d.Directory(dir)
	}
	d.Add("init", guestInit)
	d.Add("etc/cgroups", []byte(m.Cgroups+"\n"))
	d.Add("etc/passwd", []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	d.Add("etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"))
	if err := addShell(ctx, d, packages, m.Arch); err != nil {
		return nil, err
	}
	if m.Arch == "amd64" {
		if err := addTools(ctx, d); err != nil {
			return nil, err
		}
	}
	return d, addSuites(ctx, d, m)
}

func addShell(ctx context.Context, d *Disk, packages *Packages, arch string) error {
	if arch == "amd64" {
		return d.AddFile("bin/busybox", "/bin/busybox")
	}
	file, err := packages.Fetch(ctx, "busybox-static", arch)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return eachFile(ctx, file, func(name string, content io.Reader) error {
		if !strings.HasSuffix(name, "bin/busybox") {
			return nil
		}
		var shell []byte
		err := readInto(&shell, content)
		d.Add("bin/busybox", shell)
		return err
	})
}

func addTools(ctx context.Context, d *Disk) error {
	for _, name := range tools {
		if err := d.AddProgram(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range filters {
		if err := d.AddProgram(ctx, name+"-nft"); err != nil {
			return err
		}
		d.Link("usr/bin/"+name, name+"-nft")
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return err
	}
	for _, file := range extensions {
		if err := d.AddFile(file, file); err != nil {
			return err
		}
	}
	return nil
}

// addSuites compiles weir and the tests for the machine.
func addSuites(ctx context.Context, d *Disk, m Machine) error {
	if err := compile(ctx, d, m.Arch, "usr/bin/weir", "build", "./cmd/weir"); err != nil {
		return err
	}
	var list strings.Builder
	var compiled []string
	for _, s := range m.Suites {
		name := path.Base(s.Package)
		fmt.Fprintf(&list, "%s\t%s\t%s\n", name, s.Run, s.Skip)
		if slices.Contains(compiled, name) {
			continue
		}
		compiled = append(compiled, name)
		if err := compile(ctx, d, m.Arch, "suites/"+name+"/test", "test", s.Package, "-c", "-tags=netns"); err != nil {
			return err
		}
		err := filepath.WalkDir(filepath.Join(s.Package, "testdata"), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return ignoreMissing(err)
			}
			inside, err := filepath.Rel(s.Package, file)
			if err != nil {
				return err
			}
			return d.AddFile("suites/"+name+"/"+inside, file)
		})
		if err != nil {
			return err
		}
	}
	d.Add("etc/suites", []byte(list.String()))
	return nil
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// compile adds what `go VERB PACKAGE FLAGS...` makes.
func compile(ctx context.Context, d *Disk, arch, name, verb, pkg string, flags ...string) error {
	dir, err := os.MkdirTemp("", "weir-vm-")
	if err != nil {
		return fmt.Errorf("compile %s: %w", pkg, err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program")
	args := append([]string{verb, "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", file}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if _, err := run(cmd); err != nil {
		return fmt.Errorf("compile %s: %w", pkg, err)
	}
	return d.AddFile(name, file)
}

// AddModules adds modules, which are loaded in this order.
func (d *Disk) AddModules(list []Module) {
	var order strings.Builder
	for _, m := range list {
		d.Add("lib/modules/"+m.Name+".ko", m.Data)
		order.WriteString(m.Name + "\n")
	}
	d.Add("etc/modules", []byte(order.String()))
}
