package testbed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// toolTimeout bounds every single run of ip, iptables and sysctl.
const toolTimeout = 10 * time.Second

// NetNSDir is where iproute2 keeps network namespaces by name.
const NetNSDir = "/run/netns"

// Attachment is how a Host's containers reach its uplink.
type Attachment int

const (
	// AttachNAT: a bridge and masquerading, as Docker's default network. The
	// neighbour sees the host's address only.
	AttachNAT Attachment = iota
	// AttachRouted: a bridge and routing; the neighbour sees the containers'
	// addresses.
	AttachRouted
	// AttachBridged: the uplink is a port of the containers' bridge.
	AttachBridged
	// AttachNATBridged: as AttachNAT, and the uplink is a port of another bridge, which has the
	// host's address and routes, as on Proxmox.
	AttachNATBridged
)

// The names of the interfaces in a Host.
const (
	uplinkName    = "uplink"
	neighbourName = "neighbour"
	bridgeName    = "containers"
	lanName       = "lan" // the bridge of AttachNATBridged
)

// HostOptions says what kind of host to make. The zero value is useful.
type HostOptions struct {
	Attachment Attachment
	Link       LinkKind
}

// Host is a machine made of network namespaces: a container host, its
// neighbour ("peer") and the link between them, a veth pair. Addresses come
// from 198.18.0.0/15, the range for benchmarks (RFC 2544), where the machine
// has no route yet.
type Host struct {
	// UplinkName is the interface in the host towards the neighbour.
	UplinkName string
	// PeerInterface is the neighbour's end of the link.
	PeerInterface string
	// PeerAddr and PeerAddr6 are the neighbour's addresses.
	PeerAddr, PeerAddr6 netip.Addr

	options   HostOptions
	name      string
	addresses addressPlan

	mu         sync.Mutex
	namespaces []string // as made; Close removes them from the last to the first
	cgroups    []string // as made
	interfaces int      // of containers, so far

	overlayMu    sync.Mutex
	overlayBuilt bool
}

// NewHost makes a host and its neighbour. On failure nothing stays behind. The
// first one of a process removes what others left that were killed.
func NewHost(ctx context.Context, options HostOptions) (*Host, error) {
	removeStaleOnce.Do(func() { removeStale(ctx) })
	h, err := planHost(options)
	if err != nil {
		return nil, err
	}
	if err := h.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make a test host: %w", err), h.Close())
	}
	return h, nil
}

// planHost picks the names and addresses of a host and makes nothing.
func planHost(options HostOptions) (*Host, error) {
	plan, err := newAddressPlan()
	if err != nil {
		return nil, err
	}
	suffix := make([]byte, 4)
	if _, err := rand.Read(suffix); err != nil {
		return nil, fmt.Errorf("name a test host: %w", err)
	}
	return &Host{
		UplinkName:    uplinkName,
		PeerInterface: neighbourName,
		PeerAddr:      plan.peer4.Addr(),
		PeerAddr6:     plan.peer6.Addr(),
		options:       options,
		name:          hostName(hex.EncodeToString(suffix)),
		addresses:     plan,
	}, nil
}

func (h *Host) hostNS() string { return h.name + "-host" }
func (h *Host) peerNS() string { return h.name + "-peer" }

// NetNSPath is the host's network namespace.
func (h *Host) NetNSPath() string { return NetNSDir + "/" + h.hostNS() }

// PeerNetNSPath is the neighbour's network namespace.
func (h *Host) PeerNetNSPath() string { return NetNSDir + "/" + h.peerNS() }

// BridgeName is the host's bridge of containers.
func (h *Host) BridgeName() string { return bridgeName }

// EngineBridgeCIDR is an unused address of the host and its subnet, for the
// default bridge of a container engine.
func (h *Host) EngineBridgeCIDR() netip.Prefix { return h.addresses.engineBridge }

// EngineAddressPool is an unused range for a container engine's networks.
func (h *Host) EngineAddressPool() netip.Prefix { return h.addresses.enginePool }

// Command makes a command that runs in the host's network namespace, and in
// the caller's for everything else, so that cgroup mounts stay visible.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return commandInNetNS(ctx, h.NetNSPath(), name, args...)
}

// PeerCommand is Command for the neighbour.
func (h *Host) PeerCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return commandInNetNS(ctx, h.PeerNetNSPath(), name, args...)
}

func commandInNetNS(ctx context.Context, path, name string, args ...string) *exec.Cmd {
	return tool(ctx, "nsenter", append([]string{"--net=" + path, "--", name}, args...)...)
}

