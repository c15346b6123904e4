//go:build docker

package deb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/packaging"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// TestImage: the agent in a container of its own image, with what docs/user-guide.md says
// that it is given, controls the other containers of its engine.
func TestImage(t *testing.T) {
	archive := fileIn(t, release(t, "image.sh", "1.2.3+4"), "*.tar")
	b := harness.NewBed(t, testbed.HostOptions{})
	local, _ := b.Host.EnginePools()
	engine, err := testbed.StartEngine(t.Context(), testbed.EngineOptions{
		NetNSPath: b.Host.NetNSPath(), BridgeCIDR: b.Host.EngineBridgeCIDR().String(), AddressPool: local.String(),
	})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	docker := func(args ...string) string {
		t.Helper()
		out, err := engine.Command("timeout", append([]string{"120", "docker", "-H", "unix://" + engine.Socket()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if loaded := docker("load", "-i", archive); !strings.Contains(loaded, "weir:1.2.3-4") {
		t.Fatalf("docker load says %s", loaded)
	}
	if version := docker("run", "--rm", "weir:1.2.3-4", "--version"); !strings.Contains(version, "1.2.3+4") {
		t.Errorf("it is %s", version)
	}

	settings := filepath.Join(b.Dir, "etc")
	run := filepath.Join(b.Dir, "run")
	for _, dir := range []string{settings, run} {
		must.Succeed(t, os.Mkdir(dir, 0o755))
	}
	text := fmt.Sprintf("uplink: %s\nrate: 20mbit\n", b.Host.UplinkName)
	must.Succeed(t, os.WriteFile(filepath.Join(settings, "weir.yaml"), []byte(text), 0o644))
	args := []string{"run", "--detach", "--name", "weir", "--network", "host", "--pid", "host", "--cgroupns", "host",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp"}
	capabilities, err := packaging.Setting("CapabilityBoundingSet")
	must.Succeed(t, err)
	for _, name := range strings.Fields(capabilities) {
		if name == "CAP_BPF" || name == "CAP_PERFMON" {
			continue // parts of CAP_SYS_ADMIN that older engines have no name for
		}
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); name == "CAP_SYS_RESOURCE" && (err != nil || has == 0) {
			t.Log("this machine has no CAP_SYS_RESOURCE to give: without it")
			continue
		}
		args = append(args, "--cap-add", strings.TrimPrefix(name, "CAP_"))
	}
	// On a host that systemd has started, mounts of /run are shared; the engine's of this
	// test, in a mount namespace of its own, are not.
	must.Succeed(t, engine.ShareMounts("/run"))
	docker(append(args, "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--volume", settings+":/etc/weir:ro", "--volume", run+":/run/weir", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:ro",
		"--volume", engine.Socket()+":/var/run/docker.sock", "--volume", "/run/docker/netns:/run/docker/netns:ro,rslave",
		"weir:1.2.3-4")...)

	must.Succeed(t, engine.ImportBinary(t.Context(), "sender", nil))
	for slot, weight := range []string{"300", "100"} {
		_, err := engine.Run(t.Context(), testbed.RunOptions{
			Name: names[slot], Image: "sender", Labels: map[string]string{"weir.weight": weight}, Args: sending(b.Target(slot, false)),
		})
		must.Succeed(t, err)
	}
	agent := client.Unix(filepath.Join(run, "weir.sock"))
	defer agent.Close()
	b.Await("both under control", time.Minute, func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := agent.Containers(ctx)
		ok := 0
		for _, c := range list {
			if (c.Name == "heavy" || c.Name == "light") && c.State == v1.StateOK {
				ok++
			}
		}
		said, _ := engine.Command("docker", "-H", "unix://"+engine.Socket(), "logs", "weir").CombinedOutput()
		return ok == 2, fmt.Sprint(list, err, string(said))
	})
	b.WarmUp() // the senders are TCP
	b.CheckIdeal(tolerance, rateBPS, []uint64{15e6, 5e6}, 2*time.Second)

	// What it remembers and what is in the kernel outlive the container.
	if out := docker("exec", "weir", "weir", "set", "light", "--weight", "300"); strings.Contains(out, "refused") {
		t.Error(out)
	}
	docker("restart", "weir")
	b.Await("what was set", time.Minute, func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := agent.Containers(ctx)
		for _, c := range list {
			if c.Name == "light" && c.State == v1.StateOK && c.Policy.Weight == 300 {
				return true, ""
			}
		}
		return false, fmt.Sprint(list, err)
	})
	b.CheckIdeal(tolerance, rateBPS, []uint64{10e6, 10e6}, 2*time.Second)
	docker("exec", "weir", "weir", "down")
	if tree := b.Run("tc", "qdisc", "show", "dev", b.Host.UplinkName); strings.Contains(tree, "htb") {
		t.Errorf("weir down leaves %s", tree)
	}
}
