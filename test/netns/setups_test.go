//go:build netns

package netns

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// setup is an ordinary set-up: a host of a few lines, on which the policies of four
// containers hold. The table of set-ups in docs/user-guide.md names each test.
type setup struct {
	options testbed.HostOptions
	modes   [4]testbed.Mode
	// before arranges the host before its agent starts, meanwhile what happens after that,
	// and beside what sends beside the containers.
	before, meanwhile func(*testing.T, *harness.Bed)
	beside            func(*testing.T, *harness.Bed, []*harness.Container)
	// moves changes the way out while all send. Policies hold afterwards, too, at the rate that it returns.
	moves func(*harness.Bed) (rateBPS uint64)
	// hostSends adds the host's share to the ideal. beyond: containers send beyond the default route.
	hostSends, beyond bool
	// relayed: what reaches no slot is the first container's, which sends nothing else.
	relayed bool
	// uplink is what --uplink names; empty is the bed's. ports are the devices that are shared out
	// for it, at first and after meanwhile; empty is uplink.
	uplink string
	ports  [2]string
	// headerBytes count with each packet: what a tunnel adds to it.
	headerBytes uint64
	// second is the rate of a second uplink, backup; empty if there is none.
	second string
	// rates is the text of a file of --rates-file, which goes before the rate that all devices have otherwise.
	rates string
}

var (
	bridged = [4]testbed.Mode{testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge}
	mixed   = [4]testbed.Mode{testbed.ModeHost, testbed.ModeMacvlan, testbed.ModeBridge, testbed.ModeBridge}
)

var setups = map[string]setup{
	"one card and a bridge": {},
	"routed":                {options: testbed.HostOptions{Attachment: testbed.AttachRouted}},
	"containers on the LAN": {options: testbed.HostOptions{Attachment: testbed.AttachBridged}},
	"VLAN":                  {options: testbed.HostOptions{Link: testbed.LinkVLAN}},
	"bond":                  {options: testbed.HostOptions{Link: testbed.LinkBond}},
	"16 queues":             {options: testbed.HostOptions{Link: testbed.LinkQueues}},
	"home server":           {modes: mixed},
	"reverse proxy":         {beside: throughProxy, relayed: true},
	"reverse proxy in host mode": {
		modes:  [4]testbed.Mode{testbed.ModeHost, testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge},
		beside: throughProxy, relayed: true,
	},
	"failover": {
		modes:  [4]testbed.Mode{testbed.ModeHost, testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge},
		before: wayBeyond, beyond: true, second: "12mbit", ports: [2]string{"uplink, backup", "uplink, backup"},
		moves: func(b *harness.Bed) uint64 {
			b.Run("ip", "route", "replace", "default", "via", backupPeer.String(), "dev", backup)
			b.Run("ip", "-6", "route", "replace", "default", "via", backupPeer6.String(), "dev", backup)
			b.MeterAt("backup-peer")
			return 12 * mbit
		},
	},
	"sleep and another network": {before: wayBeyond, beyond: true, moves: otherNetwork},
	"another device":            {before: wayBeyond, beyond: true, uplink: "auto", ports: [2]string{"uplink", backup}, moves: otherDevice},
	"another device with its own rate": {
		before: wayBeyond, beyond: true, uplink: "auto", ports: [2]string{"uplink", backup},
		rates: "uplinks: [{interface: uplink, rate: 20mbit}, {interface: backup, rate: 16mbit}]",
		moves: func(b *harness.Bed) uint64 {
			otherDevice(b)
			return 16 * mbit // of 12, a lost turn of a sender is 3 % of the smallest share
		},
	},
	"VPN of the host (vxlan)":        vpnOfHost("vxlan"),
	"VPN of the host (wireguard)":    vpnOfHost("wireguard"),
	"VPN of some routes (vxlan)":     vpnOfRoutes("vxlan", 50),
	"VPN of some routes (wireguard)": vpnOfRoutes("wireguard", 79),
	"virtual machines' bridge": {
		options: testbed.HostOptions{Attachment: testbed.AttachNATBridged}, uplink: "lan",
		meanwhile: func(t *testing.T, b *harness.Bed) {
			b.Run("ip", "link", "add", "card2", "type", "veth", "peer", "name", "unplugged")
			b.Run("ip", "link", "set", "card2", "master", "lan")
			b.Run("ip", "link", "set", "card2", "up")
		},
	},
	// As above, with cards that Weir knows from containers: the one that leads out is shared out,
	// and the bridge once there are two.
	"virtual machines' bridge of VLANs": {
		options: testbed.HostOptions{Attachment: testbed.AttachNATBridged, Link: testbed.LinkVLAN},
		uplink:  "lan", ports: [2]string{"uplink", "lan"},
		meanwhile: func(t *testing.T, b *harness.Bed) {
			b.Run("ip", "link", "add", "link", "wire0", "name", "card2", "type", "vlan", "id", "19")
			b.Run("ip", "link", "set", "card2", "master", "lan")
			b.Run("ip", "link", "set", "card2", "up")
		},
	},
	// Containers that are ports themselves send past the bridge's own device, so both cards are named.
	"bridge of two cards": {
		options: testbed.HostOptions{Attachment: testbed.AttachBridged}, second: "12mbit", ports: [2]string{"uplink, backup", "uplink, backup"},
		before: func(_ *testing.T, b *harness.Bed) {
			addBackup(b)
			b.RunPeer("sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/backup-peer/arp_ignore") // or both ends answer for the neighbour
			b.Run("ip", "link", "set", backup, "master", "containers")
		},
		moves: func(b *harness.Bed) uint64 { // the neighbour goes to the other card's end
			mac := strings.Fields(b.RunPeer("sh", "-c", "ip -o link show dev "+b.Host.PeerInterface+" | grep -o 'link/ether [^ ]*'"))[1]
			b.RunPeer("ip", "link", "set", b.Host.PeerInterface, "address", "02:00:00:00:00:02")
			b.RunPeer("ip", "link", "set", "backup-peer", "address", mac)
			b.Run("bridge", "fdb", "del", mac, "dev", "uplink", "master")
			b.MeterAt("backup-peer")
			return 12 * mbit
		},
	},
	"gateway":                         {beside: clientOfLAN, hostSends: true},
	"VPN client in a container":       {beside: throughTunnel},
	"firewall and filter of others":   {before: foreignRules},
	"nftables and programs of others": {before: foreignTables},
}

