//go:build netns

package netns

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

const (
	incomingBPS = 50_000_000
	// flooding is more than the uplink's, for each container.
	flooding = 60_000_000
)

func shareIncoming(b *harness.Bed, settings map[string]any) *harness.Agent {
	return b.StartAgent(harness.AgentOptions{Args: []string{"--in-rate", "50mbit"}, Settings: settings})
}

// checkDownloads judges at the containers' sockets.
func checkDownloads(downloads *harness.Downloads, ideal []uint64) {
	downloads.Bed.CheckMeasured(harness.Duration, downloads.Measure, func(m harness.Measurement) error {
		return harness.CheckSharesWithin(harness.ShareTolerance, incomingBPS, m, ideal)
	})
}

// TestIncoming: received traffic has its own weights, minimums and maximums in overlay, bridge, host
// and macvlan mode. They survive the agent, and weir down leaves nothing.
func TestIncoming(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{})
	containers := []*harness.Container{
		b.AddMode("light", testbed.ModeOverlay, map[string]string{"weir.weight": "300", "weir.in.weight": "100"}),
		b.Add("heavy", map[string]string{"weir.in.weight": "200"}),
		b.AddMode("limited", testbed.ModeHost, map[string]string{"weir.in.weight": "1000", "weir.in.max": "8mbit"}),
		b.AddMode("guaranteed", testbed.ModeMacvlan, map[string]string{"weir.in.weight": "1", "weir.in.min": "12mbit"}),
	}
	agent := shareIncoming(b, nil)
	downloads := &harness.Downloads{Bed: b}
	for _, c := range containers {
		downloads.Start(c, flooding)
	}
	b.WarmUp()
	// 50 less 8 (maximum) and 12 (minimum): 10 and 20.
	ideal := []uint64{10_000_000, 20_000_000, 8_000_000, 12_000_000}
	checkDownloads(downloads, ideal)
	for i, c := range containers {
		got := agent.Container(c.Name)
		if got.In == nil || got.State != v1.StateOK {
			t.Fatalf("%s: %s %q, in: %+v", c.Name, got.State, got.Reason, got.In)
		}
		if off := float64(got.In.EntitledBPS) / float64(ideal[i]); off < 0.98 || off > 1.02 {
			t.Errorf("%s is entitled to %d, want %d", c.Name, got.In.EntitledBPS, ideal[i])
		}
	}
	if text := b.MustWeir("ps"); strings.Count(text, "\n  in ") != len(containers)+1 {
		t.Errorf("weir ps does not show received traffic:\n%s", text)
	}

	b.MustWeir("set", "heavy", "--in-max", "5mbit")
	b.WarmUp()
	checkDownloads(downloads, []uint64{25_000_000, 5_000_000, 8_000_000, 12_000_000})

	agent.Kill()
	checkDownloads(downloads, []uint64{25_000_000, 5_000_000, 8_000_000, 12_000_000})
	agent = shareIncoming(b, nil)
	b.WarmUp()
	checkDownloads(downloads, []uint64{25_000_000, 5_000_000, 8_000_000, 12_000_000})
	if got := agent.Container("heavy").In.Policy.MaxBPS; got != 5_000_000 {
		t.Errorf("after a restart the maximum set is %d", got)
	}
	b.MustWeir("down")
	agent.Ended()
	for _, left := range []string{b.Run("ip", "link", "show", "type", "ifb"), b.Run("tc", "filter", "show", "dev", "uplink", "ingress")} {
		if strings.TrimSpace(left) != "" {
			t.Errorf("left behind: %s", left)
		}
	}
}

// TestIncomingAtDevices: VLANs, bonds and ports of a bridge share received traffic like a card does, every packet is
// counted once, and a new MTU changes nothing.
func TestIncomingAtDevices(t *testing.T) {
	for name, of := range map[string]struct {
		options testbed.HostOptions
		uplink  string
	}{
		"vlan":               {testbed.HostOptions{Link: testbed.LinkVLAN}, "uplink"},
		"bond":               {testbed.HostOptions{Link: testbed.LinkBond}, "uplink"},
		"bridge, by a VLAN":  {testbed.HostOptions{Attachment: testbed.AttachBridged, Link: testbed.LinkVLAN}, "containers"},
		"port of the bridge": {testbed.HostOptions{Attachment: testbed.AttachNATBridged}, "uplink"},
	} {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, of.options)
			containers := []*harness.Container{b.Add("free", nil), b.Add("limited", map[string]string{"weir.in.max": "8mbit"})}
			agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", of.uplink, "--in-rate", "50mbit"}})
			downloads := &harness.Downloads{Bed: b}
			for _, c := range containers {
				downloads.Start(c, flooding)
			}
			ideal := []uint64{42_000_000, 8_000_000}
			b.WarmUp()
			checkDownloads(downloads, ideal)
			b.Run("ip", "link", "set", "uplink", "mtu", "1400")
			b.WarmUp()
			checkDownloads(downloads, ideal)
			for i, c := range containers {
				got := agent.Container(c.Name)
				if off := float64(got.In.RateBPS) / float64(ideal[i]); got.State != v1.StateOK || off < 0.9 || off > 1.1 {
					t.Errorf("%s: %s %q, %d bit/s", c.Name, got.State, got.Reason, got.In.RateBPS)
				}
			}
			if host := agent.Container("host").In.RateBPS; host > ideal[1]/10 {
				t.Errorf("the host receives %d bit/s", host)
			}
		})
	}
}

