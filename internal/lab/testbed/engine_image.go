package testbed

import (
	"archive/tar"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/client"
)

// busyboxPath is where the image's shell comes from.
const busyboxPath = "/bin/busybox"

// idle is what a container does that is told nothing else.
var idle = []string{"/bin/busybox", "sleep", "2147483647"}

// ImportBinary makes an image without a registry: busybox with a link for
// each of its tools in /bin, and binaries, which maps a path in the image to
// one on this machine. Libraries that a program or a shared object is linked
// with come with it. An image of that name is replaced.
func (e *Engine) ImportBinary(ctx context.Context, image string, binaries map[string]string) error {
	return e.ImportService(ctx, image, binaries, idle)
}

// ImportService is ImportBinary with the command that a container of the image runs.
func (e *Engine) ImportService(ctx context.Context, image string, binaries map[string]string, command []string) error {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(writeRootFS(writer, binaries)) }()
	defer reader.Close()
	cmd, err := json.Marshal(command)
	if err != nil {
		return err
	}
	progress, err := e.api.ImageImport(ctx,
		client.ImageImportSource{Source: reader, SourceName: "-"}, image,
		client.ImageImportOptions{Changes: []string{"ENV PATH=/bin:/usr/bin:/usr/local/bin", "CMD " + string(cmd)}})
	if err != nil {
		return fmt.Errorf("import image %s: %w", image, err)
	}
	defer progress.Close()
	if err := readProgress(progress); err != nil {
		return fmt.Errorf("import image %s: %w", image, err)
	}
	return nil
}

// Load takes images from an archive, as docker save writes it.
func (e *Engine) Load(ctx context.Context, archive io.Reader) error {
	progress, err := e.api.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	defer progress.Close()
	if err := readProgress(progress); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}

// readProgress waits until an image is there: the answer is 200 before that, and an
// error comes in the stream.
func readProgress(progress io.Reader) error {
	for decoder := json.NewDecoder(progress); ; {
		var line struct {
			Error string `json:"error"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if line.Error != "" {
			return errors.New(line.Error)
		}
	}
}

// writeRootFS writes the image's root directory as a tar archive.
func writeRootFS(w io.Writer, binaries map[string]string) error {
	tools, err := tool(context.Background(), busyboxPath, "--list").Output()
	if err != nil {
		return errors.New("busybox is not installed: apt-get install busybox-static")
	}
	if _, dynamic, err := sharedLibraries(busyboxPath); err != nil || dynamic {
		return errors.Join(err, errors.New("busybox is not static: apt-get install busybox-static"))
	}
	files := map[string]string{busyboxPath: busyboxPath}
	for to, from := range binaries {
		files[path.Join("/", to)] = from
		libraries, _, err := sharedLibraries(from)
		if err != nil {
			return err
		}
		for _, library := range libraries {
			files[library] = library
		}
	}
	links := make(map[string]string)
	for tool := range strings.FieldsSeq(string(tools)) {
		if to := path.Join("/bin", tool); files[to] == "" {
			links[to] = busyboxPath
		}
	}

	archive := &rootFS{w: tar.NewWriter(w), made: map[string]bool{"/": true}}
	for _, dir := range []string{"/dev", "/etc", "/proc", "/root", "/sys", "/tmp"} {
		if err := archive.dir(dir); err != nil {
			return err
		}
	}
	for _, to := range sortedKeys(files) {
		if err := archive.file(to, files[to]); err != nil {
			return err
		}
	}
	for _, to := range sortedKeys(links) {
		if err := archive.link(to, links[to]); err != nil {
			return err
		}
	}
	return archive.w.Close()
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// rootFS writes a tar archive in which every directory comes before what is
// in it.
type rootFS struct {
	w    *tar.Writer
	made map[string]bool
}

func (r *rootFS) dir(name string) error {
	if r.made[name] {
		return nil
	}
	if err := r.dir(path.Dir(name)); err != nil {
		return err
	}
	r.made[name] = true
	mode := int64(0o755)
	if name == "/tmp" {
		mode = 0o1777
	}
	return r.w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[1:] + "/", Mode: mode})
}

func (r *rootFS) link(name, target string) error {
	if err := r.dir(path.Dir(name)); err != nil {
		return err
	}
	return r.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: target, Mode: 0o777})
}

func (r *rootFS) file(name, from string) error {
	if err := r.dir(path.Dir(name)); err != nil {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy into the image: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("copy into the image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("copy into the image: %s is not a file", from)
	}
	if err := r.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Size: info.Size(), Mode: 0o755}); err != nil {
		return err
	}
	_, err = io.Copy(r.w, f)
	return err
}

// sharedLibraries lists the absolute paths that a binary needs besides
// itself, the dynamic linker included. What is not an ELF file (a script)
// needs none.
func sharedLibraries(binary string) (libraries []string, dynamic bool, err error) {
	f, err := elf.Open(binary)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("read binary: %w", err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, false, fmt.Errorf("read binary: %w", err)
	}
	// A static program that can be loaded anywhere has neither.
	if len(needed) == 0 && !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, false, nil
	}
	out, err := tool(context.Background(), "ldd", binary).Output()
	if err != nil {
		return nil, true, fmt.Errorf("list the libraries of %s: %w", binary, err)
	}
	return parseLDD(string(out)), true, nil
}

// parseLDD reads the output of ldd. Its lines are
//
//	linux-vdso.so.1 (0x00007ffd4a5f2000)
//	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f0000400000)
func parseLDD(out string) []string {
	var libraries []string
	for line := range strings.Lines(out) {
		for field := range strings.FieldsSeq(line) {
			if path.IsAbs(field) {
				libraries = append(libraries, path.Clean(field))
				break
			}
		}
	}
	return libraries
}