// TestSetups: weights, a minimum and a maximum hold at the neighbour in ordinary set-ups, and
// weir ps says ok.
func TestSetups(t *testing.T) {
	t.Parallel()
	for name, s := range setups {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, s.options)
			if s.before != nil {
				s.before(t, b)
			}
			if s.modes == [4]testbed.Mode{} {
				s.modes = bridged
			}
			agent, containers := join(t, b, s.agent(t),
				member{s.modes[0], labels("weight", "200")}, // the host has 100
				member{s.modes[1], labels("weight", "300")},
				member{s.modes[2], labels("weight", "50", "min", "8mbit")},
				member{s.modes[3], labels("weight", "500", "max", "1mbit")})
			awaitShared(b, agent, s.ports[0])
			if s.meanwhile != nil {
				s.meanwhile(t, b)
				awaitShared(b, agent, s.ports[1])
			}
			if s.beside != nil {
				s.beside(t, b, containers)
			}
			ideal, rateBPS := s.ideal(t, containers, slowBPS), uint64(slowBPS)
			if s.headerBytes > 0 {
				const packetBytes = 20 + 8 + beyondPayload
				for i := range ideal {
					ideal[i] = ideal[i] * packetBytes / (packetBytes + s.headerBytes)
				}
				rateBPS = rateBPS * packetBytes / (packetBytes + s.headerBytes)
			}
			for i, c := range containers {
				load := harness.Load{Protocol: traffic.UDP, RateBPS: uint64(eagerness * float64(ideal[i])), V6: i%2 == 0}
				switch {
				case s.relayed && i == 0:
				case s.beyond:
					load.PayloadBytes = beyondPayload
					b.SendTo(c, netip.AddrPortFrom(beyond[i%2], uint16(harness.BasePort+c.Slot)), load)
				default:
					b.Send(c, load)
				}
			}
			s.check(t, b, agent, ideal, rateBPS)
			if s.moves != nil {
				rateBPS := s.moves(b)
				awaitShared(b, agent, s.ports[1])
				s.check(t, b, agent, s.ideal(t, containers, rateBPS), rateBPS)
				if s.ports[0] != s.ports[1] {
					checkMoved(t, b, agent, s.ports[0])
				}
			}
			if s.options.Link == testbed.LinkBond {
				checkBothCarry(t, b)
			}
			if s.headerBytes > 0 { // programs at the tunnel
				b.MustWeir("down")
				agent.Ended()
				checkNothingLeft(t, b)
			}
		})
	}
}

