//go:build release

package deb

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const (
	bootTimeout    = 90 * time.Second
	commandTimeout = 90 * time.Second
	pollInterval   = 100 * time.Millisecond
	// firstNumber is within what the page has to show something true after `apt install`;
	// the aim is 10 s on a machine that does nothing else.
	firstNumber = 60 * time.Second
)

// debian is a Debian 12 with systemd and Docker on the host of a bed.
type debian struct {
	*harness.Bed
	t    *testing.T
	init int // its first process
}

// TestFreshDebian: on a Debian 12 with Docker, as debootstrap makes it, booted by systemd:
// what apt and systemctl do with the package, and what containers get meanwhile. It takes
// about a minute, besides fetching Debian once.
func TestFreshDebian(t *testing.T) {
	tree := debianTree(t)
	files := map[string]string{}
	for _, program := range programs {
		files["root/newer/"+program+".deb"] = build(t, "1.0.1", program)
		files["root/older/"+program+".deb"] = build(t, "1.0.0", program)
	}
	d := boot(t, tree, files)
	t.Run("a start without configuration proposes one", d.testUnconfigured)
	t.Run("purging leaves nothing", d.testPurge)
	d.startContainers()
	t.Run("from apt install to the first true number", d.testFirstNumber)
	if t.Failed() {
		return
	}
	d.await("shares in force", func() (bool, string) { return d.inForce() })
	t.Run("shares", func(*testing.T) { d.CheckIdeal(tolerance, rateBPS, []uint64{15e6, 5e6}, 3*time.Second) })
	t.Run("the unit", d.testUnit)
	t.Run("the unit of weir-edge", d.testEdgeUnit)
	t.Run("the other programs", d.testSiblings)
	t.Run("the unit of weir-k8s", d.testK8sUnit)
	t.Run("stop, upgrade and downgrade", d.testChanges)
	t.Run("purging puts everything back", d.testPurge)
	d.AwaitTraffic(0, bootTimeout) // and containers go on
}

// debianTree returns the folder of an unused Debian.
func debianTree(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "debian.sh"))
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	const unavailable = 77
	if err != nil && command.ProcessState != nil && command.ProcessState.ExitCode() == unavailable {
		t.Skip(strings.TrimSpace(said.String()))
	}
	if err != nil {
		t.Fatalf("make a Debian: %v: %s", err, said.String())
	}
	return strings.TrimSpace(string(out))
}

// boot boots it with further files, which are given by their place in there.
func boot(t *testing.T, tree string, files map[string]string) *debian {
	t.Helper()
	d := &debian{Bed: harness.NewBed(t, testbed.HostOptions{}), t: t}
	added, work := filepath.Join(d.Dir, "added"), filepath.Join(d.Dir, "work")
	for name, from := range files {
		copyFile(t, filepath.Join(added, name), from)
	}
	pool, _ := d.Host.EnginePools()
	settings, err := json.Marshal(map[string]any{
		"bip":                   d.Host.EngineBridgeCIDR().String(),
		"default-address-pools": []map[string]any{{"base": pool.String(), "size": 24}},
	})
	if err == nil {
		err = os.MkdirAll(filepath.Join(added, "etc", "docker"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(added, "etc", "docker", "daemon.json"), settings, 0o644)
	}
	if err == nil {
		err = os.Mkdir(work, 0o755)
	}
	must.Succeed(t, err)
	writeImage(t, filepath.Join(added, "root", "image.tar"))

	script, err := filepath.Abs("boot.sh")
	must.Succeed(t, err)
	group := newCgroup(t)
	// Not the test's context: it ends before the clean-up.
	command := d.Host.Command(context.Background(), "unshare", "--mount", "--uts", "--ipc", "--pid", "--cgroup",
		"--fork", "--kill-child", "bash", script, tree, work, added)
	var said strings.Builder
	command.Stdout, command.Stderr = &said, &said
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL,
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
			close(ended)
		}
	}()
	must.Succeed(t, <-started)
	t.Cleanup(func() {
		if t.Failed() {
			journal, _ := d.try("journalctl", "--no-pager", "-n", "40", "-u", "weir", "-u", "weir-edge", "-u", "weir-k8s", "-u", "docker")
			t.Logf("the journal ends with\n%s\nand the console with %s", journal, said.String())
		}
		_ = command.Process.Kill()
		<-ended
	})
	d.await("systemd up", func() (bool, string) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", command.Process.Pid))
		if _, scanErr := fmt.Sscan(string(children), &d.init); err != nil || scanErr != nil {
			return false, said.String()
		}
		state, _ := d.try("systemctl", "is-system-running")
		return strings.TrimSpace(state) == "running" || strings.TrimSpace(state) == "degraded", state + said.String()
	})
	d.await("the engine up", func() (bool, string) {
		state, err := d.try("docker", "info")
		return err == nil, state
	})
	return d
}

