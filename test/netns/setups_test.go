//go:build netns

package netns

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

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
	// hostSends adds the host's share to the ideal.
	hostSends bool
	// uplink is what --uplink names; empty is the bed's. ports are the devices that are shared out
	// for it, at first and after meanwhile; empty is uplink.
	uplink string
	ports  [2]string
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
	"reverse proxy":         {beside: throughProxy},
	"reverse proxy in host mode": {
		modes:  [4]testbed.Mode{testbed.ModeHost, testbed.ModeBridge, testbed.ModeBridge, testbed.ModeBridge},
		beside: throughProxy,
	},
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
	"gateway":                       {beside: clientOfLAN, hostSends: true},
	"VPN client in a container":     {beside: throughTunnel},
	"firewall and filter of others": {before: foreignRules},
	"the card goes and comes back": {meanwhile: func(t *testing.T, b *harness.Bed) {
		b.Run("sysctl", "-q", "-w", "net.ipv6.conf.uplink.keep_addr_on_down=1")
		b.Run("ip", "link", "set", "uplink", "down")
		time.Sleep(300 * time.Millisecond)
		b.Run("ip", "link", "set", "uplink", "up")
		b.Run("ip", "route", "replace", "default", "via", b.Host.PeerAddr.String())
		b.Run("ip", "-6", "route", "replace", "default", "via", b.Host.PeerAddr6.String())
	}},
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
			options := harness.AgentOptions{Rate: slowRate}
			if s.uplink == "" {
				s.uplink = "uplink"
			} else {
				options.Args = []string{"--uplink", s.uplink}
			}
			if s.ports == [2]string{} {
				s.ports = [2]string{s.uplink, s.uplink}
			}
			agent, containers := join(t, b, options,
				member{s.modes[0], labels("weight", "100")},
				member{s.modes[1], labels("weight", "300")},
				member{s.modes[2], labels("weight", "50", "min", "8mbit")},
				member{s.modes[3], labels("weight", "500", "max", "1mbit")})
			shares := func(port string) {
				t.Helper()
				// ok is what was looked at in the last ten seconds.
				b.Await(port+" is shared out", 10*time.Second, func() (bool, string) {
					status := agent.Status()
					return status.Uplink == port && status.State == v1.StateOK, fmt.Sprintf("%+v", status)
				})
			}
			shares(s.ports[0])
			if s.meanwhile != nil {
				s.meanwhile(t, b)
				shares(s.ports[1])
				for _, c := range containers {
					agent.AwaitContainer(c.Name, "ok", 3*time.Second, func(c v1.Container) bool { return c.State == v1.StateOK })
				}
			}
			var list []harness.Claim
			for _, c := range containers {
				list = append(list, harness.Claim{Labels: c.Labels, DemandBPS: harness.Unlimited})
			}
			if s.hostSends {
				list = append(list, harness.Claim{DemandBPS: harness.Unlimited})
			}
			ideal, err := harness.Ideal(slowBPS, list)
			must.Succeed(t, err)
			if s.beside != nil {
				s.beside(t, b, containers)
			}
			for i, c := range containers {
				b.Send(c, harness.Load{Protocol: traffic.UDP, RateBPS: uint64(eagerness * float64(ideal[i])), V6: i%2 == 0})
			}
			b.WarmUp()
			b.CheckIdeal(harness.SteadyTolerance, slowBPS, ideal, harness.Duration)
			for name, c := range agent.Containers() {
				if c.State != v1.StateOK {
					t.Errorf("%s is %s: %s", name, c.State, c.Reason)
				}
			}
			if s.options.Link == testbed.LinkBond {
				checkBothCarry(t, b)
			}
		})
	}
}

// throughProxy lets a container send to another one all it can, as an application does to the
// reverse proxy that its users' traffic leaves by.
func throughProxy(t *testing.T, b *harness.Bed, containers []*harness.Container) {
	const port = 5300 // not the meter's
	proxy, app := containers[0], containers[1]
	must.Succeed(t, proxy.Enter(func() error {
		sink, err := traffic.NewSink(port, 1)
		if err == nil {
			t.Cleanup(func() { _ = sink.Close() })
		}
		return err
	}))
	b.SendTo(app, netip.AddrPortFrom(proxy.Addr, port), harness.Load{Protocol: traffic.UDP, RateBPS: 50 * mbit, PayloadBytes: 1400})
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
