//go:build netns

package netns

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// checkBothCarry: a bond that sends through one of its links only would prove
// no more than that link does.
func checkBothCarry(t *testing.T, b *harness.Bed) {
	t.Helper()
	// A bond chooses a link for each flow, by chance the same one for a few: so
	// there are more, one after another, for as long as it takes.
	harness.Await(t, "both links of the bond carry packets", 20*time.Second, func() error {
		err := testbed.InNetNS(b.Host.NetNSPath(), func() error {
			conn, err := net.Dial("udp", netip.AddrPortFrom(b.Host.PeerAddr, 9).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			for range 10 {
				_, _ = conn.Write(make([]byte, 1400)) // an answer to one before may say that nothing listens
			}
			return nil
		})
		if err != nil {
			return err
		}
		var links []struct {
			Name  string `json:"ifname"`
			Stats struct {
				Sent struct{ Bytes uint64 } `json:"tx"`
			} `json:"stats64"`
		}
		out := b.Run("ip", "-s", "-json", "link", "show", "master", b.Host.UplinkName)
		if err := json.Unmarshal([]byte(out), &links); err != nil {
			return err
		}
		if len(links) != 2 {
			return fmt.Errorf("the bond has %d links: %s", len(links), out)
		}
		for _, l := range links {
			if l.Stats.Sent.Bytes < mbit/8 {
				return fmt.Errorf("%s carried %d bytes only", l.Name, l.Stats.Sent.Bytes)
			}
		}
		return nil
	})
}

// Addresses of a tunnel's ends; the range for benchmarks has no others so high.
const tunnelHost, tunnelPeer = "198.19.255.245", "198.19.255.246"

// tunnels make a device "tunnel" of the host's, on its uplink, to the neighbour.
var tunnels = map[string]func(*testing.T, *harness.Bed){
	"vxlan": func(_ *testing.T, b *harness.Bed) {
		add := []string{"ip", "link", "add", "tunnel", "type", "vxlan", "id", "7", "dstport", "4790", "remote"}
		b.Run(append(add, b.Host.PeerAddr.String(), "dev", b.Host.UplinkName)...)
		b.RunPeer(append(add, b.Host.UplinkAddr().String())...)
	},
	"wireguard": wireGuard,
}

func wireGuard(t *testing.T, b *harness.Bed) {
	t.Helper()
	if out := b.Run("sh", "-c", "ip link add tunnel type wireguard 2>&1 || true"); out != "" {
		t.Skip("this kernel has no wireguard: " + out)
	}
	b.RunPeer("ip", "link", "add", "tunnel", "type", "wireguard")
	var keys [2]string
	for i := range keys {
		keys[i] = filepath.Join(b.Dir, fmt.Sprint("key", i))
		b.Run("sh", "-c", "wg genkey >"+keys[i])
	}
	for i, run := range []func(...string) string{b.Run, b.RunPeer} {
		public := strings.TrimSpace(b.Run("sh", "-c", "wg pubkey <"+keys[1-i]))
		far := []netip.Addr{b.Host.PeerAddr, b.Host.UplinkAddr()}[i]
		run("wg", "set", "tunnel", "listen-port", "51820", "private-key", keys[i], "peer", public,
			"allowed-ips", "0.0.0.0/0,::/0", "endpoint", netip.AddrPortFrom(far, 51820).String())
	}
}

// TestTunnelOfProgram: where a route leads through a tunnel of a program's, the rows of
// containers whose packets may go there name the device to configure.
func TestTunnelOfProgram(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if out := b.Run("sh", "-c", "ip tuntap add dev tunnel mode tun 2>&1 || true"); out != "" {
		t.Skip("no tunnel can be made here: " + out)
	}
	b.Run("ip", "addr", "add", tunnelHost+"/30", "dev", "tunnel")
	b.Run("ip", "link", "set", "tunnel", "up")
	b.Add("one", nil)
	awaitTunnel(b, b.StartAgent(harness.AgentOptions{}), "told of the tunnel", "tunnel (tuntap on "+b.Host.UplinkName+")")
}

// awaitTunnel waits until weir ps and weir doctor complain of a tunnel; of none where name is empty.
func awaitTunnel(b *harness.Bed, agent *harness.Agent, what, name string) {
	agent.AwaitContainer("one", what, 2*noticed, func(c v1.Container) bool {
		return (c.State == v1.StateOK) == (name == "") && strings.Contains(c.Reason, name)
	})
	b.Await(what+" by weir doctor", noticed, func() (bool, string) {
		found := regexp.MustCompile(`(?m)^tunnels .*`).FindString(b.Weir("doctor").Stdout)
		told := strings.Contains(found, " limited ") && strings.Contains(found, "an uplink of its own")
		return strings.Contains(found, name) && told == (name != ""), found
	})
}

// TestTunnelOfHost: what containers send through a tunnel of the host's has their numbers at the uplink. As
// an uplink of its own the tunnel is shared out beside its carrier.
func TestTunnelOfHost(t *testing.T) {
	t.Parallel()
	for kind, add := range tunnels {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t)
			add(t, b)
			tunnelOfHost(t, b)
		})
	}
}