// TestIncomingUnrequested: what a container receives without a request is its own in an overlay network, also where
// the uplink is a port of a bridge with a MAC of its own, and at a port of that bridge.
func TestIncomingUnrequested(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		attachment testbed.Attachment
		mode       testbed.Mode
		bridge     string
	}{
		"overlay":    {testbed.AttachNATBridged, testbed.ModeOverlay, "lan"},
		"in the LAN": {testbed.AttachBridged, testbed.ModeBridge, "containers"},
	} {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{Attachment: of.attachment})
			b.Run("ip", "link", "set", of.bridge, "address", "02:00:00:00:17:01")
			c := b.AddMode("receiver", of.mode, nil)
			agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "uplink", "--in-rate", "50mbit"}})
			sendUnrequested(t, b.Host.PeerNetNSPath(), c.Addr)
			agent.AwaitContainer(c.Name, "it receives what is sent to it", 10*time.Second, func(c v1.Container) bool {
				return c.State == v1.StateOK && c.In != nil && c.In.RateBPS > 4*mbit
			})
		})
	}
}

// sendUnrequested sends 5 Mbit/s of UDP from a network namespace to a port of addr that nobody listens at, until the test ends.
func sendUnrequested(t *testing.T, netNSPath string, addr netip.Addr) {
	t.Helper()
	const payloadBytes, discard = 1000, 9
	var sender net.Conn
	must.Succeed(t, testbed.InNetNS(netNSPath, func() (err error) {
		sender, err = net.Dial("udp4", netip.AddrPortFrom(addr, discard).String())
		return err
	}))
	t.Cleanup(func() { sender.Close() })
	go sendAtRate(payloadBytes, 5*mbit, func() bool {
		_, err := sender.Write(make([]byte, payloadBytes)) // some are refused
		return !errors.Is(err, net.ErrClosed)
	})
}

// TestIncomingAtBridge: where containers are ports of the uplink, Weir's program that clears forged tags there keeps
// received traffic neither from being shared nor from an ok. What these containers send to the host is not shared.
func TestIncomingAtBridge(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{Attachment: testbed.AttachBridged})
	port := b.Add("port", nil)
	limited := b.AddMode("limited", testbed.ModeHost, map[string]string{"weir.in.max": "8mbit"})
	agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "containers", "--in-rate", "50mbit"}})
	downloads := &harness.Downloads{Bed: b}
	downloads.Start(limited, flooding)
	sendUnrequested(t, port.NetNSPath(), limited.Addr)
	for range 2 {
		b.WarmUp()
		checkDownloads(downloads, []uint64{8_000_000})
		if host := agent.Container("host").In.RateBPS; host > mbit {
			t.Errorf("the host receives %d bit/s over the uplink", host)
		}
		if got := agent.Container("limited"); got.State != v1.StateOK {
			t.Errorf("%s %q", got.State, got.Reason)
		}
		if reason := agent.Container("port").Reason; strings.Contains(reason, "weir_") || !strings.Contains(reason, "send to it is not shared") {
			t.Errorf("Weir is in its own way, or does not say what it misses: %s", reason)
		}
		time.Sleep(tapsInterval) // a check of the whole state has come by
	}
	// By then the program for the tags sees packets first, by tcx where the kernel has it.
	must.Succeed(t, testbed.InNetNS(b.Host.NetNSPath(), func() error {
		from, err := kernel.LinkByName("containers")
		if err != nil {
			return err
		}
		to, err := kernel.LinkByName("in-containers")
		if err != nil {
			return err
		}
		program, before, err := kernel.Redirect{From: from.Index, To: to.Index}.FindPlace("weir_incoming")
		if err != nil {
			return err
		}
		if program == nil || !slices.Contains(before, "weir_bridge") {
			t.Errorf("before packets are redirected, only these see them: %q", before)
		}
		return program.Close()
	}))
}

// TestVoiceComesInFirst: of what a container with class auto receives, what belongs to a flow of EF does not wait
// behind a download that is more than its share, and none of it is lost.
func TestVoiceComesInFirst(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{})
	mixed := b.Add("mixed", labels("class", "auto"))
	b.StartAgent(harness.AgentOptions{Args: []string{"--in-rate", "10mbit"}})
	const voicePort, downloadPort, queries = 53, 69, 150
	voice, download := talk(t, b, mixed, voicePort), talk(t, b, mixed, downloadPort)
	for !download.asked.Load() || !voice.asked.Load() {
		must.Succeed(t, errors.Join(download.ask(), voice.ask()))
		time.Sleep(10 * time.Millisecond)
	}
	go download.flood(1200, 15*mbit)
	time.Sleep(2 * time.Second) // the queue is full, and the classifier sure
	voice.take()
	download.take()
	for range queries {
		must.Succeed(t, voice.ask())
		voice.answer(160)
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	voiceDelays, downloadDelays := voice.take(), download.take()
	if len(voiceDelays) != queries {
		t.Errorf("%d of %d datagrams of EF arrived", len(voiceDelays), queries)
	}
	slices.Sort(voiceDelays)
	slices.Sort(downloadDelays)
	if ef, be := voiceDelays[len(voiceDelays)/2], downloadDelays[len(downloadDelays)/2]; ef > be/4 {
		t.Errorf("EF waits %v, the download %v", ef, be)
	} else {
		t.Logf("EF waits %v, the download %v", ef, be)
	}
}

// talking is a flow of a container with a server at the neighbour, whose datagrams carry when they were sent.
type talking struct {
	server net.PacketConn
	client *net.UDPConn
	asked  atomic.Bool
	from   atomic.Value // net.Addr
	quit   chan struct{}

	mu     sync.Mutex
	delays []time.Duration
}

