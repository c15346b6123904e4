package testbed

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OVS is an Open vSwitch with a network namespace, database, sockets and logs of its own.
type OVS struct {
	dir    string
	kernel bool // bridges use the kernel's datapath
	// Space holds the switch's network namespace.
	Space *Process
	// Database is ovsdb-server.
	Database  *Process
	daemon    *Process   // ovs-vswitchd
	processes []*Process // in the order of their start
}

const (
	ovsSchema   = "/usr/share/openvswitch/vswitch.ovsschema"
	ovsPatience = 30 * time.Second
	ovsPoll     = 50 * time.Millisecond
)

// MissingOVSProgram returns a program that the bed needs and this machine does not have, or "".
func MissingOVSProgram() string {
	for _, program := range []string{"ip", "nsenter", "sleep", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			return program
		}
	}
	return ""
}

// AwaitOVSProcessors waits until the machine has been up for as long as Open vSwitch 3.1 takes to count
// its processors: until then it starts no thread for packets that the kernel has no entry for
// (count_cpu_cores of lib/ovs-thread.c).
func AwaitOVSProcessors() error {
	const counted = 12.0 // seconds
	for {
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			return err
		}
		var up float64
		if _, err := fmt.Sscan(string(text), &up); err != nil || up > counted {
			return err
		}
		time.Sleep(time.Duration((counted - up) * float64(time.Second)))
	}
}

// NewOVS starts Open vSwitch without bridges; its files are in dir. With kernel, bridges use
// the kernel's datapath, which needs the module openvswitch.
func NewOVS(ctx context.Context, dir string, kernel bool) (_ *OVS, err error) {
	o := &OVS{dir: dir, kernel: kernel}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if o.Space, err = o.AddNamespace(ctx); err != nil {
		return nil, err
	}
	if _, err := o.Run(ctx, nil, "ovsdb-tool", "create", o.Path("conf.db"), ovsSchema); err != nil {
		return nil, err
	}
	if err := o.StartDatabase(ctx); err != nil {
		return nil, err
	}
	if _, err := o.Vsctl(ctx, "--no-wait", "init"); err != nil {
		return nil, err
	}
	args := []string{o.DatabaseAddress(), "-vconsole:off", "--log-file=" + o.Path("vswitchd.log")}
	if !kernel {
		args = append(args, "--disable-system")
	}
	if o.daemon, err = o.Start(o.Space, "ovs-vswitchd", args...); err != nil {
		return nil, err
	}
	return o, nil
}

// GoFirst schedules a datapath in user space before all other programs of the machine (SCHED_FIFO): a
// switch has processors of its own. It changes nothing for the kernel's datapath.
func (o *OVS) GoFirst() error {
	if o.kernel {
		return nil
	}
	urgent := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(o.daemon.Pid(), &urgent, 0); err != nil {
		return fmt.Errorf("schedule ovs-vswitchd before other programs: %w", err)
	}
	return nil
}

// Close ends all processes, the last one first.
func (o *OVS) Close() {
	for i := len(o.processes) - 1; i >= 0; i-- {
		_ = o.processes[i].End(syscall.SIGTERM, 10*time.Second)
	}
}

