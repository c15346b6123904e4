//go:build netns

package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/test/must"
)

// What is probed for is there or not as the kernel itself says.
func TestProbeLink(t *testing.T) {
	for _, kind := range []string{"veth", "vxlan", "macvlan"} {
		if err := ProbeLink(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := ProbeLink("no-such-kind"); err == nil {
		t.Error("a kind that there is not was found")
	}
	// ipvlan is optional: what the probe says is what ip-link finds.
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	run := func(args ...string) error { return exec.Command("ip", args...).Run() }
	must.Succeed(t, run("netns", "add", name))
	t.Cleanup(func() { _ = run("netns", "del", name) })
	must.Succeed(t, run("-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb"))
	has := run("-n", name, "link", "add", "vc", "link", "va", "type", "ipvlan", "mode", "l2") == nil
	if probed := ProbeLink("ipvlan"); (probed == nil) != has {
		t.Errorf("ipvlan: %v, while ip-link says %v", probed, has)
	}
}

func TestLookUpCgroup(t *testing.T) {
	mount, err := cgroup.FindRoot("/proc")
	must.Succeed(t, err)
	dir, err := os.MkdirTemp(mount, "weir-test-")
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	root, err := LookUpCgroup(mount)
	if err != nil || root.Level != 0 {
		t.Errorf("the root: %+v, %v", root, err)
	}
	cgroup, err := LookUpCgroup(dir)
	if err != nil || cgroup.Level != 1 || cgroup.ID == root.ID {
		t.Errorf("a cgroup below the root: %+v, %v", cgroup, err)
	}
}

// A program in another namespace is entered, and left.
func TestInNetNS(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	path := "/run/netns/" + name
	want, err := NetNSIdentity(path)
	must.Succeed(t, err)
	outside, err := NetNSIdentity(CurrentNetNS)
	must.Succeed(t, err)
	failure := errors.New("failure")
	err = InNetNS(path, func() error {
		if inside, err := NetNSIdentity(CurrentNetNS); err != nil || inside != want {
			t.Errorf("inside: %v, %v, want %v", inside, err, want)
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("the function's error: %v", err)
	}
	if after, err := NetNSIdentity(CurrentNetNS); err != nil || after != outside {
		t.Errorf("outside: %v, %v, want %v", after, err, outside)
	}
	found := false
	for candidate := range NetNSPaths() {
		if id, err := NetNSIdentity(candidate); err == nil {
			found = found || id == want
			if id == outside {
				t.Errorf("%s is the current namespace", candidate)
			}
		}
	}
	if !found {
		t.Error("the namespace is not listed")
	}

	// What is not a namespace.
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	fifo := filepath.Join(t.TempDir(), "fifo")
	must.Succeed(t, unix.Mkfifo(fifo, 0o600))
	start := time.Now()
	for _, path := range []string{file, fifo, file + "-gone"} {
		if err := InNetNS(path, func() error { return nil }); !errors.Is(err, ErrNoNetNS) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// On kernels without tcx programs are filters, in other namespaces too.
func TestFilterInNetNS(t *testing.T) {
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	must.Succeed(t, exec.Command("ip", "netns", "add", name).Run())
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "weir_test", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	must.Succeed(t, err)
	defer program.Close()
	info, err := program.Info()
	must.Succeed(t, err)
	want, _ := info.ID()
	qdiscs := func() string {
		out, err := exec.Command("tc", "-n", name, "qdisc", "show", "dev", "lo").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, egress := range []bool{false, true} {
		err := InNetNS("/run/netns/"+name, func() error {
			hook := Hook{Ifindex: 1, Egress: egress}
			if err := hook.attachFilter(program, filterHandle); err != nil {
				return err
			}
			filters, err := hook.filters()
			if err != nil || len(filters) != 1 || filters[0].id != want {
				return fmt.Errorf("filters %v, %w, want one of program %d", filters, err, want)
			}
			if !strings.Contains(qdiscs(), "clsact") {
				return fmt.Errorf("no clsact in the namespace: %s", qdiscs())
			}
			return hook.removeFilter(filters[0].filter)
		})
		if err != nil {
			t.Error(err)
		}
		if left := qdiscs(); strings.Contains(left, "clsact") {
			t.Errorf("left behind: %s", left)
		}
	}

	// A filter of another kind with the same preference refuses ours; the program comes first by tcx.
	if ProbeTCX() != nil {
		return
	}
	for _, args := range []string{"qdisc add dev lo clsact", "filter add dev lo ingress pref 1 protocol all u32 match u32 0 0"} {
		out, err := exec.Command("tc", append([]string{"-n", name}, strings.Fields(args)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tc %s: %v: %s", args, err, out)
		}
	}
	must.Succeed(t, Hook{NetNSPath: "/run/netns/" + name, Ifindex: 1}.Attach(program, nil))
}