// newCgroup makes a cgroup of version 2 until the test ends. Leaks of it are found by its
// name.
func newCgroup(t *testing.T) *os.File {
	t.Helper()
	root, err := cgroup.FindRoot("/proc")
	if err != nil {
		t.Skipf("systemd needs cgroups of version 2: %v", err)
	}
	path := filepath.Join(root, fmt.Sprintf("weir-test-%d-%08x-debian", os.Getpid(), time.Now().UnixNano()&math.MaxUint32))
	must.Succeed(t, os.Mkdir(path, 0o755))
	group, err := os.Open(path)
	must.Succeed(t, err)
	t.Cleanup(func() {
		group.Close()
		deadline := time.Now().Add(10 * time.Second) // for processes to be gone
		for err := testbed.RemoveCgroup(path); err != nil; err = testbed.RemoveCgroup(path) {
			if time.Now().After(deadline) {
				t.Error(err)
				return
			}
			time.Sleep(pollInterval)
		}
	})
	return group
}

// try runs a command in the Debian.
func (d *debian) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	enter := []string{"--target", fmt.Sprint(d.init), "--all", "env", "-i", "LC_ALL=C", "HOME=/root",
		"DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := exec.CommandContext(ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return string(out), err
}

// must is try for a command that has to succeed.
func (d *debian) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.try(args...)
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// shell is must for a line of a shell.
func (d *debian) shell(t *testing.T, line string) string {
	t.Helper()
	return d.must(t, "sh", "-c", line)
}

func (d *debian) await(what string, is func() (bool, string)) {
	d.t.Helper()
	d.Await(what, bootTimeout, is)
}

// startContainers starts two containers that send, to the slots 0 and 1.
func (d *debian) startContainers() {
	d.must(d.t, "docker", "import", "/root/image.tar", "sender")
	for slot, weight := range []int{300, 100} {
		args := []string{"docker", "run", "-d", "--name", names[slot], "--label", fmt.Sprintf("weir.weight=%d", weight), "sender"}
		d.must(d.t, append(args, sending(d.Target(slot, false))...)...)
	}
}

func (d *debian) testUnconfigured(t *testing.T) {
	said := d.must(t, "apt-get", "install", "-y", "/root/older/weir.deb")
	accept := "weir agent --propose >/etc/weir/weir.yaml && systemctl start weir"
	if !strings.Contains(said, "uplink: "+d.Host.UplinkName) || !strings.Contains(said, accept) {
		t.Errorf("apt says %s", said)
	}
	if said, err := d.try("systemctl", "start", "weir"); err == nil {
		t.Errorf("it starts without a configuration: %s", said)
	}
	status, _ := d.try("systemctl", "status", "--no-pager", "--full", "weir")
	for _, want := range []string{"uplink: " + d.Host.UplinkName, accept, "status=78"} {
		if !strings.Contains(status, want) {
			t.Errorf("systemctl status lacks %q: %s", want, status)
		}
	}
}