// StartDatabase starts ovsdb-server, and waits until it has its socket.
func (o *OVS) StartDatabase(ctx context.Context) (err error) {
	_ = os.Remove(o.Path("db.sock"))
	o.Database, err = o.Start(o.Space, "ovsdb-server", o.Path("conf.db"), "--remote=p"+o.DatabaseAddress(), "-vconsole:off", "--log-file="+o.Path("ovsdb.log"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ovsPatience)
	defer cancel()
	return o.Database.Await(ctx, ovsPoll, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", o.Path("db.sock")) // the file exists before the server listens
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// Path returns the path of one of its files.
func (o *OVS) Path(name string) string { return filepath.Join(o.dir, name) }

// DatabaseAddress returns where ovsdb-server listens.
func (o *OVS) DatabaseAddress() string { return "unix:" + o.Path("db.sock") }

// ControllerAddress returns where bridges look for their controller.
func (o *OVS) ControllerAddress() string { return "unix:" + o.Path("of.sock") }

// AddNamespace starts a process that holds a network namespace, and waits for that.
func (o *OVS) AddNamespace(ctx context.Context) (*Process, error) {
	cmd := exec.Command("sleep", "86400")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p, err := o.Keep("sleep", cmd)
	if err != nil {
		return nil, err
	}
	_, err = o.Run(ctx, p, "ip", "link", "set", "lo", "up")
	return p, err
}

// AddBridge adds a bridge with settings of its own that waits for its controller.
func (o *OVS) AddBridge(ctx context.Context, name string, settings ...string) error {
	datapath := "datapath_type=netdev"
	if o.kernel {
		datapath = "datapath_type=system"
	}
	args := append([]string{"add-br", name, "--", "set", "bridge", name, datapath, "protocols=OpenFlow13", "fail_mode=secure"}, settings...)
	_, err := o.Vsctl(ctx, append(args, "--", "set-controller", name, o.ControllerAddress(), "--", "set", "controller", name, "max_backoff=1000")...)
	return err
}

// AddHost adds a namespace whose interface eth0 is at a port of a bridge, with an address
// that is given as ip(8) takes it.
func (o *OVS) AddHost(ctx context.Context, bridge, port string, number int, address ...string) (*Process, error) {
	host, err := o.AddNamespace(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		in   *Process
		args []string
	}{
		{o.Space, []string{"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(host.Pid())}},
		{o.Space, []string{"link", "set", port, "up"}},
		{host, []string{"link", "set", "eth0", "up"}},
		{host, append([]string{"address", "add", "dev", "eth0"}, address...)},
	} {
		if _, err := o.Run(ctx, one.in, "ip", one.args...); err != nil {
			return nil, err
		}
	}
	if err := InNetNS(host.NetNSPath(), func() error { return checksumsInSoftware("eth0") }); err != nil {
		return nil, err
	}
	_, err = o.Vsctl(ctx, addPort(bridge, port, number)...)
	return host, err
}

func addPort(bridge, port string, number int) []string {
	return []string{"add-port", bridge, port, "--", "set", "interface", port, fmt.Sprintf("ofport_request=%d", number)}
}

// AddCable connects two bridges, at ports with numbers.
func (o *OVS) AddCable(ctx context.Context, bridgeA, portA string, numberA int, bridgeB, portB string, numberB int) error {
	for _, args := range [][]string{
		{"link", "add", portA, "type", "veth", "peer", "name", portB}, {"link", "set", portA, "up"}, {"link", "set", portB, "up"},
	} {
		if _, err := o.Run(ctx, o.Space, "ip", args...); err != nil {
			return err
		}
	}
	_, err := o.Vsctl(ctx, append(append(addPort(bridgeA, portA, numberA), "--"), addPort(bridgeB, portB, numberB)...)...)
	return err
}

// AddContainer adds a namespace behind a host, which routes and, as an engine does, has it send from the
// host's own address.
func (o *OVS) AddContainer(ctx context.Context, host *Process, number int) (*Process, error) {
	inside, err := o.AddNamespace(ctx)
	if err != nil {
		return nil, err
	}
	device, network := fmt.Sprint("c", number), fmt.Sprintf("198.18.%d.", 70+number)
	for _, one := range []struct {
		in   *Process
		args []string
	}{
		{host, []string{"ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(inside.Pid())}},
		{host, []string{"ip", "link", "set", device, "up"}},
		{host, []string{"ip", "address", "add", network + "1/24", "dev", device}},
		{host, []string{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1"}},
		{host, []string{"iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", network + "0/24", "-o", "eth0", "-j", "MASQUERADE"}},
		{inside, []string{"ip", "link", "set", "eth0", "up"}},
		{inside, []string{"ip", "address", "add", network + "2/24", "dev", "eth0"}},
		{inside, []string{"ip", "route", "add", "default", "via", network + "1"}},
	} {
		if _, err := o.Run(ctx, one.in, one.args[0], one.args[1:]...); err != nil {
			return nil, err
		}
	}
	return inside, nil
}

// Vsctl runs ovs-vsctl.
func (o *OVS) Vsctl(ctx context.Context, args ...string) (string, error) {
	return o.Run(ctx, nil, "ovs-vsctl", append([]string{"--db=" + o.DatabaseAddress(), "--timeout=15"}, args...)...)
}

// Command returns a command in a process's network namespace, or without one in the
// caller's. It keeps Open vSwitch's programs out of the machine's folders.
func (o *OVS) Command(ctx context.Context, in *Process, program string, args ...string) *exec.Cmd {
	cmd := tool(ctx, program, args...)
	if in != nil {
		cmd = commandInNetNS(ctx, in.NetNSPath(), program, args...)
	}
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir, "OVS_SYSCONFDIR="+o.dir)
	return cmd
}

// Run runs a program to its end, as Command does, and returns its output.
func (o *OVS) Run(ctx context.Context, in *Process, program string, args ...string) (string, error) {
	out, err := o.Command(ctx, in, program, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), err
}

// Start starts a program in a process's network namespace that ends with the switch.
func (o *OVS) Start(in *Process, program string, args ...string) (*Process, error) {
	return o.Keep(program, o.Command(context.Background(), in, program, args...))
}

// Keep starts a command that ends with the switch.
func (o *OVS) Keep(name string, cmd *exec.Cmd) (*Process, error) {
	p, err := StartProcess(name, cmd)
	if err == nil {
		o.processes = append(o.processes, p)
	}
	return p, err
}

// checksumsInSoftware has a device's checksums made by the kernel: the userspace
// datapath passes on what the veth would have left to a network card.
func checksumsInSoftware(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("checksum offload of %s: %w", device, errno)
	}
	return nil
}
