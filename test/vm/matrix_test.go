//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// recordVariable names a file to which the kernels that ran are added.
const recordVariable = "WEIR_VM_RECORD"

// TestMachines runs the tests in every machine, as many at a time as there
// are processors, and reports them as its own, by the kernel's name.
func TestMachines(t *testing.T) {
	ctx := t.Context()
	if err := os.Chdir("../.."); err != nil { // to the module's root
		t.Fatal(err)
	}
	packages, err := OpenPackages(ctx, cacheDir(t))
	if err != nil {
		skipIfUnavailable(t, err)
		t.Fatal(err)
	}
	for _, m := range Machines {
		t.Run(m.Name(), func(t *testing.T) {
			t.Parallel()
			runMachine(t, packages, m)
		})
	}
}

// cacheDir is where packages are kept. Only one run at a time uses it.
func cacheDir(t *testing.T) string {
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "weir-vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return dir
}

func skipIfUnavailable(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, errUnavailable) {
		t.Skip(strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func runMachine(t *testing.T, packages *Packages, m Machine) {
	emulator, err := emulatorVersion(t.Context(), m.Arch)
	if err != nil {
		skipIfUnavailable(t, err)
		t.Fatal(err)
	}
	kernel, err := packages.FetchKernel(t.Context(), m.Series, m.Arch)
	if err != nil {
		skipIfUnavailable(t, err)
		t.Fatal(err)
	}
	boot, err := prepare(t.Context(), t.TempDir(), packages, m, kernel)
	if err != nil {
		skipIfUnavailable(t, err)
		t.Fatal(err)
	}
	began := time.Now()
	output, failed := boot.Run(t.Context())
	took := time.Since(began).Round(time.Second)
	if keep := os.Getenv("WEIR_VM_CONSOLES"); keep != "" {
		_ = os.WriteFile(filepath.Join(keep, m.Name()), output, 0o644)
	}
	console, err := ParseConsole(t.Context(), string(output))
	if err != nil {
		t.Error(err)
	}
	report(t, console)
	if failed != nil {
		t.Errorf("%v; its last lines were:\n%s", failed, lastLines(string(output), 40))
	}
	record(t, fmt.Sprintf("%s: Linux %s (package %s), cgroups %s, QEMU %s, %d results in %v",
		m.Name(), console.Release, kernel.Version, m.Cgroups, emulator, len(console.Results), took))
}

// report makes each result a test of its own, but for those whose subtests say
// as much.
func report(t *testing.T, c Console) {
	for _, r := range c.leaves() {
		t.Run(r.Suite+"/"+r.Test, func(t *testing.T) {
			switch r.Action {
			case "fail":
				t.Errorf("after %.1f s:\n%s", r.Seconds, r.Output)
			case "skip":
				t.Skip(r.skipReason())
			}
		})
	}
	for _, problem := range c.Problems {
		t.Error(problem)
	}
}

func record(t *testing.T, line string) {
	t.Log(line)
	path := os.Getenv(recordVariable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
		f.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// minimumMajor is QEMU's. Its release 7.2 crashes kernel 6.12.
const minimumMajor = 10

var version = regexp.MustCompile(`version (([0-9]+)\.[0-9.]+)`)

func emulatorVersion(ctx context.Context, arch string) (string, error) {
	program, _, _ := qemu(arch)
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("%w: %s is not installed: make deps", errUnavailable, program)
	}
	out, err := run(exec.CommandContext(ctx, program, "--version"))
	if err != nil {
		return "", err
	}
	m := version.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s says no version but %q", program, out)
	}
	var major int
	if _, err := fmt.Sscan(m[2], &major); err != nil || major < minimumMajor {
		return "", fmt.Errorf("%w: %s is %s and has to be %d or newer: make deps", errUnavailable, program, m[1], minimumMajor)
	}
	return m[1], nil
}

// prepare writes a machine's files.
func prepare(ctx context.Context, dir string, packages *Packages, m Machine, kernel Kernel) (Boot, error) {
	unpacked, err := kernel.Unpack(ctx)
	if err != nil {
		return Boot{}, err
	}
	disk, err := NewMachineDisk(ctx, packages, m)
	if err != nil {
		return Boot{}, err
	}
	loaded, err := unpacked.ModulesInOrder(ctx, modules)
	if err != nil {
		return Boot{}, err
	}
	disk.AddModules(loaded)
	boot := Boot{
		Arch: m.Arch, Timeout: machineTimeout,
		ImagePath: filepath.Join(dir, "kernel"), DiskPath: filepath.Join(dir, "disk"),
	}
	if err := os.WriteFile(boot.ImagePath, unpacked.Image, 0o644); err != nil {
		return Boot{}, err
	}
	file, err := os.Create(boot.DiskPath)
	if err != nil {
		return Boot{}, err
	}
	_, err = disk.WriteTo(file)
	return boot, errors.Join(err, file.Close())
}
