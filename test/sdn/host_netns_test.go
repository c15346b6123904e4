//go:build netns

package sdn

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// containerHost is a host at a port of a switch with an agent and a container.
type containerHost struct {
	b                          *bed
	space, container, receiver *testbed.Process
	socket                     string
}

// runAgent starts an agent at the first host, with a container behind it.
func (b *bed) runAgent(host, receiver *testbed.Process, policy map[string]any) *containerHost {
	t := b.t
	t.Helper()
	h := &containerHost{b: b, space: host, receiver: receiver, socket: b.path("agent.sock")}
	var err error
	h.container, err = b.AddContainer(t.Context(), host, 0)
	must.Succeed(t, err)
	config, err := json.Marshal(map[string]any{"containers": []any{map[string]any{"name": "pbx", "netns": h.container.NetNSPath(), "policy": policy}}})
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(b.path("weir.yaml"), config, 0o600))
	agent, err := b.Start(host, harness.Program(t), "agent", "--uplink", "eth0", "--rate", "200mbit", "--config", b.path("weir.yaml"),
		"--socket", h.socket, "--state-dir", b.path("state"), "--docker", "none", "--podman", "none")
	must.Succeed(t, err)
	t.Cleanup(func() {
		endProcess(agent, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the agent: %s", tail(agent.Said(), 3000))
		}
	})
	b.wait("the container", 30*time.Second, func() error {
		out, err := b.do(harness.Program(t), "ps", "--socket", h.socket, "-o", "json")
		var list []v1.Container
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		for _, c := range list {
			if c.Name == "pbx" && c.State == "ok" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it is %s", out))
	})
	return h
}

// arrival is a datagram with the time that is in it.
type arrival struct {
	tos   int
	bytes int
	took  time.Duration
}

// arrivals sends datagrams to a port of the receiver and returns those that arrive, in order.
func (h *containerHost) arrivals(port int, send func(write func(bytes int))) []arrival {
	b := h.b
	b.t.Helper()
	var server *net.UDPConn
	b.in(h.receiver, func() (err error) {
		if server, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP("198.18.66.2"), Port: port}); err == nil {
			err = readBuffer(server, 16<<20)
		}
		return err
	})
	raw, err := server.SyscallConn()
	must.Succeed(b.t, err)
	must.Succeed(b.t, errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1) }), err))
	all := make(chan []arrival)
	go func() {
		var list []arrival
		data, control := make([]byte, 2000), make([]byte, 100)
		for {
			n, c, _, _, err := server.ReadMsgUDP(data, control)
			if err != nil {
				all <- list
				return
			}
			messages, err := unix.ParseSocketControlMessage(control[:c])
			if err == nil && len(messages) == 1 && n >= 8 {
				list = append(list, arrival{int(messages[0].Data[0]), n + 42, time.Since(epoch) - time.Duration(binary.BigEndian.Uint64(data))})
			}
		}
	}()
	client := b.markedSocket(h.container, "198.18.66.2", port, 0)
	packet := make([]byte, 2000)
	send(func(bytes int) {
		binary.BigEndian.PutUint64(packet, uint64(time.Since(epoch)))
		_, _ = client.Write(packet[:bytes])
	})
	time.Sleep(time.Second)
	server.Close()
	return <-all
}

// every calls do at a rate for some time.
func every(perSecond float64, during time.Duration, do func()) {
	for began, n := time.Now(), 0; time.Since(began) < during; time.Sleep(time.Millisecond) {
		for due := int(perSecond * time.Since(began).Seconds()); n < due; n++ {
			do()
		}
	}
}

