package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Boot is a machine about to be started.
type Boot struct {
	Arch                string
	ImagePath, DiskPath string
	// CPUTime, in whole seconds, and Timeout are how long it may run, in this machine's
	// processor time and by its clock.
	CPUTime, Timeout time.Duration
	MemoryMegabytes  int
}

// bootOptions keep the console for the tests, end a machine whose kernel has
// failed, and spare it what is expensive to emulate and protects nothing here.
const bootOptions = "quiet loglevel=1 panic=-1 oops=panic random.trust_cpu=on mitigations=off init_on_alloc=0"

// memoryMegabytes holds the disk twice while it is unpacked, and engineMegabytes
// two engines and their programs besides.
const (
	memoryMegabytes = 1024
	engineMegabytes = 768
)

// machinesAtOnce is how many machines run at a time: each takes a processor and, with
// QEMU's own, up to two gigabytes; other suites beside are left three.
func machinesAtOnce(processors int, memoryBytes uint64) int {
	const machineMegabytes, otherMegabytes = 2 << 10, 3 << 10
	return max(1, min(processors, (int(memoryBytes>>20)-otherMegabytes)/machineMegabytes))
}

// qemu is the emulator of an architecture, what it is told about the machine, and
// what the kernel is: the console's name, first of all.
func qemu(arch string) (program string, args []string, options string) {
	switch arch {
	case "arm64":
		return "qemu-system-aarch64", []string{"-machine", "virt", "-cpu", "cortex-a72"}, "console=ttyAMA0"
	case armhf:
		return "qemu-system-arm", []string{"-machine", "virt", "-cpu", "cortex-a15"}, "console=ttyAMA0"
	}
	// String instructions are slower to emulate than loops, so no program is to think
	// that they are fast here.
	return "qemu-system-x86_64", []string{"-machine", "pc", "-cpu", "max,erms=off,fsrm=off"}, "console=ttyS0 clearcpuid=rep_good"
}

// Run boots a machine and returns what it printed until it switched itself
// off. It never outlives this process.
func (b Boot) Run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	program, args, options := qemu(b.Arch)
	args = append(args,
		"-accel", "tcg", "-icount", "shift=0,sleep=off", "-smp", "1",
		"-m", fmt.Sprint(b.MemoryMegabytes),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", b.ImagePath, "-initrd", b.DiskPath,
		"-append", options+" "+bootOptions)
	cmd := exec.CommandContext(ctx, program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// The signal comes when the thread that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		// Killed at once: a signal before that would leave a core.
		seconds := uint64(b.CPUTime.Seconds())
		err = errors.Join(unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil), cmd.Wait())
	}
	switch state := cmd.ProcessState; {
	case err == nil:
		return output.Bytes(), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("still running after %v", b.Timeout)
	case state != nil && state.UserTime()+state.SystemTime() >= b.CPUTime:
		err = fmt.Errorf("still running after %v of a processor", b.CPUTime)
	}
	return output.Bytes(), fmt.Errorf("run %s: %w", program, err)
}
