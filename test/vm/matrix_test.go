//go:build vm

package vm

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

// recordVariable names a file to which the kernels that ran are added,
// consolesVariable a directory for what the machines printed, and suiteVariable
// the suite of scripts/test.sh: vm for what make test runs, or machines for all.
const (
	suiteVariable    = "WEIR_VM_SUITE"
	recordVariable   = "WEIR_VM_RECORD"
	consolesVariable = "WEIR_VM_CONSOLES"
)

// TestMain lets all machines wait for their turn at once: the testing package
// would choose any of them next.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(len(Machines))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestMachines runs the tests in every machine, as many at a time as there
// are processors and memory for, and reports them as its own, by the kernel's name. What
// is fetched and compiled is so one after the other, for a machine while others run.
func TestMachines(t *testing.T) {
	if err := os.Chdir("../.."); err != nil { // to the module's root
		t.Fatal(err)
	}
	machines := Machines
	if os.Getenv(suiteVariable) == "vm" {
		machines = inGate()
	}
	preparation := preparation{machines: machines, packages: openCache(t), disks: map[string]*Disk{}}
	var turns []chan struct{} // in the machines' order
	running := make(chan struct{}, machinesAtOnce(runtime.NumCPU(), memoryBytes(t)))
	for _, m := range machines {
		t.Run(m.Name(), func(t *testing.T) {
			turn := make(chan struct{})
			turns = append(turns, turn)
			t.Parallel() // goes on when all are here
			<-turn
			defer func() { <-running }()
			p, err := preparation.prepare(t.Context(), t.TempDir(), m)
			if errors.Is(err, errUnavailable) { // it cannot be had here
				t.Skip(strings.Join(strings.Fields(err.Error()), " "))
			}
			must.Succeed(t, err)
			p.run(t)
		})
	}
	go func() {
		for _, turn := range turns {
			running <- struct{}{}
			close(turn)
		}
	}()
}

// TestBenchmarks prints what each packet pays on its way, in instructions: those are what a machine's clock
// counts. It runs with suiteVariable set to bench.
func TestBenchmarks(t *testing.T) {
	if os.Getenv(suiteVariable) != "bench" {
		t.Skip("set " + suiteVariable + " to bench")
	}
	must.Succeed(t, os.Chdir("../.."))
	preparation := preparation{machines: benches, packages: openCache(t), disks: map[string]*Disk{}}
	for _, m := range benches {
		t.Run(m.Name(), func(t *testing.T) {
			p, err := preparation.prepare(t.Context(), t.TempDir(), m)
			must.Succeed(t, err)
			output, err := p.boot.Run(t.Context())
			t.Logf("Linux %s, %v\n%s", p.kernel.Version, err, output)
			if err != nil || !strings.Contains(string(output), "\nPASS") {
				t.Fail()
			}
		})
	}
}

// memoryBytes is what this machine has.
func memoryBytes(t *testing.T) uint64 {
	t.Helper()
	var info syscall.Sysinfo_t
	must.Succeed(t, syscall.Sysinfo(&info))
	return uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // 32 bits wide on machines that are
}

// openCache opens the packages that are kept. Only one run at a time uses them.
func openCache(t *testing.T) *Packages {
	t.Helper()
	base, err := os.UserCacheDir()
	must.Succeed(t, err)
	dir := filepath.Join(base, "weir-vm")
	must.Succeed(t, os.MkdirAll(dir, 0o755))
	lock, err := os.Open(dir)
	must.Succeed(t, err)
	t.Cleanup(func() { lock.Close() })
	must.Succeed(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	packages, err := OpenPackages(t.Context(), dir)
	if errors.Is(err, errUnavailable) {
		t.Skip(strings.Join(strings.Fields(err.Error()), " "))
	}
	must.Succeed(t, err)
	return packages
}

// preparation is what preparing a machine may use, one at a time.
type preparation struct {
	sync.Mutex
	machines []Machine
	packages *Packages
	// disks are the common ones, by architecture.
	disks map[string]*Disk
}

// prepared is a machine ready to be started.
type prepared struct {
	Machine
	boot     Boot
	kernel   Kernel
	emulator string
}

func (p *preparation) prepare(ctx context.Context, dir string, m Machine) (prepared, error) {
	p.Lock()
	defer p.Unlock()
	ready := prepared{Machine: m, boot: Boot{
		Arch: m.Arch, CPUTime: cmp.Or(m.cpuTime, machineCPUTime), Timeout: machineTimeout, MemoryMegabytes: memoryMegabytes,
		ImagePath: filepath.Join(dir, "kernel"), DiskPath: filepath.Join(dir, "disk"),
	}}
	var err error
	if ready.emulator, err = emulatorVersion(ctx, m.Arch); err != nil {
		return ready, err
	}
	if ready.kernel, err = p.packages.FetchKernel(ctx, m.Series, m.Arch); err != nil {
		return ready, err
	}
	common := p.disks[m.Arch]
	if common == nil {
		if common, err = commonDisk(ctx, p.packages, m.Arch, suitesOf(p.machines, m.Arch)); err != nil {
			return ready, err
		}
		p.disks[m.Arch] = common
	}
	unpacked, err := ready.kernel.Unpack(ctx)
	if err != nil {
		return ready, err
	}
	loaded, err := unpacked.ModulesInOrder(ctx, m.modules(), ciphers)
	if err != nil {
		return ready, err
	}
	own := machineDisk(m, loaded)
	if m.hasEngine() {
		ready.boot.MemoryMegabytes += engineMegabytes
		if err := addEngine(ctx, own, p.packages, m.Arch); err != nil {
			return ready, err
		}
	}
	if m.hasOpenFlow() {
		if err := addOpenFlow(ctx, own); err != nil {
			return ready, err
		}
	}
	if m.hasServices() {
		if err := addProxy(ctx, own, p.packages, m.Arch); err != nil {
			return ready, err
		}
	}
	if err := os.WriteFile(ready.boot.ImagePath, unpacked.Image, 0o644); err != nil {
		return ready, err
	}
	return ready, writeDisks(ready.boot.DiskPath, common, own)
}

// writeDisks writes disks one behind the other, as the kernel reads them.
func writeDisks(path string, disks ...*Disk) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, d := range disks {
		if _, err := d.WriteTo(file); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// run runs the tests in the machine, and reports them.
func (p prepared) run(t *testing.T) {
	began := time.Now()
	output, failed := p.boot.Run(t.Context())
	took := time.Since(began).Round(time.Second)
	if dir := os.Getenv(consolesVariable); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, p.Name()), output, 0o644); err != nil {
			t.Error(err)
		}
	}
	console, err := ParseConsole(t.Context(), string(output))
	if err != nil {
		t.Error(err)
	}
	report(t, console)
	for _, problem := range p.unmet(console.leaves()) {
		t.Error(problem)
	}
	if failed != nil || len(console.Problems) > 0 {
		t.Errorf("%v; the machine's last lines were:\n%s", failed, lastLines(string(output), 40))
	}
	record(t, fmt.Sprintf("%s: Linux %s (package %s), cgroups %s, QEMU %s, %d results in %v",
		p.Name(), console.Release, p.kernel.Version, p.Cgroups, p.emulator, len(console.leaves()), took))
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