// testFirstNumber: the page shows what the containers get, and that is what they should.
func (d *debian) testFirstNumber(t *testing.T) {
	began := time.Now()
	d.must(t, "apt-get", "install", "-y", "/root/older/weir.deb")
	d.shell(t, "weir agent --propose >/etc/weir/weir.yaml")
	// As an administrator who knows the link: its end sends no more than that.
	d.shell(t, "sed -i 's/^rate: .*/rate: 20mbit/' /etc/weir/weir.yaml")
	d.must(t, "systemctl", "start", "weir")
	d.Await("a true number on the page", firstNumber, func() (bool, string) {
		now, err := d.page()
		shown := byName(now.Containers)
		return err == nil && within(shown["heavy"].RateBPS, 15e6) && within(shown["light"].RateBPS, 5e6), fmt.Sprint(shown, err)
	})
	t.Logf("from apt install to the first true number on the page: %.1f s", time.Since(began).Seconds())
}

// within is for what was measured in one second.
func within(got uint64, want float64) bool { return math.Abs(float64(got)-want) <= 2*tolerance*want }

// page is what the dashboard of the Debian shows.
func (d *debian) page() (v1.Snapshot, error) {
	var now v1.Snapshot
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = testbed.InNetNS(d.Host.NetNSPath(), func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:7480/v1/snapshot", nil)
	if err != nil {
		return now, err
	}
	response, err := client.Do(request)
	if err != nil {
		return now, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return now, errors.New(response.Status)
	}
	return now, json.NewDecoder(response.Body).Decode(&now)
}

// containers are those that weir ps shows, by name.
func (d *debian) containers() (map[string]v1.Container, error) {
	out, err := d.try("weir", "ps", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list []v1.Container
	err = json.Unmarshal([]byte(out), &list)
	return byName(list), err
}

func byName(list []v1.Container) map[string]v1.Container {
	found := map[string]v1.Container{}
	for _, c := range list {
		found[c.Name] = c
	}
	return found
}

// inForce says whether both containers are controlled.
func (d *debian) inForce() (bool, string) {
	shown, err := d.containers()
	return err == nil && shown["heavy"].State == v1.StateOK && shown["light"].State == v1.StateOK, fmt.Sprint(shown, err)
}

// testUnit: what the agent does works under the unit's restrictions.
func (d *debian) testUnit(t *testing.T) {
	if state := d.must(t, "systemctl", "is-active", "weir"); strings.TrimSpace(state) != "active" {
		t.Errorf("it is %s", state)
	}
	if doctor := d.must(t, "weir", "doctor"); !strings.Contains(doctor, "1.0.0 shares out "+d.Host.UplinkName) {
		t.Errorf("weir doctor says %s", doctor)
	}
	for _, rate := range []string{"16", "20"} {
		d.shell(t, "sed -i 's/^rate: .*/rate: "+rate+"mbit/' /etc/weir/weir.yaml")
		d.must(t, "systemctl", "reload", "weir")
		d.await("the file read again", func() (bool, string) {
			now, err := d.page()
			return err == nil && fmt.Sprint(now.Status.RateBPS) == rate+"000000", fmt.Sprint(now.Status, err)
		})
	}
	d.shell(t, "cp /etc/weir/weir.yaml /tmp/good.yaml && echo 'rate: fast' >>/etc/weir/weir.yaml && ! systemctl reload weir && cp /tmp/good.yaml /etc/weir/weir.yaml")
	d.must(t, "weir", "flows")
	d.must(t, "weir", "explain", "heavy")
	if score := d.must(t, "systemd-analyze", "security", "--no-pager", "weir"); !strings.Contains(score, "exposure level") {
		t.Errorf("systemd-analyze says %s", score)
	} else {
		lines := strings.Split(strings.TrimSpace(score), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// testSiblings: weir names the package that a command is in, and runs it once that is there.
func (d *debian) testSiblings(t *testing.T) {
	for command, name := range map[string]string{"bench": "weir-lab", "sdn": "weir-sdn"} {
		if said, err := d.try("weir", command, "--help"); !strings.Contains(said, "install the package "+name) {
			t.Errorf("without %s: %s, %v", name, said, err)
		}
		d.must(t, "apt-get", "install", "-y", "/root/older/"+name+".deb")
		if help := d.must(t, "weir", command, "--help"); !strings.Contains(help, "weir "+command) {
			t.Errorf("weir %s --help prints %s", command, help)
		}
	}
	d.must(t, "systemctl", "start", "weir-sdn")
	d.await("the controller answers", func() (bool, string) {
		said, err := d.try("weir", "sdn", "ps")
		return err == nil, said
	})
	d.must(t, "systemctl", "stop", "weir-sdn")
}

// testK8sUnit: the unit of weir-k8s starts on request only, fails for a wrong option, and waits for a
// runtime with NRI, which this Debian's is not.
func (d *debian) testK8sUnit(t *testing.T) {
	d.must(t, "apt-get", "install", "-y", "/root/older/weir-k8s.deb")
	if state, _ := d.try("systemctl", "is-enabled", "weir-k8s"); strings.TrimSpace(state) != "disabled" {
		t.Errorf("after the installation it is %s", state)
	}
	d.shell(t, "echo OPTIONS=--hard >/etc/weir/k8s.env")
	_, _ = d.try("systemctl", "start", "weir-k8s")
	d.await("weir-k8s ended for good", func() (bool, string) {
		state, _ := d.try("systemctl", "is-failed", "weir-k8s")
		return strings.TrimSpace(state) == "failed", state
	})
	d.shell(t, "echo OPTIONS=--hard-admission >/etc/weir/k8s.env")
	d.must(t, "systemctl", "restart", "weir-k8s")
	d.await("weir-k8s waits for the runtime", func() (bool, string) {
		journal, err := d.try("journalctl", "--no-pager", "-u", "weir-k8s")
		return err == nil && strings.Contains(journal, "nothing answers on /var/run/nri/nri.sock"), journal
	})
	lines := strings.Split(strings.TrimSpace(d.must(t, "systemd-analyze", "security", "--no-pager", "weir-k8s")), "\n")
	t.Log(lines[len(lines)-1])
	d.must(t, "systemctl", "stop", "weir-k8s")
}

// testEdgeUnit: the unit of weir-edge starts on request only, names a mistake in its file, and
// under its restrictions reaches the engine, the agent and the repository.
func (d *debian) testEdgeUnit(t *testing.T) {
	d.must(t, "apt-get", "install", "-y", "/root/older/weir-edge.deb")
	if state, _ := d.try("systemctl", "is-enabled", "weir-edge"); strings.TrimSpace(state) != "disabled" {
		t.Errorf("after the installation it is %s", state)
	}
	d.shell(t, "echo 'dashboard: 0.0.0.0:7483' >/etc/weir/edge.yaml")
	_, _ = d.try("systemctl", "start", "weir-edge")
	d.await("weir-edge ended for good", func() (bool, string) {
		state, _ := d.try("systemctl", "is-failed", "weir-edge")
		return strings.TrimSpace(state) == "failed", state
	})
	if journal := d.must(t, "journalctl", "--no-pager", "-u", "weir-edge"); !strings.Contains(journal, "edge.yaml:1: dashboard") {
		t.Errorf("it says %s", journal)
	}
	d.shell(t, "printf 'dashboard: 127.0.0.1:7483\nrepository: {address: 127.0.0.1:7482}\n' >/etc/weir/edge.yaml")
	d.must(t, "systemctl", "restart", "weir-edge")
	d.await("weir-edge knows this host", func() (bool, string) {
		var nodes []edge.Node
		out, err := d.try("weir-edge", "nodes", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &nodes)
		}
		return err == nil && len(nodes) == 1 && nodes[0].State == "ready" && nodes[0].UplinkBPS == rateBPS && nodes[0].MemoryBytes > 0 && nodes[0].DiskFreeBytes > 0, out
	})
	said, err := d.try("sh", "-c", `echo '{"imageName": "sender", "port_host": "8080", "port_container": "80"}' | weir-edge deploy -`)
	if err == nil || !strings.Contains(said, "apt-get install haproxy") {
		t.Errorf("deployed without HAProxy: %v, %s", err, said)
	}
	lines := strings.Split(strings.TrimSpace(d.must(t, "systemd-analyze", "security", "--no-pager", "weir-edge")), "\n")
	t.Log(lines[len(lines)-1])
	d.must(t, "systemctl", "stop", "weir-edge")
}

// testChanges: through every change of the agent, containers keep their shares, and what was
// set stays set.
func (d *debian) testChanges(t *testing.T) {
	d.must(t, "weir", "set", "light", "--weight", "300")
	tree := d.queueing()
	for _, step := range []struct{ what, command, version string }{
		{"restart", "systemctl stop weir && systemctl start weir", "1.0.0"},
		{"upgrade", "apt-get install -y /root/newer/weir.deb /root/newer/weir-lab.deb", "1.0.1"},
		{"downgrade", "apt-get install -y --allow-downgrades /root/older/weir.deb /root/older/weir-lab.deb", "1.0.0"},
	} {
		t.Run(step.what, func(t *testing.T) {
			d.shell(t, step.command)
			if version := d.must(t, "weir", "--version"); !strings.Contains(version, step.version) {
				t.Errorf("it is %s", version)
			}
			if version := d.must(t, "weir-lab", "--version"); !strings.Contains(version, step.version) {
				t.Errorf("weir-lab is %s", version)
			}
			// The agent itself, and not only the program.
			d.await("the agent of that version", func() (bool, string) {
				now, err := d.page()
				return err == nil && now.Status.Version == step.version, fmt.Sprint(now.Status, err)
			})
			d.await("shares in force", d.inForce)
			shown, err := d.containers()
			if err != nil || shown["heavy"].Policy.Weight != 300 || shown["light"].Policy.Weight != 300 {
				t.Errorf("%+v, %v", shown, err)
			}
			if now := d.queueing(); now != tree {
				t.Errorf("the queueing was made anew: before\n%sand now\n%s", tree, now)
			}
			d.CheckIdeal(tolerance, rateBPS, []uint64{10e6, 10e6}, 2*time.Second)
		})
	}
}

// packetCount is what `tc qdisc show` prints of packets that came since.
var packetCount = regexp.MustCompile(`direct_packets_stat \d+`)

// queueing is what queues the uplink has, with their handles.
func (d *debian) queueing() string {
	return packetCount.ReplaceAllString(d.Run("tc", "qdisc", "show", "dev", d.Host.UplinkName), "")
}

// testPurge: nothing of Weir is left in the Debian, nor on the uplink.
func (d *debian) testPurge(t *testing.T) {
	d.shell(t, `apt-get purge -y $(dpkg-query -W -f '${Package} ' 'weir*')`)
	if left := d.shell(t, "find / -xdev -name '*weir*' -not -path '/var/log/*' -not -path '/root/*'"); left != "" {
		t.Errorf("left: %s", left)
	}
	if left := d.shell(t, "find /run /sys/fs/bpf -name '*weir*' -not -path '/run/systemd/journal/*'"); left != "" {
		t.Errorf("left: %s", left)
	}
	if tree := d.Run("tc", "qdisc", "show", "dev", d.Host.UplinkName); strings.Contains(tree, "htb") || strings.Contains(tree, "clsact") {
		t.Errorf("the uplink has %s", tree)
	}
	if programs := d.Programs("weir_uplink"); len(programs) > 0 {
		t.Errorf("left: %v", programs)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	must.Succeed(t, err)
}

// writeImage writes the files of an image that has busybox.
func writeImage(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("busybox is not installed: make deps")
	}
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := os.Create(path)
	must.Succeed(t, err)
	archive := tar.NewWriter(file)
	err = archive.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(data))})
	if err == nil {
		_, err = archive.Write(data)
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = file.Close()
	}
	must.Succeed(t, err)
}