// build makes the namespaces and the link.
func (h *Host) build(ctx context.Context) error {
	if err := h.addNamespace(ctx, h.hostNS()); err != nil {
		return err
	}
	if err := h.addNamespace(ctx, h.peerNS()); err != nil {
		return err
	}
	host, peer, plan := h.hostNS(), h.peerNS(), h.addresses
	if err := h.buildLink(ctx); err != nil {
		return err
	}
	if err := h.buildBridge(ctx); err != nil {
		return err
	}
	addressed := h.addressedName()
	if addressed != uplinkName {
		if err := runTool(ctx, "ip", "-n", host, "link", "set", uplinkName, "master", addressed); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"-n", host, "link", "set", uplinkName, "up"},
		{"-n", peer, "link", "set", neighbourName, "up"},
		{"-n", host, "addr", "add", plan.host4.String(), "dev", addressed},
		{"-n", host, "-6", "addr", "add", plan.host6.String(), "dev", addressed, "nodad"},
		{"-n", peer, "addr", "add", plan.peer4.String(), "dev", neighbourName},
		{"-n", peer, "-6", "addr", "add", plan.peer6.String(), "dev", neighbourName, "nodad"},
		{"-n", host, "route", "add", "default", "via", plan.peer4.Addr().String()},
		{"-n", host, "-6", "route", "add", "default", "via", plan.peer6.Addr().String()},
		{"-n", peer, "route", "add", "default", "via", plan.host4.Addr().String()},
		{"-n", peer, "-6", "route", "add", "default", "via", plan.host6.Addr().String()},
	} {
		if err := runTool(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return h.forward(ctx)
}

// addressedName is the device that has the host's address and routes.
func (h *Host) addressedName() string {
	switch h.options.Attachment {
	case AttachBridged:
		return bridgeName
	case AttachNATBridged:
		return lanName
	}
	return uplinkName
}

// buildBridge makes the containers' bridge, and the uplink's if that is another.
func (h *Host) buildBridge(ctx context.Context) error {
	ns, plan := h.hostNS(), h.addresses
	commands := [][]string{
		// With an address of its own: otherwise it takes the lowest of its
		// ports', and what containers know of it is wrong when one joins.
		{"-n", ns, "link", "add", bridgeName, "address", plan.bridgeMAC, "type", "bridge"},
		{"-n", ns, "link", "set", bridgeName, "up"},
	}
	if h.options.Attachment == AttachNATBridged {
		commands = append(commands,
			[]string{"-n", ns, "link", "add", lanName, "type", "bridge"},
			[]string{"-n", ns, "link", "set", lanName, "up"})
	}
	if h.options.Attachment != AttachBridged {
		commands = append(commands,
			[]string{"-n", ns, "addr", "add", plan.bridge4.String(), "dev", bridgeName},
			[]string{"-n", ns, "-6", "addr", "add", plan.bridge6.String(), "dev", bridgeName, "nodad"})
	}
	for _, args := range commands {
		if err := runTool(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// forward makes the host a router and, where wanted, a NAT.
func (h *Host) forward(ctx context.Context) error {
	enter := []string{"--net=" + h.NetNSPath(), "--"}
	commands := [][]string{{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}}
	if h.options.Attachment == AttachNAT || h.options.Attachment == AttachNATBridged {
		for iptables, subnet := range map[string]netip.Prefix{
			"iptables":  h.addresses.bridge4.Masked(),
			"ip6tables": h.addresses.bridge6.Masked(),
		} {
			commands = append(commands, []string{iptables, "-w", "-t", "nat", "-A", "POSTROUTING",
				"-s", subnet.String(), "-o", h.addressedName(), "-j", "MASQUERADE"})
		}
	}
	for _, command := range commands {
		if err := runTool(ctx, "nsenter", append(enter, command...)...); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) addNamespace(ctx context.Context, name string) error {
	// Noted first: a command that is killed may have made it.
	h.mu.Lock()
	h.namespaces = append(h.namespaces, name)
	h.mu.Unlock()
	if err := runTool(ctx, "ip", "netns", "add", name); err != nil {
		return err
	}
	// Link-local addresses, which neighbour discovery needs, are there at once
	// instead of after a second or two.
	err := runTool(ctx, "nsenter", "--net="+NetNSDir+"/"+name, "--", "sysctl", "-q", "-w",
		"net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	if err != nil {
		return err
	}
	return runTool(ctx, "ip", "-n", name, "link", "set", "lo", "up")
}

// Close removes all namespaces and cgroups of the host. It may be called twice; what
// could not be removed is tried again. A process that is still in one of the
// namespaces is reported, with its number, and the namespace removed anyway.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx := context.Background()

	var problems []error
	if len(h.namespaces) > 0 {
		// A namespace lives on while a socket of it is open; its interfaces
		// should not.
		_ = runTool(ctx, "ip", "-n", h.hostNS(), "link", "del", uplinkName)
	}
	var left []string
	for i := len(h.namespaces) - 1; i >= 0; i-- {
		name := h.namespaces[i]
		if _, err := os.Stat(NetNSDir + "/" + name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if pids, err := tool(ctx, "ip", "netns", "pids", name).Output(); err == nil && len(pids) > 0 {
			problems = append(problems, fmt.Errorf("remove network namespace %s: still used by processes %s",
				name, strings.Join(strings.Fields(string(pids)), ", ")))
		}
		if err := runTool(ctx, "ip", "netns", "del", name); err != nil {
			problems = append(problems, err)
			left = append([]string{name}, left...)
		}
	}
	h.namespaces = left
	cgroups, err := removeCgroups(h.cgroups)
	h.cgroups = cgroups
	return errors.Join(append(problems, err)...)
}

// Leaked lists the host's namespaces and cgroups that exist. After Close it
// should be empty.
func (h *Host) Leaked() ([]string, error) {
	out, err := tool(context.Background(), "ip", "netns", "list").Output()
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var leaked []string
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, h.name+"-") {
			leaked = append(leaked, name)
		}
	}
	cgroups, err := h.leakedCgroups()
	return append(leaked, cgroups...), err
}

// tool makes a command that a Ctrl-C at the terminal does not reach: what becomes
// of it decides ctx, and what removes things must not be cut off.
func tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// runIP runs commands of ip in a namespace, one after the other up to the first
// that fails.
func runIP(ctx context.Context, namespace string, commands ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := tool(ctx, "ip", "-n", namespace, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run ip -n %s with commands %q: %w: %s", namespace, commands, err, bytes.TrimSpace(out))
	}
	return nil
}

// runTool runs a command to its end; its error carries what the tool said.
func runTool(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	out, err := tool(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
