package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// foreignPackages are what the tools of another architecture come from, and foreignTools their programs;
// busybox has the others. engineDebs has the programs of a container engine.
var (
	foreignPackages = []string{"coreutils", "iproute2", "iptables", "util-linux"}
	foreignTools    = []string{"bridge", "ip", "nice", "nsenter", "setpriv", "tc", "unshare", "xtables-nft-multi"}
	engineDebs      = []string{"docker.io", "containerd", "runc"}
)

// foreign are programs and libraries of another architecture.
type foreign struct {
	// programs are by name, and libraries by the name that programs ask for.
	programs, libraries map[string][]byte
	// disk gets extensions of the packet filter at once.
	disk *Disk
}

// addForeignTools adds the programs of another architecture that tests drive.
func addForeignTools(ctx context.Context, d *Disk, packages *Packages, arch string) error {
	for _, name := range filters {
		d.Link("usr/bin/"+name, "xtables-nft-multi")
	}
	return addForeignPrograms(ctx, d, packages, arch, foreignPackages, foreignTools)
}

// addForeignProxy adds HAProxy below /usr, as addProxy does.
func addForeignProxy(ctx context.Context, d *Disk, packages *Packages, arch string) error {
	d.Link("usr/sbin/haproxy", "../bin/haproxy")
	shell := addShell(ctx, d, "usr/bin/sh", packages, arch)
	return errors.Join(shell, addForeignPrograms(ctx, d, packages, arch, []string{"haproxy"}, []string{"haproxy"}))
}

// addForeignPrograms adds programs of an architecture's packages to /usr/bin, with all that they load.
func addForeignPrograms(ctx context.Context, d *Disk, packages *Packages, arch string, names, programs []string) error {
	files, err := packages.FetchAll(ctx, arch, names...)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	f := foreign{programs: map[string][]byte{}, libraries: map[string][]byte{}, disk: d}
	for _, file := range files {
		if err := eachFile(ctx, file, f.keep); err != nil {
			return fmt.Errorf("unpack %s: %w", path.Base(file), err)
		}
	}
	for _, name := range programs {
		program, there := f.programs[name]
		if !there {
			return fmt.Errorf("no package has the program %s", name)
		}
		d.Add("usr/bin/"+name, program)
		if err := f.addLibraries(program); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// keep keeps a file of a package if it is a program, a library or an extension.
func (f foreign) keep(name, link string, content io.Reader) error {
	dir, base := path.Split(clean(name))
	isLibrary, isExtension := strings.Contains(base, ".so"), path.Base(dir) == "xtables"
	switch {
	case isExtension && link != "":
		f.disk.Link(name, link)
		return nil
	case link != "" || !isLibrary && path.Base(dir) != "bin" && path.Base(dir) != "sbin":
		return nil
	}
	var data []byte
	if err := readInto(&data, content); err != nil {
		return err
	}
	switch {
	case isExtension:
		f.disk.Add(name, data)
	case isLibrary:
		file, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return nil // text for the linker
		}
		names, err := file.DynString(elf.DT_SONAME)
		if err != nil {
			return err
		}
		for _, name := range names {
			f.libraries[name] = data
		}
	default:
		f.programs[base] = data
	}
	return nil
}

// addLibraries adds what a program needs, its loader included, and what that needs.
func (f foreign) addLibraries(program []byte) error {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		loader, err := io.ReadAll(segment.Open())
		if err != nil {
			return err
		}
		name := strings.TrimRight(string(loader), "\x00")
		data, there := f.libraries[path.Base(name)]
		if !there {
			return errors.New("no package has the loader " + name)
		}
		f.disk.Add("usr"+name, data)
		f.disk.Link(name, "/usr"+name)
	}
	for _, name := range needed {
		library, there := f.libraries[name]
		if !there {
			return errors.New("no package has the library " + name)
		}
		if _, done := f.disk.files["usr/lib/"+name]; done {
			continue
		}
		f.disk.Add("usr/lib/"+name, library)
		if err := f.addLibraries(library); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