// agent returns how to start the agent, and fills in what is shared out.
func (s *setup) agent(t *testing.T) harness.AgentOptions {
	options := harness.AgentOptions{Rate: slowRate}
	if s.uplink == "" {
		s.uplink = "uplink"
	} else {
		options.Args = []string{"--uplink", s.uplink}
	}
	if s.rates != "" {
		file := filepath.Join(t.TempDir(), "rates.yaml")
		must.Succeed(t, os.WriteFile(file, []byte(s.rates), 0o600))
		options.Rate, options.Args = "30mbit", append(options.Args, "--rates-file", file)
	}
	if s.second != "" {
		options = harness.AgentOptions{UplinksInConfig: true, Settings: uplinks(uplinkAt(s.uplink, slowRate), uplinkAt(backup, s.second))}
	}
	if s.ports == [2]string{} {
		s.ports = [2]string{s.uplink, s.uplink}
	}
	return options
}

// awaitShared waits until devices are shared out, and all containers with them.
func awaitShared(b *harness.Bed, agent *harness.Agent, devices string) {
	// ok is what was looked at in the last ten seconds.
	b.Await(devices+" is shared out", 10*time.Second, func() (bool, string) {
		status := agent.Status()
		fits := status.Uplink == devices && status.State == v1.StateOK
		for _, c := range agent.Containers() {
			fits = fits && c.State == v1.StateOK
		}
		return fits, fmt.Sprintf("%+v\n%+v", status, agent.Containers())
	})
}

// checkMoved wants nothing of Weir's to be at the device that the default route has left, and an event.
func checkMoved(t *testing.T, b *harness.Bed, agent *harness.Agent, device string) {
	t.Helper()
	if left := b.Run("sh", "-c", "tc qdisc show dev "+device+"; tc filter show dev "+device+" egress"); strings.Contains(left, "7e1") || strings.Contains(left, "weir") {
		t.Errorf("left at %s: %s", device, left)
	}
	events := b.MustWeir("events")
	if !strings.Contains(events, "in place of "+device) {
		t.Errorf("weir events says:\n%s", events)
	}
}

// ideal returns the shares of a rate while all send, the host's at the end if it does.
func (s *setup) ideal(t *testing.T, containers []*harness.Container, rateBPS uint64) []uint64 {
	t.Helper()
	var list []harness.Claim
	for _, c := range containers {
		list = append(list, harness.Claim{Labels: c.Labels, DemandBPS: harness.Unlimited})
	}
	if s.hostSends {
		list = append(list, harness.Claim{DemandBPS: harness.Unlimited})
	}
	ideal, err := harness.Ideal(rateBPS, list)
	must.Succeed(t, err)
	return ideal
}

// check compares what arrives from now on with the ideal, and wants all containers to be ok.
func (s *setup) check(t *testing.T, b *harness.Bed, agent *harness.Agent, ideal []uint64, rateBPS uint64) {
	t.Helper()
	b.WarmUp()
	b.Check(harness.Duration/2, func(m harness.Measurement) error {
		if !s.relayed {
			return harness.CheckSharesWithin(harness.SteadyTolerance, rateBPS, m, ideal)
		}
		m.BPS[0], m.OtherBPS = m.BPS[0]+m.OtherBPS, 0
		return harness.CheckSharesWithin(harness.ShareTolerance, rateBPS, m, ideal)
	})
	for name, c := range agent.Containers() {
		if c.State != v1.StateOK {
			t.Errorf("%s is %s: %s", name, c.State, c.Reason)
		}
	}
}

