// Package vm runs Weir's own tests on other kernels, in virtual machines.
//
// A machine is QEMU with a kernel of Debian's and an initial RAM disk that
// holds everything: the modules, a shell, the tools that the tests drive, a
// container engine where they take one, weir and the compiled tests. Inside,
// guest/init runs the tests and prints what they say on the serial console, from
// which every one is reported as a test of its own. Nothing needs root, a network
// or a disk image.
//
//   - matrix.go: which kernels, and which tests on each. Look there first.
//   - packages.go: kernels from the mirror that this machine's apt uses.
//   - kernel.go, modules.go: what of a package is needed.
//   - build.go, disk.go: what is on the initial RAM disk, and its format.
//   - machine.go: QEMU, bounded in time.
//   - console.go: what the tests in there said.
//
// Machines are emulated (TCG), also where there is KVM. By themselves
// they would be short of processor time whenever this machine is, and every
// measurement of a rate would be one of luck. So QEMU counts instructions
// (-icount): the guest's clock advances by one nanosecond with every
// instruction, and jumps to the next timer when the guest has nothing to do. To
// the guest, that is a slow processor of which it always has all. What it
// measures does not depend on how busy this machine is; only how long it takes
// does.
package vm
