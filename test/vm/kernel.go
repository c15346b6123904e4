package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
)

// Unpacked is what a machine needs of a kernel's packages.
type Unpacked struct {
	// Image is what QEMU boots.
	Image []byte
	// Modules are all of its modules by name, where - is _, as packed.
	Modules map[string]PackedModule
	// BuiltIn are the names of those that are part of the image.
	BuiltIn map[string]bool
}

// PackedModule is a module's file, compressed according to its name.
type PackedModule struct {
	File string
	Data []byte
}

// Unpack reads a kernel's packages.
func (k Kernel) Unpack(ctx context.Context) (Unpacked, error) {
	u := Unpacked{Modules: map[string]PackedModule{}, BuiltIn: map[string]bool{}}
	for _, file := range k.Files {
		err := eachFile(ctx, file, func(name, link string, content io.Reader) error {
			base := path.Base(name)
			switch {
			case link != "":
				return nil
			case base == "vmlinuz", strings.HasPrefix(base, "vmlinuz-"):
				return readInto(&u.Image, content)
			case base == "modules.builtin":
				var list []byte
				if err := readInto(&list, content); err != nil {
					return err
				}
				for line := range strings.Lines(string(list)) {
					u.BuiltIn[moduleName(strings.TrimSpace(line))] = true
				}
			case strings.Contains(base, ".ko"):
				m := PackedModule{File: base}
				if err := readInto(&m.Data, content); err != nil {
					return err
				}
				u.Modules[moduleName(base)] = m
			}
			return nil
		})
		if err != nil {
			return Unpacked{}, fmt.Errorf("unpack kernel %s: %w", k.Release, err)
		}
	}
	if len(u.Image) == 0 || len(u.Modules) == 0 {
		return Unpacked{}, fmt.Errorf("unpack kernel %s: %s have no image or no modules", k.Release, strings.Join(k.Files, ", "))
	}
	return u, nil
}

// moduleName is the kernel's name of the module in a file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func readInto(dst *[]byte, src io.Reader) (err error) {
	*dst, err = io.ReadAll(src)
	return err
}

// eachFile calls fn for every regular file in a Debian package, and for every symbolic link, which leads to link.
func eachFile(ctx context.Context, file string, fn func(name, link string, content io.Reader) error) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = eachTarFile(tar.NewReader(out), fn)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // padding
	} else {
		_ = cmd.Process.Kill()
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("run dpkg-deb: %w: %s", waited, bytes.TrimSpace(stderr.Bytes()))
	}
	return err
}

func eachTarFile(archive *tar.Reader, fn func(name, link string, content io.Reader) error) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeSymlink {
			continue
		}
		if err := fn(header.Name, header.Linkname, archive); err != nil {
			return err
		}
	}
}