// throughProxy lets users outside fetch from a container what it fetches from two others, which have
// policies of their own.
func throughProxy(t *testing.T, b *harness.Bed, containers []*harness.Container) {
	var backends []netip.AddrPort
	for _, c := range containers[1:3] {
		backends = append(backends, serve(t, c, func(user net.Conn) {
			for page := make([]byte, 1<<16); ; {
				if _, err := user.Write(page); err != nil {
					return
				}
			}
		}))
	}
	proxy := containers[0]
	turn := atomic.Int32{}
	front := serve(t, proxy, func(user net.Conn) {
		backend := dial(t, proxy.NetNSPath(), backends[int(turn.Add(1))%len(backends)])
		_, _ = io.Copy(user, backend) // until the test ends
	})
	if proxy.Mode() == testbed.ModeBridge {
		b.Run("iptables", "-w", "-t", "nat", "-A", "PREROUTING", "-i", "uplink", "-p", "tcp", "-j", "DNAT", "--to-destination", front.String())
	}
	for range 4 {
		user := dial(t, b.Host.PeerNetNSPath(), netip.AddrPortFrom(b.Host.UplinkAddr(), front.Port()))
		go func() { _, _ = io.Copy(io.Discard, user) }()
	}
}

// serve listens in a container until the test ends.
func serve(t *testing.T, c *harness.Container, answer func(user net.Conn)) netip.AddrPort {
	t.Helper()
	var listener net.Listener
	must.Succeed(t, c.Enter(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(c.Addr, 0).String())
		return err
	}))
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			user, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go answer(user)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// dial connects from a network namespace until the test ends.
func dial(t *testing.T, netNSPath string, to netip.AddrPort) (conn net.Conn) {
	must.Succeed(t, testbed.InNetNS(netNSPath, func() (err error) {
		conn, err = net.DialTimeout("tcp4", to.String(), time.Second)
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// beyondPayload is the payload of packets there, which fit a tunnel.
const beyondPayload = 1300

// beyond are addresses of the neighbour's that only default routes lead to.
var beyond = [2]netip.Addr{netip.MustParseAddr("fd00:7e11:1::1"), netip.MustParseAddr("198.19.255.249")}

// backupPeer6 is the neighbour's address at the second link.
var backupPeer6 = netip.MustParseAddr("fd00:7e11::2")

// wayBeyond makes a second way out, with NAT.
func wayBeyond(_ *testing.T, b *harness.Bed) {
	addBackup(b)
	b.Run("ip", "addr", "add", "fd00:7e11::1/64", "dev", backup, "nodad")
	b.RunPeer("ip", "addr", "add", backupPeer6.String()+"/64", "dev", "backup-peer", "nodad")
	for _, address := range beyond {
		b.RunPeer("ip", "addr", "add", address.String(), "dev", "lo")
	}
	for _, iptables := range []string{"iptables", "ip6tables"} {
		b.Run(iptables, "-w", "-t", "nat", "-A", "POSTROUTING", "-o", backup, "-m", "addrtype", "!", "--src-type", "LOCAL", "-j", "MASQUERADE")
	}
}

// otherNetwork puts the host to sleep and wakes it in a network with other addresses and another router.
func otherNetwork(b *harness.Bed) uint64 {
	b.Run("ip", "link", "set", "uplink", "down")
	b.Run("ip", "addr", "flush", "dev", "uplink")
	time.Sleep(300 * time.Millisecond)
	b.Run("ip", "link", "set", "uplink", "up")
	for _, network := range []struct{ host, router string }{{"198.19.255.241/30", "198.19.255.242"}, {"fd00:7e11:2::1/64", "fd00:7e11:2::2"}} {
		_, length, _ := strings.Cut(network.host, "/")
		b.RunPeer("ip", "addr", "add", network.router+"/"+length, "dev", b.Host.PeerInterface)
		b.Run("ip", "addr", "add", network.host, "dev", "uplink")
		b.Run("ip", "route", "replace", "default", "via", network.router)
	}
	return slowBPS
}

// otherDevice takes the uplink down, as a laptop does that leaves its desk, and another device leads out.
func otherDevice(b *harness.Bed) uint64 {
	b.Run("ip", "link", "set", "uplink", "down")
	time.Sleep(300 * time.Millisecond)
	b.Run("ip", "route", "replace", "default", "via", backupPeer.String(), "dev", backup)
	b.Run("ip", "-6", "route", "replace", "default", "via", backupPeer6.String(), "dev", backup)
	b.MeterAt("backup-peer")
	return slowBPS
}

// vpnOfHost is a set-up whose host sends all through a tunnel, by the rules that wg-quick makes: what
// is not of the tunnel itself has a table of its own.
func vpnOfHost(kind string) setup {
	return setup{
		beyond: true, uplink: "auto", ports: [2]string{"tunnel", "tunnel"}, headerBytes: 94,
		before: func(t *testing.T, b *harness.Bed) {
			addTunnel(t, b, kind)
			for family, far := range map[string]string{"-4": tunnelPeer, "-6": tunnelPeer6} {
				b.Run("ip", family, "route", "add", "default", "via", far, "dev", "tunnel", "table", "51820")
				b.Run("ip", family, "rule", "add", "not", "fwmark", "51820", "table", "51820")
				b.Run("ip", family, "rule", "add", "table", "main", "suppress_prefixlength", "0")
			}
		},
	}
}

// vpnOfRoutes is a set-up whose host sends what is for some networks through a tunnel, whose packets are
// shared out at the uplink with all others. headerBytes are what it adds.
func vpnOfRoutes(kind string, headerBytes uint64) setup {
	return setup{
		modes:  [4]testbed.Mode{testbed.ModeHost, testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge},
		beyond: true, headerBytes: headerBytes,
		before: func(t *testing.T, b *harness.Bed) {
			addTunnel(t, b, kind)
			for i, far := range []string{tunnelPeer6, tunnelPeer} {
				b.Run("ip", "route", "add", beyond[i].String(), "via", far, "dev", "tunnel")
			}
		},
	}
}

// tunnelPeer6 is the far end of a tunnel as tunnelPeer is.
const tunnelPeer6 = "fd00:7e11:3::2"

// addTunnel makes a tunnel of the host's to the neighbour, which has the addresses beyond, with NAT and the
// meter at its far end.
func addTunnel(t *testing.T, b *harness.Bed, kind string) {
	tunnels[kind](t, b)
	for i, run := range []func(...string) string{b.Run, b.RunPeer} {
		run("ip", "addr", "add", []string{tunnelHost, tunnelPeer}[i]+"/30", "dev", "tunnel")
		run("ip", "addr", "add", fmt.Sprintf("fd00:7e11:3::%d/64", i+1), "dev", "tunnel", "nodad")
		run("ip", "link", "set", "tunnel", "up")
	}
	for _, address := range beyond {
		b.RunPeer("ip", "addr", "add", address.String(), "dev", "lo")
	}
	for _, iptables := range []string{"iptables", "ip6tables"} {
		b.Run(iptables, "-w", "-t", "nat", "-A", "POSTROUTING", "-o", "tunnel", "-j", "MASQUERADE")
	}
	b.MeterAt("tunnel")
}

// throughTunnel lets the first container send to its slot through a tunnel of its own as well.
func throughTunnel(_ *testing.T, b *harness.Bed, containers []*harness.Container) {
	c := containers[0]
	inside := []string{"nsenter", "--net=" + c.NetNSPath(), "--", "ip"}
	for _, command := range [][]string{
		{"link", "add", "vpn", "type", "vxlan", "id", "5", "remote", c.PeerAddr.String(), "dstport", fmt.Sprint(harness.BasePort + c.Slot)},
		{"addr", "add", "198.19.255.253/30", "dev", "vpn"},
		{"link", "set", "vpn", "up"},
		{"neigh", "replace", "198.19.255.254", "lladdr", "02:00:00:00:00:01", "dev", "vpn"},
	} {
		b.Run(append(inside, command...)...)
	}
	b.SendTo(c, netip.MustParseAddrPort("198.19.255.254:9"), harness.Load{Protocol: traffic.UDP, RateBPS: slowBPS, PayloadBytes: 1300})
}

// clientOfLAN forwards the flood of a client behind the gateway, which is the host's.
func clientOfLAN(t *testing.T, b *harness.Bed, containers []*harness.Container) {
	client := b.AddUnknown("client")
	client.Slot = len(containers)
	b.Send(client, harness.Load{Protocol: traffic.UDP, RateBPS: slowBPS})
}

// foreignRules are what firewalls and other tools leave at the host: marks, tracking of
// connections, and filters at the uplink that can neither change nor redirect packets.
func foreignRules(t *testing.T, b *harness.Bed) {
	for _, iptables := range []string{"iptables", "ip6tables"} {
		for _, rule := range []string{
			"-t mangle -A POSTROUTING -j MARK --set-mark 7", "-t mangle -A FORWARD -j CONNMARK --save-mark",
			"-A FORWARD -m conntrack --ctstate INVALID -j DROP", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		} {
			b.Run("sh", "-c", iptables+" -w "+rule)
		}
	}
	b.Run("tc", "qdisc", "add", "dev", "uplink", "clsact")
	for _, way := range []string{"ingress", "egress"} {
		b.Run("tc", "filter", "add", "dev", "uplink", way, "pref", "50", "bpf", "bytecode", "1,6 0 0 4294967295,", "flowid", "1:1")
	}
}

// foreignTables are an operator's nftables, which change what packets carry on their way to the uplink,
// and BPF programs where they see packets before Weir's or past the uplink.
func foreignTables(t *testing.T, b *harness.Bed) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	file := filepath.Join(b.Dir, "tables")
	must.Succeed(t, os.WriteFile(file, []byte(`
table inet operator {
	chain forward {
		type filter hook forward priority filter; policy accept;
		ct state invalid drop
		ct state established,related accept
	}
	chain postrouting {
		type filter hook postrouting priority mangle;
		meta mark set 7 ct mark set meta mark meta priority set 7e11:10
		ip dscp set cs1
		ip6 dscp set cs1
	}
}
table netdev operator {
	chain incoming {
		type filter hook ingress device uplink priority filter; policy accept;
		meta mark set 9
	}
}`), 0o600))
	b.Run("nft", "-f", file)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "count", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	must.Succeed(t, err)
	defer program.Close()
	for device, hook := range map[string]uint32{"uplink": netlink.HANDLE_MIN_INGRESS, "containers": netlink.HANDLE_MIN_EGRESS} {
		b.Run("tc", "qdisc", "add", "dev", device, "clsact")
		addFilter(t, b.Host.NetNSPath(), device, hook, program)
	}
}

// TestGigabits: shares of a card with many queues at 2 Gbit/s, by TCP.
func TestGigabits(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{Link: testbed.LinkQueues})
	b.Run("tc", "qdisc", "add", "dev", "uplink", "root", "handle", "1:", "mq") // a card has one without a handle
	load := harness.Load{Protocol: traffic.TCP, Connections: 4}
	competitors := []competitor{
		{labels("weight", "100"), load}, {labels("weight", "300"), load},
		{labels("weight", "50", "min", "800mbit"), load}, {labels("weight", "500", "max", "100mbit"), load},
	}
	agent, _ := compete(t, b, harness.AgentOptions{Rate: "2gbit", Args: []string{"--replace"}}, competitors...)
	b.CheckShares(2000*mbit, claims(2000*mbit, competitors...))
	for name, c := range agent.Containers() {
		if c.State != v1.StateOK {
			t.Errorf("%s is %s: %s", name, c.State, c.Reason)
		}
	}
}