func talk(t *testing.T, b *harness.Bed, c *harness.Container, port uint16) *talking {
	t.Helper()
	f, target := &talking{quit: make(chan struct{})}, netip.AddrPortFrom(c.PeerAddr, port)
	must.Succeed(t, testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		f.server, err = net.ListenPacket("udp4", target.String())
		return err
	}))
	must.Succeed(t, c.Enter(func() (err error) {
		f.client, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(target))
		return err
	}))
	t.Cleanup(func() {
		close(f.quit)
		must.Succeed(t, errors.Join(f.server.Close(), f.client.Close()))
	})
	go func() {
		buffer := make([]byte, 2000)
		for {
			_, from, err := f.server.ReadFrom(buffer)
			if err != nil {
				return // closed
			}
			f.from.Store(from)
			f.asked.Store(true)
		}
	}()
	go func() {
		buffer := make([]byte, 2000)
		for {
			if _, err := f.client.Read(buffer); err != nil {
				return // closed
			}
			delay := time.Duration(traffic.MonotonicNS() - int64(binary.NativeEndian.Uint64(buffer)))
			f.mu.Lock()
			f.delays = append(f.delays, delay)
			f.mu.Unlock()
		}
	}()
	return f
}

// ask sends a datagram of the container's.
func (f *talking) ask() error {
	_, err := f.client.Write(make([]byte, 160))
	return err
}

// answer sends a datagram to the container.
func (f *talking) answer(payloadBytes int) {
	payload := make([]byte, payloadBytes)
	binary.NativeEndian.PutUint64(payload, uint64(traffic.MonotonicNS()))
	_, _ = f.server.WriteTo(payload, f.from.Load().(net.Addr)) // an error is a loss, which is counted
}

// flood answers at a rate until the test ends.
func (f *talking) flood(payloadBytes int, bps float64) {
	sendAtRate(payloadBytes, bps, func() bool {
		select {
		case <-f.quit:
			return false
		default:
			f.answer(payloadBytes)
			return true
		}
	})
}

// sendAtRate calls send, which sends a payload, at a rate until send returns false. A kernel that hands the sender's buffers
// on lets send no more than arrives.
func sendAtRate(payloadBytes int, bps float64, send func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began, sent := time.Now(), 0; ; <-tick.C {
		for ; float64(sent*payloadBytes*8) < bps*time.Since(began).Seconds(); sent++ {
			if !send() {
				return
			}
		}
	}
}

// take returns the delays of what arrived since the last call.
func (f *talking) take() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.delays
	f.delays = nil
	return taken
}

// TestIncomingFollowsRoute: with uplink auto received traffic is shared at the device that the default
// route leads to, and nothing is left at the one before.
func TestIncomingFollowsRoute(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{})
	wayBeyond(t, b)
	limited := b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
	agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "auto", "--in-rate", "50mbit"}})
	awaitShared(b, agent, "uplink")
	otherDevice(b)
	awaitShared(b, agent, backup)
	if left := b.Run("tc", "filter", "show", "dev", "uplink", "ingress"); strings.TrimSpace(left) != "" {
		t.Errorf("left behind: %s", left)
	}
	if events := b.MustWeir("events"); strings.Contains(events, "the redirect of received packets") {
		t.Errorf("a move is a fault:\n%s", events)
	}
	limited.PeerAddr = backupPeer
	downloads := &harness.Downloads{Bed: b}
	downloads.Start(limited, flooding)
	b.WarmUp()
	checkDownloads(downloads, []uint64{8_000_000})
}

// TestIncomingLeavesUplink: where uplink auto finds no rate at the device that the default route leads to, or none for
// received traffic, nothing is redirected at the device before, also if the agent was away meanwhile. All is back with the
// route.
func TestIncomingLeavesUplink(t *testing.T) {
	noRate, noInRate := map[string]any{"uplink": "auto", "in_rate": "50mbit"}, map[string]any{"uplink": "auto", "rate": "20mbit", "in_rate": "auto"}
	for name, of := range map[string]struct {
		settings map[string]any
		// hasUplink: only the rate of received traffic is unknown, so the IFB stays. deleted: another program deletes it
		// while no agent runs.
		hasUplink, away, deleted bool
	}{
		"running": {noRate, false, false, false}, "restarted": {noRate, false, true, false},
		"running, no in rate": {noInRate, true, false, false}, "restarted, no in rate": {noInRate, true, true, false},
		"deleted": {noRate, false, true, true}, "deleted, no in rate": {noInRate, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := harness.NewBed(t, testbed.HostOptions{})
			b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
			start := func() *harness.Agent {
				return b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: of.settings})
			}
			agent := start()
			awaitShared(b, agent, "uplink")
			if !redirected(b) {
				t.Fatal("not redirected at first")
			}
			if of.away {
				agent.Kill()
			}
			if of.deleted {
				b.Run("ip", "link", "del", "in-auto")
			}
			before := strings.Fields(b.Run("ip", "route", "show", "default"))
			b.Run("ip", "tuntap", "add", "dev", "wwan0", "mode", "tun") // whose speed says nothing
			b.Run("ip", "link", "set", "wwan0", "up")
			b.Run("ip", "route", "replace", "default", "dev", "wwan0")
			if of.away {
				agent = start()
			}
			b.Await("the device before is left", 10*time.Second, func() (bool, string) {
				links := b.Run("ip", "link", "show", "type", "ifb")
				return !redirected(b) && (links == "" || of.hasUplink && !strings.Contains(links, "qdisc htb")), links
			})
			b.Run(append([]string{"ip", "route", "replace"}, before...)...)
			awaitShared(b, agent, "uplink")
			b.Await("redirected with the route back", 10*time.Second, func() (bool, string) { return redirected(b), agent.Said() })
		})
	}
}

