package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"sort"
	"strings"
)

// Disk is the contents of an initial RAM disk.
type Disk struct {
	files map[string]diskFile
}

type diskFile struct {
	mode         uint32
	data         []byte
	major, minor int // of a device
}

// File types and permissions as in stat(2).
const (
	modeDirectory  = 0o040755
	modeProgram    = 0o100755
	modeLink       = 0o120777
	modeCharDevice = 0o020600
)

// NewDisk makes an empty disk.
func NewDisk() *Disk { return &Disk{files: map[string]diskFile{}} }

// Add adds a file that may be executed.
func (d *Disk) Add(name string, data []byte) {
	d.files[clean(name)] = diskFile{mode: modeProgram, data: data}
}

// Directory adds an empty directory.
func (d *Disk) Directory(name string) { d.files[clean(name)] = diskFile{mode: modeDirectory} }

// Link adds a symbolic link.
func (d *Disk) Link(name, target string) {
	d.files[clean(name)] = diskFile{mode: modeLink, data: []byte(target)}
}

// Console adds the device without which the first program has no output.
func (d *Disk) Console() {
	d.files["dev/console"] = diskFile{mode: modeCharDevice, major: 5, minor: 1}
}

func clean(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// AddFile adds a file of this machine's under a name.
func (d *Disk) AddFile(name, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d.Add(name, data)
	return nil
}

// library finds what a line of ldd says is loaded from where.
var library = regexp.MustCompile(`(?m)^\s(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$`)

// AddProgram adds a program of this machine's in /usr/bin, under its name, and
// its libraries where they are here.
func (d *Disk) AddProgram(ctx context.Context, name string) error {
	file, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	if err := d.AddFile("/usr/bin/"+name, file); err != nil {
		return err
	}
	return d.addLibraries(ctx, file)
}

// AddPrograms is AddProgram for each of the names.
func (d *Disk) AddPrograms(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := d.AddProgram(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) addLibraries(ctx context.Context, file string) error {
	out, err := run(exec.CommandContext(ctx, "ldd", file))
	if err != nil {
		return err
	}
	for _, m := range library.FindAllStringSubmatch(out, -1) {
		if err := d.AddFile(m[1], m[1]); err != nil {
			return err
		}
	}
	return nil
}

// WriteTo writes the disk as the kernel reads it: an archive of cpio's "newc"
// format (Documentation/driver-api/early-userspace/buffer-format.rst).
func (d *Disk) WriteTo(w io.Writer) (int64, error) {
	all := map[string]diskFile{}
	for name, file := range d.files {
		all[name] = file
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := d.files[dir]; !there {
				all[dir] = diskFile{mode: modeDirectory}
			}
		}
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names) // directories before what is in them
	var written int64
	entry := func(number int, name string, file diskFile) error {
		var b bytes.Buffer
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			number, file.mode, 0, 0, 1, 0, len(file.data), 0, 0, file.major, file.minor, len(name)+1, 0)
		b.WriteString(name)
		b.WriteByte(0)
		pad(&b)
		b.Write(file.data)
		pad(&b)
		n, err := w.Write(b.Bytes())
		written += int64(n)
		return err
	}
	for i, name := range names {
		if err := entry(i+1, name, all[name]); err != nil {
			return written, err
		}
	}
	return written, entry(0, "TRAILER!!!", diskFile{})
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
