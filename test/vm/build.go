package vm

import (
	"context"
	_ "embed" // the first program of a machine
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed guest/init
var guestInit []byte

// tools are the programs that the tests in a machine drive, besides those of
// busybox.
var tools = []string{"bridge", "ip", "nft", "tc", "nice", "nsenter", "setpriv", "sysctl", "unshare", "wg"}

// filters are the packet filter's names in tests. The one based on nftables
// works on every kernel, the older one does not.
var filters = []string{"iptables", "ip6tables"}

// engine are the programs of a container engine, which tests tagged docker
// start.
var engine = []string{"dockerd", "docker-proxy", "containerd", "containerd-shim-runc-v2", "runc"}

// openFlow are the programs of an Open vSwitch, and openFlowSchema its
// database's, for machines that forward with the kernel's.
var openFlow = []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"}

const openFlowSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// addOpenFlow adds them.
func addOpenFlow(ctx context.Context, d *Disk) error {
	if err := d.AddPrograms(ctx, openFlow...); err != nil {
		return err
	}
	return d.AddFile(openFlowSchema, openFlowSchema)
}

// addEngine adds the programs of a container engine.
func addEngine(ctx context.Context, d *Disk, packages *Packages, arch string) error {
	if arch != runtime.GOARCH {
		return addForeignPrograms(ctx, d, packages, arch, engineDebs, engine)
	}
	return d.AddPrograms(ctx, engine...)
}

// addProxy adds HAProxy below /usr, which is all that the proxies of services see of a machine.
func addProxy(ctx context.Context, d *Disk, packages *Packages, arch string) error {
	if arch != runtime.GOARCH {
		return addForeignProxy(ctx, d, packages, arch)
	}
	const program = "/usr/sbin/haproxy"
	out, err := run(exec.CommandContext(ctx, "ldd", program))
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	err = errors.Join(d.AddFile(program, program), d.AddFile("/usr/bin/sh", "/bin/busybox"))
	for _, m := range library.FindAllStringSubmatch(out, -1) {
		err = errors.Join(err, d.AddFile("/usr"+strings.TrimPrefix(m[1], "/usr"), m[1]))
	}
	return err
}

// commonDisk makes a disk with what the machines of an architecture share.
// Programs are this machine's own where the architecture is, and of Debian's packages on
// others. The working directory is the module's root.
func commonDisk(ctx context.Context, packages *Packages, arch string, suites []Suite) (*Disk, error) {
	d := NewDisk()
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "suites"} {
		d.Directory(dir)
	}
	d.Console()
	d.Add("init", guestInit)
	d.Add("etc/passwd", []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	d.Add("etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"))
	d.Add("etc/protocols", []byte("icmp 1\ntcp 6\nudp 17\nesp 50\nipv6-icmp 58\n"))
	if err := addShell(ctx, d, "bin/busybox", packages, arch); err != nil {
		return nil, err
	}
	add := addTools
	if arch != runtime.GOARCH {
		add = func(ctx context.Context, d *Disk) error { return addForeignTools(ctx, d, packages, arch) }
	}
	if err := add(ctx, d); err != nil {
		return nil, err
	}
	return d, addPrograms(ctx, d, arch, suites)
}

// machineDisk makes a disk with what is a machine's own, which the kernel
// unpacks over the common one.
func machineDisk(m Machine, loaded []Module) *Disk {
	d := NewDisk()
	d.Add("etc/cgroups", []byte(m.Cgroups+"\n"))
	var suites, order strings.Builder
	for _, s := range m.Suites {
		fmt.Fprintf(&suites, "%s\t%s\t%s\n", s.name(), s.Run, s.Skip)
	}
	d.Add("etc/suites", []byte(suites.String()))
	for _, module := range loaded {
		d.Add("lib/modules/"+module.Name+".ko", module.Data)
		order.WriteString(module.Name + "\n")
	}
	d.Add("etc/modules", []byte(order.String()))
	return d
}

// addShell adds busybox under a name.
func addShell(ctx context.Context, d *Disk, as string, packages *Packages, arch string) error {
	if arch == runtime.GOARCH {
		return d.AddFile(as, "/bin/busybox")
	}
	file, err := packages.Fetch(ctx, "busybox-static", arch)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return eachFile(ctx, file, func(name, link string, content io.Reader) error {
		if link != "" || !strings.HasSuffix(name, "bin/busybox") {
			return nil
		}
		var shell []byte
		err := readInto(&shell, content)
		d.Add(as, shell)
		return err
	})
}

func addTools(ctx context.Context, d *Disk) error {
	if err := d.AddPrograms(ctx, tools...); err != nil {
		return err
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

// addPrograms compiles the programs and the tests.
func addPrograms(ctx context.Context, d *Disk, arch string, suites []Suite) error {
	for _, program := range []string{"weir", "weir-edge", "weir-lab", "weir-sdn"} {
		if err := compile(ctx, d, arch, "usr/bin/"+program, "build", "./cmd/"+program); err != nil {
			return err
		}
	}
	done := map[string]bool{}
	for _, s := range suites {
		if done[s.Package] {
			continue
		}
		done[s.Package] = true
		dir := "suites/" + s.name()
		if err := compile(ctx, d, arch, dir+"/test", "test", s.Package, "-c", "-tags="+s.Tag); err != nil {
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
			return d.AddFile(dir+"/"+inside, file)
		})
		if err != nil {
			return err
		}
	}
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
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+strings.TrimSuffix(arch, "hf"), "GOARM=7")
	if _, err := run(cmd); err != nil {
		return fmt.Errorf("compile %s: %w", pkg, err)
	}
	return d.AddFile(name, file)
}