// TestIncomingLeavesNoIFB: an IFB at which nothing is shared, because no rate is known, goes with weir down when no
// agent runs, and at the start of one that does not share received traffic.
func TestIncomingLeavesNoIFB(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{})
	b.Run("ip", "tuntap", "add", "dev", "wwan0", "mode", "tun") // whose speed says nothing
	b.Run("ip", "link", "set", "wwan0", "up")
	b.Run("ip", "route", "replace", "default", "dev", "wwan0")
	settings := map[string]any{"uplink": "auto", "rate": "20mbit", "in_rate": "auto"}
	ifbs := func() string { return b.Run("ip", "link", "show", "type", "ifb") }
	for _, end := range []struct {
		name string
		do   func()
	}{
		{"weir down", func() { b.MustWeir("down", "--state-dir", b.Files.StateDir()) }},
		{"an agent without in_rate", func() {
			b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: map[string]any{"uplink": "auto", "rate": "20mbit"}}).Kill()
		}},
	} {
		agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings})
		if status := agent.Status(); !strings.Contains(status.Reason, "received traffic: wwan0 does not report its speed") || ifbs() == "" {
			t.Errorf("%q, IFBs: %s", status.Reason, ifbs())
		}
		_ = agent.End(syscall.SIGTERM, 5*time.Second)
		if end.do(); ifbs() != "" {
			t.Errorf("%s leaves %s", end.name, ifbs())
		}
	}
	// Another program deletes the IFB while no agent runs, and the next agent does not know a rate.
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: map[string]any{"uplink": "auto", "rate": "20mbit", "in_rate": "40mbit"}})
	filters := func() string { return b.Run("tc", "filter", "show", "dev", "wwan0", "ingress") }
	if !strings.Contains(filters(), "weir_incoming") {
		t.Errorf("filters: %s", filters())
	}
	_ = agent.End(syscall.SIGTERM, 5*time.Second)
	b.Run("ip", "link", "del", "in-auto")
	agent = b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings})
	b.MustWeir("down")
	agent.Ended()
	if ifbs() != "" || strings.Contains(filters(), "weir_incoming") {
		t.Errorf("left: %s, %s", ifbs(), filters())
	}
}

// TestIncomingFailures: a deleted IFB is made again, and a redirect that is gone put back; nothing is
// shared past a program of others at the same hook unless that is wanted.
func TestIncomingFailures(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{})
	b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
	other := []string{"tc", "filter", "add", "dev", "uplink", "ingress", "pref", "77", "protocol", "ip", "u32", "match", "ip", "dport", "4242", "0xffff", "flowid", "1:7"}
	agent := shareIncoming(b, nil)
	b.Run("ip", "link", "del", "in-uplink")
	b.Await("the IFB made again", 2*time.Second, func() (bool, string) {
		events := b.MustWeir("events")
		return strings.Contains(events, "in-uplink was deleted") && strings.Contains(b.Run("ip", "link", "show", "type", "ifb"), "in-uplink"), events
	})
	b.Run("ip", "link", "set", "in-uplink", "down")
	b.Await("the IFB switched on", time.Second, func() (bool, string) {
		events := b.MustWeir("events")
		return strings.Contains(events, "in-uplink was switched off") && strings.Contains(b.Run("ip", "link", "show", "in-uplink"), ",UP"), events
	})
	b.Run("tc", "filter", "del", "dev", "uplink", "ingress")
	b.Await("the redirect put back", 4*time.Second, func() (bool, string) {
		events := b.MustWeir("events")
		return redirected(b) && strings.Contains(events, "repaired uplink: the redirect of received packets to in-uplink was gone"), events
	})
	if said := agent.Said(); strings.Contains(said, "in-uplink sends nothing") {
		t.Errorf("switched on again, the IFB has a problem:\n%s", said)
	}
	_ = agent.End(syscall.SIGTERM, 5*time.Second)
	settings := map[string]any{"uplink": "uplink", "rate": "100mbit", "in_rate": "50mbit"}
	agent = b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings})
	chain := "add table netdev fw; add chain netdev fw in { type filter hook ingress device uplink priority 0; }"
	for name, program := range map[string]struct {
		is string
		// before: it comes before Weir, whatever Weir does.
		before bool
		add    func(t *testing.T) (remove func())
	}{
		"filter": {"u32 filter", false, func(*testing.T) func() {
			b.Run(other...)
			return func() { b.Run("tc", "filter", "del", "dev", "uplink", "ingress", "pref", "77") }
		}},
		"policer": {"u32 filter", false, func(t *testing.T) func() {
			police(t, b, "77")
			return func() { b.Run("tc", "filter", "del", "dev", "uplink", "ingress", "pref", "77") }
		}},
		"nftables": {"nftables chain fw in", false, func(t *testing.T) func() {
			if _, err := exec.LookPath("nft"); err != nil {
				t.Skip("needs nft (package nftables)")
			}
			b.Run("nft", chain)
			return func() { b.Run("nft", "delete table netdev fw") }
		}},
		"tcx": {"firewall", true, func(t *testing.T) func() {
			remove := passByTCX(t, b, "firewall")
			if remove == nil {
				t.Skip("needs tcx (Linux 6.6)")
			}
			return remove
		}},
	} {
		t.Run(name, func(t *testing.T) {
			remove := program.add(t)
			limited, took := agent.AwaitContainer("limited", "the "+program.is+" is seen", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateDegraded })
			t.Logf("seen after %v: %s", took, limited.Reason)
			if !strings.Contains(limited.Reason, program.is+" at ingress of uplink") || !strings.Contains(limited.Reason, "in_force") {
				t.Errorf("the reason is %q", limited.Reason)
			}
			if redirected(b) {
				t.Errorf("redirected past a %s", program.is)
			}
			settings["in_force"] = true
			b.WriteConfig(settings)
			b.MustWeir("reload")
			wantState := v1.StateOK
			if program.before {
				wantState = v1.StateDegraded
			}
			if got := agent.Container("limited"); got.State != wantState || strings.Contains(got.Reason, comesBefore) != program.before || !redirected(b) {
				t.Errorf("with in_force: %s %q, redirected: %v", got.State, got.Reason, redirected(b))
			}
			delete(settings, "in_force")
			b.WriteConfig(settings)
			b.MustWeir("reload")
			if redirected(b) {
				t.Errorf("redirected past a %s without in_force", program.is)
			}
			remove()
			agent.AwaitContainer("limited", "nothing of others is left", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateOK })
		})
	}
	// What an agent that died has left is found without its IFB, too.
	agent.Kill()
	b.Run("ip", "link", "del", "in-uplink")
	b.MustWeir("down")
	if redirected(b) {
		t.Error("weir down left the redirect to an IFB that was gone")
	}
}