func tunnelOfHost(t *testing.T, b *harness.Bed) {
	const tunnelBPS, carrierBPS = 12 * mbit, 30 * mbit
	b.Run("ip", "addr", "add", tunnelHost+"/30", "dev", "tunnel")
	b.Run("ip", "link", "set", "tunnel", "up")
	b.Run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-o", "tunnel", "-j", "MASQUERADE")
	b.RunPeer("ip", "addr", "add", tunnelPeer+"/30", "dev", "tunnel")
	b.RunPeer("ip", "link", "set", "tunnel", "up")
	one := b.Add("one", labels("weight", "100", "min", "3mbit")) // binds in the tunnel
	two := b.Add("two", labels("weight", "300"))
	three := b.Add("three", labels("weight", "300", "max", "1mbit"))
	carrier := uplinkAt("uplink", "30mbit")
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: uplinks(carrier)})
	awaitTunnel(b, agent, "ok with its number carried", "")
	both := uplinks(carrier, uplinkAt("tunnel", "12mbit"))
	both["host"] = map[string]any{"weight": "1000"} // what the tunnel sends through its carrier
	b.WriteConfig(both)
	b.MustWeir("reload")
	awaitTunnel(b, agent, "ok with the tunnel as an uplink", "")
	containers := []*harness.Container{one, two, three}
	var list []harness.Claim
	for _, c := range containers {
		list = append(list, harness.Claim{Labels: c.Labels, DemandBPS: harness.Unlimited})
		load := harness.Load{Protocol: traffic.UDP, RateBPS: 2 * tunnelBPS, PayloadBytes: 1300}
		b.SendTo(c, netip.AddrPortFrom(netip.MustParseAddr(tunnelPeer), uint16(harness.BasePort+c.Slot)), load)
		b.Send(c, load)
	}
	b.MeterAt("tunnel")
	ideal, err := harness.Ideal(tunnelBPS, list)
	must.Succeed(t, err)
	b.WarmUp()
	b.CheckIdeal(harness.SteadyTolerance, tunnelBPS, ideal, harness.Duration)
	b.MeterAt(b.Host.PeerInterface)
	b.Check(harness.Duration, func(m harness.Measurement) error {
		host := uint64(m.OtherBPS) // what is in the tunnel, with its headers
		if host < tunnelBPS {
			return fmt.Errorf("%d bit/s of the tunnel's arrive", host)
		}
		ideal, err := harness.Ideal(carrierBPS-host, list)
		if err != nil {
			return err
		}
		m.BPS[len(list)], m.OtherBPS = m.OtherBPS, 0
		return harness.CheckSharesWithin(harness.SteadyTolerance, carrierBPS, m, append(ideal, host))
	})
	for name, c := range agent.Containers() {
		if c.State != v1.StateOK {
			t.Errorf("%s is %s: %s", name, c.State, c.Reason)
		}
	}
}

// TestDoctorOnPrograms: weir doctor says whether the kernel accepts the agent's programs.
func TestDoctorOnPrograms(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for result, wrapper := range map[string][]string{
		"ok +the programs that the agent needs load":              nil,
		"missing +programs that the agent needs do not load .*: ": {"setpriv", "--bounding-set=-bpf,-sys_admin", "--inh-caps=-all", "--"},
	} {
		doctor := b.WeirAs(wrapper, "doctor")
		if !regexp.MustCompile(`(?m)^programs +` + result).MatchString(doctor.Stdout) {
			t.Errorf("weir doctor does not say %q:\n%s", result, doctor.Stdout)
		}
	}
}