// TestTrustKernel: what a host's agent knows is what the switches do. EF on a port of SMTP, which a switch
// would call BE, goes through EF's queue of each switch beside bulk that wants more than the link has, by a
// label as by what the agent alone recognises; and a flow that the agent demotes is in BE's queue from its
// first packet without the mark.
func TestTrustKernel(t *testing.T) {
	kernelDatapath(t)
	if !harness.SteadyClock() {
		t.Skip("delays are judged by the clock of a machine that is emulated: the suite vm has one")
	}
	b := newKernelBed(t)
	b.startWeir("--trust", "p1", "--trust", "p2", "--ovsdb", b.database(), "--rate", "20mbit")
	b.twoBridges()
	h1, h2 := b.host("br1", "p1", 9, "198.18.66.1"), b.host("br2", "p2", 9, "198.18.66.2")
	b.reach(h1, "198.18.66.2")
	h := b.runAgent(h1, h2, map[string]any{"class": "ef", "dscp": "mark"})
	b.reach(h.container, "198.18.66.2")
	b.wait("a link, trust and queues", 20*time.Second, func() error {
		if n := len(b.status().Links); n != 1 {
			return fmt.Errorf("%d links", n)
		}
		for _, name := range []string{"p1", "c12", "p2"} {
			if p := b.port(name); p.State != "ok" || len(p.Queues) != 3 || name != "c12" && (p.Trust == nil || p.Trust.Refused != "") {
				return fmt.Errorf("%s is %+v", name, p)
			}
		}
		return nil
	})

	h.besideBulk("labelled as EF", 500, efBytes)
	b.must(harness.Program(t), "set", "pbx", "--class", "auto", "--socket", h.socket)
	h.besideBulk("recognised as EF", 50, 172) // a call
	var flows []v1.Flow
	must.Succeed(t, json.Unmarshal([]byte(b.must(harness.Program(t), "flows", "pbx", "-o", "json", "--socket", h.socket)), &flows))
	if !slices.ContainsFunc(flows, func(f v1.Flow) bool {
		return f.Responder == fmt.Sprint("198.18.66.2:", bePort) && f.Class == v1.ClassEF && f.Stage == 2
	}) {
		t.Errorf("the agent has not recognised the call by its packets: %+v", flows)
	}

	before, _ := b.classBytes("p2")
	list := h.arrivals(efPort, func(write func(int)) {
		every(50, 2*time.Second, func() { write(100) })
		every(700, 2*time.Second, func() { write(1300) }) // 7.5 Mbit/s
	})
	after, _ := b.classBytes("p2")
	b.demoted(list, after["ef"]-before["ef"], after["be"]-before["be"])
}

// besideBulk: what the container sends to a port of SMTP arrives with EF's mark, by the queue of EF at each
// switch, and waits little beside a stream in the queue of bulk of the host. A call's first packets, which
// are not recognised yet, are sent before the bulk begins.
func (h *containerHost) besideBulk(what string, perSecond float64, bytes int) {
	const rateBPS, alone, measured = 20e6, time.Second, 3 * time.Second
	b, t, onPath := h.b, h.b.t, []string{"c12", "p2"}
	t.Helper()
	ef := func() (sent []uint64) {
		for _, port := range onPath {
			classes, _ := b.classBytes(port)
			sent = append(sent, classes["ef"])
		}
		return sent
	}
	var bulkBPS float64
	var bulkDelay time.Duration
	before, sent, first := ef(), 0, 0
	list := h.arrivals(bePort, func(write func(int)) {
		send := func() { write(bytes); sent++ }
		every(perSecond, alone, send)
		first = sent
		bulk, stop := b.bulk(h.space, h.receiver, afPort, 8)
		defer stop()
		within := b.voice(h.space, h.receiver, 5001, 500e3) // of the host, without marks
		every(perSecond, 2*time.Second, send)
		within.measuring.Store(true)
		arrived, began := bulk.Load(), time.Now()
		every(perSecond, measured, send)
		bulkBPS = 8 * float64(bulk.Load()-arrived) / time.Since(began).Seconds()
		bulkDelay, _, _ = within.delays()
		within.stop()
	})
	marked, unmarked, octets := []time.Duration{}, 0, uint64(0)
	for i, a := range list {
		if a.tos != tosEF {
			unmarked++
			continue
		}
		octets += uint64(a.bytes)
		if i >= first {
			marked = append(marked, a.took)
		}
	}
	slices.Sort(marked)
	if len(list) < sent || len(marked) < sent-first {
		t.Fatalf("%s: of %d packets %d arrived, %d of %d with EF's mark beside bulk", what, sent, len(list), len(marked), sent-first)
	}
	p99 := marked[len(marked)*99/100]
	t.Logf("%s: of %d packets none is lost and the first %d have no mark; delay %v (p99) beside %v of bulk, 1 : %.0f; bulk has %.2f Mbit/s", what, sent, unmarked, p99, bulkDelay, bulkDelay.Seconds()/p99.Seconds(), bulkBPS/1e6)
	if efBPS := perSecond * 8 * float64(bytes+42); bulkBPS < 0.6*(rateBPS-efBPS) || p99 > bulkDelay/10 {
		t.Errorf("%s: it does not have its queue beside bulk", what)
	}
	for i, now := range ef() {
		if n := now - before[i]; n < octets || n > octets+octets/10+5000 {
			t.Errorf("%s: EF's class of %s sent %d bytes, and %d arrived with its mark", what, onPath[i], n, octets)
		}
	}
}