// police drops what the uplink receives above a rate, as a filter of that preference.
func police(t *testing.T, b *harness.Bed, preference string) {
	t.Helper()
	out, err := b.Host.Command(t.Context(), "tc", "filter", "add", "dev", "uplink", "ingress", "pref", preference, "protocol", "all",
		"u32", "match", "u32", "0", "0", "police", "rate", "40mbit", "burst", "100k", "conform-exceed", "drop/ok").CombinedOutput()
	if strings.Contains(string(out), "Failed to load TC action module") {
		t.Skip("needs act_police")
	}
	if err != nil {
		t.Fatalf("add a policer: %v: %s", err, out)
	}
}

// TestIncomingBehindFirstFilter: where another's filter has the place before all, nothing is shared, and the reason
// names the filter; with in_force it says what Weir needs. Without the filter all is as it should be.
func TestIncomingBehindFirstFilter(t *testing.T) {
	for name, add := range map[string]func(*testing.T, *harness.Bed){
		"filter": func(_ *testing.T, b *harness.Bed) {
			b.Run("tc", "filter", "add", "dev", "uplink", "ingress", "pref", "1", "protocol", "ip", "u32", "match", "ip", "dport", "4242", "0xffff", "flowid", "1:7")
		},
		"policer": func(t *testing.T, b *harness.Bed) { police(t, b, "1") },
	} {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{})
			b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
			b.Run("tc", "qdisc", "add", "dev", "uplink", "clsact")
			add(t, b)
			settings := map[string]any{"uplink": "uplink", "rate": "100mbit", "in_rate": "50mbit"}
			agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings})
			says := func(text string) {
				t.Helper()
				got := agent.Container("limited")
				if got.State != v1.StateDegraded || !strings.Contains(got.Reason, text) || redirected(b) {
					t.Errorf("%s %q, redirected: %v, want it to say %q", got.State, got.Reason, redirected(b), text)
				}
			}
			says("u32 filter at ingress of uplink")
			settings["in_force"] = true
			b.WriteConfig(settings)
			b.MustWeir("reload")
			says("a u32 filter has preference 1")
			b.Run("tc", "filter", "del", "dev", "uplink", "ingress", "pref", "1")
			agent.AwaitContainer("limited", "shared", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateOK })
			if !redirected(b) {
				t.Error("not redirected")
			}
		})
	}
}

// comesBefore is what the reason says of a program that comes before Weir's redirect.
const comesBefore = "at ingress of uplink sees packets before Weir"

// TestIncomingForcedBehind: with in_force a program that takes the place before Weir's redirect, and then keeps all
// packets from it, is named until it is gone.
func TestIncomingForcedBehind(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{})
	b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
	settings := map[string]any{"uplink": "uplink", "rate": "100mbit", "in_rate": "50mbit", "in_force": true}
	agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: settings})
	for name, program := range map[string]struct {
		is  string
		add func(t *testing.T) (remove func())
	}{
		"tcx": {"firewall", func(t *testing.T) func() {
			remove := passByTCX(t, b, "firewall")
			if remove == nil {
				t.Skip("needs tcx (Linux 6.6)")
			}
			return remove
		}},
		"filter": {"bpf filter", func(*testing.T) func() {
			// Of filters with one preference the last one that was added comes first.
			b.Run("tc", "filter", "add", "dev", "uplink", "ingress", "pref", "1", "handle", "1", "bpf", "direct-action", "bytecode", "1,6 0 0 0,")
			return func() {
				b.Run("tc", "filter", "del", "dev", "uplink", "ingress", "pref", "1", "protocol", "all", "handle", "1", "bpf")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			agent.AwaitContainer("limited", "shared", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateOK })
			remove := program.add(t)
			limited, _ := agent.AwaitContainer("limited", "the "+program.is+" is seen", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateDegraded })
			if !strings.Contains(limited.Reason, program.is+" "+comesBefore) || !redirected(b) {
				t.Errorf("redirected: %v, the reason is %q", redirected(b), limited.Reason)
			}
			remove()
			agent.AwaitContainer("limited", "nothing comes before", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateOK })
		})
	}
}

// passByTCX attaches a program that lets everything pass to the uplink's ingress, where tcx programs come before
// filters; nil on kernels without tcx.
func passByTCX(t *testing.T, b *harness.Bed, name string) (remove func()) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	must.Succeed(t, err)
	var attached link.Link
	err = testbed.InNetNS(b.Host.NetNSPath(), func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Interface: b.UplinkIndex(), Program: program, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		must.Succeed(t, program.Close())
		return nil
	}
	must.Succeed(t, err)
	return func() { must.Succeed(t, errors.Join(attached.Close(), program.Close())) }
}

// TestXDPAtUplink: an XDP program at an uplink or below it, which may take packets before anything of Weir's
// sees them, is named by doctor if received packets are shared: it sees no others.
func TestXDPAtUplink(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		options     testbed.HostOptions
		uplink, has string
	}{
		"card":           {testbed.HostOptions{}, "uplink", "uplink"},
		"macvlan":        {testbed.HostOptions{}, "upper", "uplink"},
		"VLAN":           {testbed.HostOptions{Link: testbed.LinkVLAN}, "uplink", "wire0"},
		"bond":           {testbed.HostOptions{Link: testbed.LinkBond}, "uplink", "wire1"},
		"bridge of VLAN": {testbed.HostOptions{Attachment: testbed.AttachBridged, Link: testbed.LinkVLAN}, "containers", "wire0"},
	} {
		t.Run(name, func(t *testing.T) { testXDPAtUplink(t, harness.NewBed(t, of.options), of.uplink, of.has) })
	}
}

func testXDPAtUplink(t *testing.T, b *harness.Bed, uplink, has string) {
	if uplink == "upper" {
		b.Run("ip", "link", "add", "link", "uplink", "name", uplink, "up", "type", "macvlan")
	}
	agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", uplink, "--in-rate", "50mbit"}})
	said := func() string { return regexp.MustCompile(`(?m)^xdp .*`).FindString(b.Weir("doctor").Stdout) }
	if line := said(); !strings.Contains(line, " ok ") {
		t.Errorf("without a program: %q", line)
	}
	const pass = 2 // XDP_PASS in linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	must.Succeed(t, err)
	defer program.Close()
	must.Succeed(t, testbed.InNetNS(b.Host.NetNSPath(), func() error {
		device, err := netlink.LinkByName(has)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFd(device, program.FD())
	}))
	if line := said(); !strings.Contains(line, " limited ") || !strings.Contains(line, "at "+has+" ") {
		t.Errorf("with a program: %q", line)
	}
	_ = agent.End(syscall.SIGTERM, 5*time.Second)
	b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", uplink}})
	if line := said(); line != "" {
		t.Errorf("received packets are not shared: %q", line)
	}
}

// TestFlowTableAtUplink: a flow table of nftables at the uplink ends sharing, which weir ps says; one at a device below
// takes packets that the uplink would have received, which doctor says.
func TestFlowTableAtUplink(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft (package nftables)")
	}
	for name, of := range map[string]struct {
		options testbed.HostOptions
		at      string
	}{
		"card": {testbed.HostOptions{}, "uplink"},
		"VLAN": {testbed.HostOptions{Link: testbed.LinkVLAN}, "wire0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, of.options)
			b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
			agent := b.StartAgent(harness.AgentOptions{Args: []string{"--uplink", "uplink", "--in-rate", "50mbit"}})
			said := func() string { return regexp.MustCompile(`(?m)^offload .*`).FindString(b.Weir("doctor").Stdout) }
			if line := said(); !strings.Contains(line, " ok ") {
				t.Errorf("without a flow table: %q", line)
			}
			out, err := b.Host.Command(t.Context(), "nft", "add table inet fw; add flowtable inet fw fast { hook ingress priority 0; devices = { "+of.at+" }; }").CombinedOutput()
			if err != nil {
				t.Skipf("this kernel has no flow tables: %s", out)
			}
			if of.at == "uplink" {
				limited, _ := agent.AwaitContainer("limited", "the flow table is seen", 8*time.Second, func(c v1.Container) bool { return c.State == v1.StateDegraded })
				if !strings.Contains(limited.Reason, "nftables flow table fw fast at ingress of uplink") || redirected(b) {
					t.Errorf("redirected: %v, the reason is %q", redirected(b), limited.Reason)
				}
			}
			if line := said(); strings.Contains(line, "nftables flow table fw fast at wire0") != (of.at == "wire0") {
				t.Errorf("with a flow table at %s: %q", of.at, line)
			}
		})
	}
}

func redirected(b *harness.Bed) bool {
	return strings.Contains(b.Run("tc", "filter", "show", "dev", "uplink", "ingress"), "weir_incoming")
}