// demoted: the packets of a flow have EF's mark until it is too much, and none from then on; each was
// served as marked, and the first that is BE came through as the others.
func (b *bed) demoted(list []arrival, ef, be uint64) {
	t := b.t
	t.Helper()
	byMark, first := map[int]uint64{}, -1
	for i, a := range list {
		byMark[a.tos] += uint64(a.bytes)
		if a.tos == 0 && first < 0 {
			first = i
		}
		if first >= 0 && a.tos != 0 {
			t.Errorf("packet %d is marked again", i)
		}
	}
	if first < 80 || first > 300 {
		t.Fatalf("of %d packets the agent demoted the %dth; by mark %v", len(list), first, byMark)
	}
	t.Logf("of %d packets the agent demoted the %dth, which took %v; by mark %v, EF's class sent %d bytes, BE's %d", len(list), first, list[first].took, byMark, ef, be)
	if list[first].took > 100*time.Millisecond {
		t.Errorf("the first packet of BE took %v", list[first].took)
	}
	for class, has := range map[string][2]uint64{"ef": {ef, byMark[tosEF]}, "be": {be, byMark[0]}} {
		if has[0] < has[1] || has[0] > has[1]+has[1]/10+5000 {
			t.Errorf("%s's class sent %d bytes, and %d arrived with its mark", class, has[0], has[1])
		}
	}
}

// TestDemotedAtHost: what an agent demotes is BE on the switch from its first packet without the mark, which
// takes no longer than others: it is another flow to the datapath, which waits for no revalidation.
func TestDemotedAtHost(t *testing.T) {
	b := newBed(t)
	b.startWeir("--trust", "p1", "--rate", "20mbit")
	h1, h2 := b.twoHosts()
	h := b.runAgent(h1, h2, map[string]any{"class": "auto", "dscp": "mark"})
	b.reach(h.container, "198.18.66.2")
	b.wait("trust", 10*time.Second, func() error {
		if s := b.trustState("p1"); s.Refused != "" {
			return errors.New(s.Refused)
		}
		return nil
	})
	harness.CheckSteady(t, func() error {
		list := h.arrivals(efPort, func(write func(int)) {
			every(50, 2*time.Second, func() { write(100) })
			every(700, 2*time.Second, func() { write(1300) })
		})
		first := slices.IndexFunc(list, func(a arrival) bool { return a.tos == 0 })
		if first < 1 || list[first-1].tos != tosEF {
			t.Fatalf("of %d packets the %dth is the first without a mark", len(list), first)
		}
		t.Logf("of %d packets the agent demoted the %dth, which took %v, the one before %v", len(list), first, list[first].took, list[first-1].took)
		if late := list[first].took - list[first-1].took; late > 100*time.Millisecond {
			return fmt.Errorf("the first packet of BE took %v longer than the one before", late)
		}
		return nil
	})
}

// TestMuchEF: a container that pretends to send nothing but EF has no more than its own maximum of EF
// leave with the mark, and none of it is lost at the bound of its host's trusted port.
func TestMuchEF(t *testing.T) {
	const efMaxBPS, seconds = 2e6, 3
	b := newBed(t)
	must.Succeed(t, os.WriteFile(b.path("sdn.yaml"), []byte("trust: {00000000000000ab: [p1]}\nrate: 20mbit\n"), 0o600))
	b.startWeir("--config", b.path("sdn.yaml")) // a bound of 10
	h1, h2 := b.twoHosts()
	h := b.runAgent(h1, h2, map[string]any{"class": "ef", "ef-max": "2mbit", "dscp": "mark"})
	b.reach(h.container, "198.18.66.2")
	b.wait("trust", 10*time.Second, func() error {
		if s := b.trustState("p1"); s.Refused != "" {
			return errors.New(s.Refused)
		}
		return nil
	})
	byMark := map[int]float64{}
	for _, a := range h.arrivals(4000, func(write func(int)) { every(1500, seconds*time.Second, func() { write(1200) }) }) { // 15 Mbit/s
		byMark[a.tos] += 8 * float64(a.bytes) / seconds
	}
	t.Logf("bit/s by mark %v", byMark)
	if ef := byMark[tosEF]; ef == 0 || ef > 1.1*efMaxBPS || byMark[0] < efMaxBPS || len(byMark) != 2 {
		t.Errorf("%.0f bit/s leave as EF, of at most %.0f; by mark %v", ef, efMaxBPS, byMark)
	}
	if n := b.trustState("p1").EFDroppedPackets; n > 0 {
		t.Errorf("%d packets of EF were dropped at the port", n)
	}
	// The host itself is within no maximum, and what it loses at the switch its containers may lose, too.
	explain := func() string {
		out, err := b.Run(t.Context(), h1, harness.Program(t), "explain", "pbx", "--socket", h.socket)
		must.Succeed(t, err)
		return out
	}
	if out := explain(); strings.Contains(out, "port p1") {
		t.Errorf("nothing was dropped, but\n%s", out)
	}
	client := b.markedSocket(h1, "198.18.66.2", 4000, tosEF)
	defer client.Close()
	b.wait("weir explain names the port", 20*time.Second, func() error {
		every(2000, 500*time.Millisecond, func() { _, _ = client.Write(make([]byte, 1200)) }) // 20 Mbit/s
		if out := explain(); !strings.Contains(out, "port p1 of switch ab takes 10mbit of EF from all that is behind it, and has dropped") {
			return errors.New(out)
		}
		return nil
	})
}