// TestIncomingRestartIsNotNoticed: while the agent ends, is away and comes back, and while another rate comes into
// force, not a packet of a container within its shares is lost, sent or received, though others flood; and what is
// counted goes on, in both directions.
func TestIncomingRestartIsNotNoticed(t *testing.T) {
	ways := map[string]func(*harness.Bed, *harness.Agent) *harness.Agent{"reload": reloadedSlower}
	for _, restart := range restarts {
		ways[restart.name] = func(b *harness.Bed, agent *harness.Agent) *harness.Agent {
			restart.end(agent)
			time.Sleep(200 * time.Millisecond)
			return b.StartAgent(harness.AgentOptions{UplinksInConfig: true, KeepConfig: true})
		}
	}
	for name, change := range ways {
		t.Run(name, func(t *testing.T) {
			b := harness.NewBed(t, testbed.HostOptions{})
			careful := b.Add("careful", map[string]string{"weir.min": "20mbit", "weir.in.min": "20mbit"})
			flooded := b.Add("flooded", nil)
			agent := b.StartAgent(harness.AgentOptions{UplinksInConfig: true, Settings: bothShared("100mbit", "50mbit")})
			b.Send(flooded, harness.Flood)
			(&harness.Downloads{Bed: b}).Start(flooded, flooding)
			time.Sleep(500 * time.Millisecond)
			sent, received := startSequence(t, b, careful), startReceived(t, b, careful)
			time.Sleep(300 * time.Millisecond)
			before := agent.Container("flooded")
			agent = change(b, agent)
			first := agent.Container("flooded")
			time.Sleep(500 * time.Millisecond)
			after := agent.Container("flooded")
			for i, list := range [][]v1.Direction{{before.Direction, first.Direction, after.Direction}, {*before.In, *first.In, *after.In}} {
				if was, is, later := list[0], list[1], list[2]; is.SentBytes < was.SentBytes || later.SentBytes < is.SentBytes+1e6 || is.DroppedPackets < was.DroppedPackets || was.DroppedPackets == 0 {
					t.Errorf("the flood, in direction %d, had %d bytes and %d drops, then %d and %d, then %d bytes", i, was.SentBytes, was.DroppedPackets, is.SentBytes, is.DroppedPackets, later.SentBytes)
				}
			}
			if late := sent.stopInAnyOrder(t) + received.stopInAnyOrder(t); late > 0 {
				t.Logf("%d packets came late", late)
			}
			// All frames, and once; the container has sent one datagram more, which asked.
			const frameBytes = sequenceBytes + 14 + 20 + 8
			got, _ := agent.AwaitContainer("careful", "all counted", 2*time.Second, func(c v1.Container) bool {
				return c.SentBytes >= sent.total*frameBytes && c.In.SentBytes >= received.total*frameBytes
			})
			for direction, excess := range map[string]uint64{"sent": got.SentBytes - sent.total*frameBytes, "received": got.In.SentBytes - received.total*frameBytes} {
				if excess >= frameBytes {
					t.Errorf("of what was %s %d bytes are counted twice", direction, excess)
				}
			}
			if got.DroppedPackets+got.In.DroppedPackets != 0 || got.State != v1.StateOK {
				t.Errorf("dropped %d and %d; %s %q", got.DroppedPackets, got.In.DroppedPackets, got.State, got.Reason)
			}
		})
	}
}

func bothShared(rate, inRate string) map[string]any {
	return map[string]any{"uplink": "uplink", "rate": rate, "in_rate": inRate}
}

func reloadedSlower(b *harness.Bed, agent *harness.Agent) *harness.Agent {
	b.WriteConfig(bothShared("90mbit", "45mbit"))
	b.MustWeir("reload")
	return agent
}

// TestIncomingFloodToNobody: a flood to a port that no container has is the host's, and not a packet of a container
// within its minimum is lost beside it.
func TestIncomingFloodToNobody(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{})
	careful := b.Add("careful", map[string]string{"weir.in.min": "20mbit"})
	agent := shareIncoming(b, nil)
	received := startReceived(t, b, careful)
	var conn net.PacketConn
	must.Succeed(t, testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		conn, err = net.ListenPacket("udp4", ":0")
		return err
	}))
	defer conn.Close()
	unused, payload := net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.Host.UplinkAddr(), 4242)), make([]byte, 1200)
	began := time.Now()
	sendAtRate(len(payload), 2*incomingBPS, func() bool {
		_, err := conn.WriteTo(payload, unused)
		must.Succeed(t, err)
		return time.Since(began) < 2*time.Second
	})
	host := agent.Container("host").In
	if host.DroppedPackets == 0 || host.RateBPS < incomingBPS/3 {
		t.Errorf("the host receives %d bit/s and %d packets are dropped", host.RateBPS, host.DroppedPackets)
	}
	received.stopInAnyOrder(t)
	const frameBytes = sequenceBytes + 14 + 20 + 8
	got, _ := agent.AwaitContainer("careful", "all counted", 2*time.Second, func(c v1.Container) bool { return c.In.SentBytes >= received.total*frameBytes })
	if got.In.SentBytes != received.total*frameBytes || got.In.DroppedPackets != 0 {
		t.Errorf("%d bytes are counted and %d packets dropped, of %d bytes", got.In.SentBytes, got.In.DroppedPackets, received.total*frameBytes)
	}
}

// TestIncomingRefused: a minimum of received traffic that does not fit is refused, and wherever that is shown it says
// of which direction it is, what fits and what to do. Sent traffic is not touched.
func TestIncomingRefused(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{})
	b.Add("first", map[string]string{"weir.in.min": "30mbit"})
	b.Add("second", map[string]string{"weir.in.min": "18mbit", "weir.min": "40mbit"})
	agent := shareIncoming(b, nil)
	// Of 50 the reserve is 2.5.
	const refused, advice = "received traffic: minimum 18mbit cannot be guaranteed: 17.5mbit is free", "ask for at most 17.5mbit or lower the minimum of another container"
	says := func(where, text string) {
		t.Helper()
		if text = strings.Join(strings.Fields(text), " "); !strings.Contains(text, refused) || !strings.Contains(text, advice) {
			t.Errorf("%s:\n%s", where, text)
		}
	}
	got := agent.Container("second")
	if got.State != v1.StateRejected || got.In.Shares[0].AdmittedBPS != 0 || got.Shares[0].AdmittedBPS != 40*mbit {
		t.Errorf("%+v", got)
	}
	says("weir ps -o json", got.Reason)
	says("weir ps", b.MustWeir("ps"))
	says("the agent's log", agent.Said())
	explained := b.MustWeir("explain", "second")
	says("weir explain", strings.ReplaceAll(explained, "- ", ""))
	if _, in, _ := strings.Cut(explained, "Asks for, of received traffic"); !strings.Contains(in, "refused, none is in force") {
		t.Errorf("weir explain:\n%s", explained)
	}
	if doctor := b.Weir("doctor"); !strings.Contains(doctor.Stdout, "second (rejected)") {
		t.Errorf("weir doctor: %+v", doctor)
	}
	if result := b.Weir("set", "first", "--in-min", "48mbit"); result.Code != 1 || !strings.Contains(result.Stderr, "received traffic: minimum 48mbit cannot be guaranteed: 47.5mbit is free") {
		t.Errorf("weir set: %+v", result)
	}
	// As advised.
	b.MustWeir("set", "second", "--in-min", "17.5mbit")
	if got := agent.Container("second"); got.State != v1.StateOK || got.In.Shares[0].AdmittedBPS != 17_500_000 {
		t.Errorf("as advised: %+v", got)
	}
	b.MustWeir("reset", "second")
	agent.AwaitContainer("second", "refused again", 2*time.Second, func(c v1.Container) bool { return c.State == v1.StateRejected })
	says("weir events", b.MustWeir("events"))
}

// TestIncomingOnKernelWithout: where the kernel has no IFB, or cannot redirect to it, sent traffic is shared, received
// traffic arrives, and the reason says what the kernel lacks.
func TestIncomingOnKernelWithout(t *testing.T) {
	if kernel.ProbeRedirect() == nil {
		t.Skip("this kernel has IFB and mirred; machines of test/vm lack one of them")
	}
	b := harness.NewBed(t, testbed.HostOptions{})
	limited := b.Add("limited", map[string]string{"weir.max": "20mbit", "weir.in.max": "8mbit"})
	agent := shareIncoming(b, nil)
	got := agent.Container("limited")
	if got.State != v1.StateDegraded || !strings.Contains(got.Reason, "received traffic: ") || !strings.Contains(got.Reason, "modprobe ") {
		t.Errorf("%s %q", got.State, got.Reason)
	}
	if doctor := b.Weir("doctor").Stdout; !regexp.MustCompile(`(?m)^incoming +limited .*modprobe `).MatchString(doctor) {
		t.Errorf("weir doctor:\n%s", doctor)
	}
	if redirected(b) {
		t.Error("it is redirected")
	}
	sent, received := startSequence(t, b, limited), startReceived(t, b, limited)
	time.Sleep(time.Second)
	sent.stopInAnyOrder(t)
	received.stopInAnyOrder(t)
	agent.AwaitContainer("limited", "what goes out counted", 2*time.Second, func(c v1.Container) bool { return c.SentBytes > sent.total*sequenceBytes })
	b.MustWeir("down")
	agent.Ended()
	if left := b.Run("ip", "link", "show"); strings.Contains(left, "in-uplink") {
		t.Errorf("left behind: %s", left)
	}
}

// TestIncomingAfterRename: a maximum of received traffic stays in force when a container renames its interface, by
// bridge and by macvlan.
func TestIncomingAfterRename(t *testing.T) {
	b := harness.NewBed(t, testbed.HostOptions{})
	containers := []*harness.Container{
		b.Add("bridged", map[string]string{"weir.in.max": "8mbit"}),
		b.AddMode("macvlan", testbed.ModeMacvlan, map[string]string{"weir.in.max": "6mbit"}),
	}
	agent := shareIncoming(b, nil)
	downloads := &harness.Downloads{Bed: b}
	for _, c := range containers {
		must.Succeed(t, c.Enter(func() error {
			device, err := netlink.LinkByName(c.Interface())
			if err != nil {
				return err
			}
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: device.Attrs().Index, Protocol: unix.RTPROT_BOOT}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
			// Before Linux 6.2 one that is up cannot be renamed, and its routes go when it is switched off.
			err = errors.Join(err, netlink.LinkSetDown(device), netlink.LinkSetName(device, "renamed"), netlink.LinkSetUp(device))
			for i := range routes {
				err = errors.Join(err, netlink.RouteReplace(&routes[i]))
			}
			return err
		}))
		downloads.Start(c, flooding)
	}
	b.WarmUp()
	checkDownloads(downloads, []uint64{8_000_000, 6_000_000})
	time.Sleep(time.Second) // a check of the whole state has come by
	for _, c := range containers {
		if got := agent.Container(c.Name); got.State != v1.StateOK {
			t.Errorf("%s: %s %q", c.Name, got.State, got.Reason)
		}
	}
}

// TestIncomingWithoutRate: values for received traffic say that they have no effect, and what to do: weir ps while that is so,
// the log and the events once.
func TestIncomingWithoutRate(t *testing.T) {
	t.Parallel()
	b := harness.NewBed(t, testbed.HostOptions{})
	limited := b.Add("limited", map[string]string{"weir.in.max": "8mbit"})
	b.Add("plain", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	b.MustWeir("set", "plain", "--in-max", "8mbit")
	const advice = "have no effect at uplink: give --in-rate, or in_rate in the config file"
	for _, name := range []string{"limited", "plain"} {
		if got := agent.Container(name); got.State != v1.StateDegraded || !strings.Contains(got.Reason, advice) {
			t.Errorf("%s: %s %q", name, got.State, got.Reason)
		}
	}
	b.Send(limited, harness.Flood) // the loop looks again and again
	time.Sleep(2 * time.Second)    // as do checks of the whole state
	if said := agent.Said(); strings.Count(said, advice) != 2 {
		t.Errorf("the log says it %d times, want once for each:\n%s", strings.Count(said, advice), said)
	}
	if events := b.MustWeir("events"); strings.Count(events, advice) != 2 || !strings.Contains(events, "degraded plain") || !strings.Contains(events, "degraded limited") {
		t.Errorf("weir events:\n%s", events)
	}
}
