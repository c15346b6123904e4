//go:build netns

package sdn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// Marks, as the octet of the header that they are in.
const tosEF, tosAF, tosCS1 = 46 << 2, 34 << 2, 8 << 2

// markedSocket is a socket of UDP whose packets have a mark, which setTOS changes.
func (b *bed) markedSocket(from *testbed.Process, to string, port, tos int) *net.UDPConn {
	b.t.Helper()
	var client net.Conn
	b.in(from, func() (err error) {
		client, err = net.Dial("udp", net.JoinHostPort(to, strconv.Itoa(port)))
		return err
	})
	b.t.Cleanup(func() { client.Close() })
	setTOS(b.t, client.(*net.UDPConn), tos)
	return client.(*net.UDPConn)
}

func setTOS(t *testing.T, c *net.UDPConn, tos int) {
	t.Helper()
	raw, err := c.SyscallConn()
	must.Succeed(t, err)
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos) })
	must.Succeed(t, errors.Join(err, failed))
}

// octets has a host tell the mark of each datagram to a port of it.
func (b *bed) octets(at *testbed.Process, address string, port int) <-chan int {
	b.t.Helper()
	var server *net.UDPConn
	b.in(at, func() (err error) {
		server, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address), Port: port})
		return err
	})
	raw, err := server.SyscallConn()
	must.Succeed(b.t, err)
	must.Succeed(b.t, raw.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)) // all that comes while this process stands still
	}))
	must.Succeed(b.t, err)
	b.t.Cleanup(func() { server.Close() })
	seen := make(chan int, 1<<16)
	go func() {
		data, control := make([]byte, 2000), make([]byte, 100)
		for {
			_, n, _, _, err := server.ReadMsgUDP(data, control)
			if err != nil {
				close(seen)
				return
			}
			if list, err := unix.ParseSocketControlMessage(control[:n]); err == nil && len(list) == 1 {
				seen <- int(list[0].Data[0])
			}
		}
	}()
	return seen
}

// markOf is the mark of the next datagram that arrives.
func (b *bed) markOf(seen <-chan int, send func()) int {
	b.t.Helper()
	for len(seen) > 0 {
		<-seen
	}
	for range 20 {
		send()
		select {
		case tos := <-seen:
			return tos
		case <-time.After(250 * time.Millisecond):
		}
	}
	b.t.Fatal("nothing arrives")
	return 0
}

// counter is a counter of weir sdn ps.
func (b *bed) counter(name string) uint64 {
	b.t.Helper()
	for _, c := range b.status().Counters {
		if c.Name == name {
			return c.Value
		}
	}
	b.t.Fatalf("there is no counter %s", name)
	return 0
}

// hits are the packets of the entry of a bridge that has all of these words.
func (b *bed) hits(bridge string, words ...string) (n uint64) {
	b.t.Helper()
	line := lineWith(b.entries(bridge), words...)
	_, rest, found := strings.Cut(line, "n_packets=")
	if _, err := fmt.Sscanf(rest, "%d", &n); !found || err != nil {
		b.t.Fatalf("no entry with %q: %s", words, b.entries(bridge))
	}
	return n
}

// trustState is how weir sdn ps shows a port that is to be trusted.
func (b *bed) trustState(port string) v1.SDNTrust {
	b.t.Helper()
	p := b.port(port)
	if p.Trust == nil {
		b.t.Fatalf("%s is not to be trusted: %+v", port, p)
	}
	return *p.Trust
}

// queuedBy waits until packets of a socket go through the entry of a mark, and returns its queue.
func (b *bed) queuedBy(dscp int, queue string, send func()) {
	b.t.Helper()
	words := []string{"ip,nw_tos=" + strconv.Itoa(dscp<<2), "set_queue:" + queue}
	if lineWith(b.entries("br0"), words...) == "" {
		words[0] = "ip,ip_dscp=" + strconv.Itoa(dscp)
	}
	before := b.hits("br0", words...)
	for range 10 {
		send()
	}
	b.wait(fmt.Sprintf("packets with mark %d in queue %s", dscp, queue), 10*time.Second, func() error {
		if n := b.hits("br0", words...) - before; n < 10 {
			return fmt.Errorf("%d of 10", n)
		}
		return nil
	})
}

// TestTrustedPaths: of two paths that are as short, packets of a trusted port to hosts that are found while
// one is busy take the other.
func TestTrustedPaths(t *testing.T) {
	const hosts = 6
	b := newBed(t)
	b.startWeir("--trust", "h1", "--trust", "h2", "--ovsdb", b.database(), "--rate", "20mbit", "--stats-interval", "3s")
	for i := range 4 {
		b.bridge(fmt.Sprintf("br%d", i+1), 0xa1+i)
	}
	b.cable("br1", "c13", 3, "br3", "c31", 1)
	b.cable("br3", "c32", 2, "br2", "c23", 3)
	b.cable("br1", "c14", 4, "br4", "c41", 1)
	b.cable("br4", "c42", 2, "br2", "c24", 4)
	h1, h2 := b.host("br1", "h1", 9, "198.18.66.1"), b.host("br2", "h2", 9, "198.18.66.2")
	b.wait("links, trust and rates", 30*time.Second, func() error {
		if n := len(b.status().Links); n != 4 {
			return fmt.Errorf("%d of 4 links", n)
		}
		for _, name := range []string{"h1", "h2", "c13", "c14"} {
			if p := b.port(name); len(p.Queues) != 3 || p.Trust != nil && p.Trust.Refused != "" {
				return fmt.Errorf("%s is %+v", name, p)
			}
		}
		return nil
	})
	b.reach(h1, "198.18.66.2")
	leaves := func(to *testbed.Process) string {
		mac := strings.Fields(b.inSpace(to, "ip", "-br", "link", "show", "eth0"))[2]
		_, out, _ := strings.Cut(lineWith(b.entries("br1"), "table=4,", "dl_dst="+mac), "actions=output:")
		return strings.Trim(out, "\"")
	}
	busy := b.voice(h1, h2, 5000, 15e6) // 5 of 20 Mbit/s are idle
	defer busy.stop()
	awaitLoad := func() {
		b.wait("the load is known", 20*time.Second, func() error {
			l, err := client.NewSDN(b.control()).Links(t.Context())
			if err == nil && !slices.ContainsFunc(l.Links, func(one v1.SDNLinkDirection) bool {
				return one.DPID == "00000000000000a1" && one.PeerDPID != "" && one.SentBPS > 14e6
			}) {
				err = fmt.Errorf("%+v", l.Links)
			}
			return err
		})
	}
	n := 0
	harness.CheckSteady(t, func() error {
		for range hosts {
			n++
			awaitLoad()
			address := fmt.Sprint("198.18.66.", 10+n)
			h := b.host("br2", fmt.Sprint("x", n), 20+n, address)
			b.reach(h1, address)
			if out := leaves(h); out == "" || out == leaves(h2) {
				return fmt.Errorf("packets to host %d leave by %q, those of the load by %q", n, out, leaves(h2))
			}
		}
		return nil
	})
}

// TestTrust: what comes in at trusted ports is queued by its mark, without the controller, and a change
// of the mark counts at once; others have their marks set by the controller's verdict. EF above its
// bound is dropped, and counted at the port that it came in at.
func TestTrust(t *testing.T) {
	b := newBed(t)
	b.startWeir("--trust", "p1", "--trust", "00000000000000ab:p2", "--trust", "p9", "--rate", "100mbit", "--rate", "p2=10mbit")
	h1, h2 := b.twoHosts()
	h3 := b.host("br0", "p3", 3, "198.18.66.3")
	b.reach(h3, "198.18.66.2")
	b.wait("trust", 10*time.Second, func() error {
		if s := b.trustState("p1"); s.Refused != "" || s.EFBoundBPS != 50e6 {
			return fmt.Errorf("p1 is %+v", s)
		}
		if s := b.trustState("p2"); s.Refused != "" || s.EFBoundBPS != 5e6 {
			return fmt.Errorf("p2 is %+v", s)
		}
		return nil
	})
	if missing := b.status().MissingPorts; len(missing) != 1 || missing[0] != "p9" {
		t.Errorf("missing are %q", missing)
	}

	const port = 25 // to the classifier BE
	seen := b.octets(h2, "198.18.66.2", port)
	client := b.markedSocket(h1, "198.18.66.2", port, 0)
	send := func() { _, _ = client.Write(make([]byte, 100)) }
	b.markOf(seen, send)
	asked := b.counter("packet_ins")
	for _, c := range []struct {
		tos   int
		queue string
	}{{tosEF, "2"}, {tosAF, "1"}, {tosEF | 1, "2"}} {
		setTOS(t, client, c.tos)
		b.queuedBy(c.tos>>2, c.queue, send)
		if got := b.markOf(seen, send); got != c.tos {
			t.Errorf("octet %#x arrives as %#x", c.tos, got)
		}
	}
	if n := b.counter("packet_ins") - asked; n > 20 { // LLDP of hosts' ports does not come back
		t.Errorf("the controller got %d packets", n)
	}
	for _, f := range b.flows() {
		if strings.HasSuffix(f.Flow, ":25") {
			t.Errorf("a flow of a trusted port has an entry: %+v", f)
		}
	}

	// A forged mark of a port that is not trusted.
	forged := b.markedSocket(h3, "198.18.66.2", port, tosEF|2)
	if got := b.markOf(seen, func() { _, _ = forged.Write(make([]byte, 100)) }); got != 2 {
		t.Errorf("EF that h3 pretends arrives as %#x", got)
	}
	names := b.octets(h2, "198.18.66.2", 53)
	dns := b.markedSocket(h3, "198.18.66.2", 53, tosCS1)
	b.wait("the mark of DNS", 20*time.Second, func() error {
		if got := b.markOf(names, func() { _, _ = dns.Write(make([]byte, 100)) }); got != tosEF {
			return fmt.Errorf("it arrives as %#x", got)
		}
		return nil
	})

	b.floodEF(h2, h1)
	if n := b.counter("switch_errors"); n > 0 {
		t.Errorf("the switch has refused %d messages", n)
	}
}

// TestForgottenTables: a connected switch gets its entries again after another program has emptied its
// tables and meters: packets pass, marks choose queues, and EF is bounded.
func TestForgottenTables(t *testing.T) {
	b := newBed(t)
	b.startWeir("--trust", "p1", "--trust", "p2", "--rate", "100mbit", "--rate", "p2=10mbit", "--stats-interval", "1s")
	h1, h2 := b.twoHosts()
	b.reach(h1, "198.18.66.2")
	seen := b.octets(h2, "198.18.66.2", 25)
	client := b.markedSocket(h1, "198.18.66.2", 25, tosEF)
	send := func() { _, _ = client.Write(make([]byte, 100)) }
	b.markOf(seen, send)
	b.must("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "unix:"+b.path("br0.mgmt"))
	b.must("ovs-ofctl", "-O", "OpenFlow13", "del-meters", "unix:"+b.path("br0.mgmt"))
	began := time.Now()
	b.wait("packets", 10*time.Second, func() error {
		if n := b.ping(h1, "198.18.66.2", 1); n == 0 {
			return errors.New("none is answered")
		}
		return nil
	})
	t.Logf("packets pass again after %v", time.Since(began))
	if n := strings.Count(b.weir.Said(), "switch lost its entries: sending them again"); n != 1 {
		t.Errorf("the controller said %d times that it sends entries again", n)
	}
	b.queuedBy(46, "2", send)
	if got := b.markOf(seen, send); got != tosEF {
		t.Errorf("EF arrives as %#x", got)
	}
	b.wait("the bound of EF", 10*time.Second, func() error {
		if meters := b.must("ovs-ofctl", "-O", "OpenFlow13", "dump-meters", "unix:"+b.path("br0.mgmt")); !strings.Contains(meters, "rate=5000") {
			return fmt.Errorf("meters are %s", meters)
		}
		return nil
	})
}

// floodEF: 20 Mbit/s of EF at p2, whose bound is 5. More never pass. A switch that is short of processors
// gets fewer packets, and some time passes without any, so it has more than one chance to let that many pass.
func (b *bed) floodEF(from, to *testbed.Process) {
	t := b.t
	t.Helper()
	const frameBytes, seconds = 1242, 4
	const bound = "in_port=2 actions=meter"
	seen := b.octets(to, "198.18.66.1", 4000)
	client := b.markedSocket(from, "198.18.66.1", 4000, tosEF)
	defer client.Close()
	for attempt := 1; ; attempt++ {
		for len(seen) > 0 {
			<-seen
		}
		came, dropped, sent := b.hits("br0", bound), b.trustState("p2").EFDroppedPackets, 0
		began := time.Now()
		for ; time.Since(began) < seconds*time.Second; time.Sleep(time.Millisecond) {
			for due := int(20e6 / 8 / frameBytes * time.Since(began).Seconds()); sent < due; sent++ {
				_, _ = client.Write(make([]byte, frameBytes-42))
			}
		}
		time.Sleep(200 * time.Millisecond)
		passed := float64(len(seen)) * frameBytes * 8 / time.Since(began).Seconds()
		b.wait("the count of what was dropped", 10*time.Second, func() error {
			came, dropped := int(b.hits("br0", bound)-came), int(b.trustState("p2").EFDroppedPackets-dropped)
			if dropped < came-len(seen)-sent/50 || dropped > sent-len(seen) {
				return fmt.Errorf("%d; of %d packets %d have come to the switch and %d have passed", dropped, sent, came, len(seen))
			}
			return nil
		})
		t.Logf("of %d packets of EF %d passed: %.2f Mbit/s, %d dropped", sent, len(seen), passed/1e6, b.trustState("p2").EFDroppedPackets-dropped)
		if passed > 1.1*5e6 || passed < 0.9*5e6 && attempt == 5 {
			t.Errorf("%.2f Mbit/s of EF pass a bound of 5", passed/1e6)
		}
		if passed >= 0.9*5e6 || attempt == 5 {
			break
		}
	}
	if n := b.trustState("p1").EFDroppedPackets; n > 0 {
		t.Errorf("p1 has dropped %d", n)
	}
}

// TestTrustedFlows: flows of a trusted port cost the controller nothing: ten thousand new ones a second
// take less than a hundredth of a processor.
func TestTrustedFlows(t *testing.T) {
	b := newBed(t)
	b.startWeir("--trust", "p1", "--trust", "p2", "--rate", "1gbit", "--stats-interval", "5s")
	h1, h2 := b.twoHosts()
	b.reach(h1, "198.18.66.2")
	b.wait("trust", 10*time.Second, func() error {
		if s := b.trustState("p1"); s.Refused != "" {
			return errors.New(s.Refused)
		}
		return nil
	})
	time.Sleep(3 * time.Second) // what begins is over
	const flows, perSecond = 90_000, 10_000
	asked, spent, rx := b.counter("packet_ins"), b.processorTime(b.weir), b.received(h2)
	seconds, arrived := 0, uint64(0)
	// A switch that is short of processors forwards a part of them.
	for ; seconds < 10 || arrived < flows && seconds < harness.Patience*10; seconds++ {
		b.newFlows(h1, h2, seconds*perSecond, perSecond)
		arrived = b.received(h2) - rx
	}
	spent = b.processorTime(b.weir) - spent
	asked = b.counter("packet_ins") - asked
	t.Logf("%d new flows a second for %d s: the controller got %d packets and took %v, %.3f %% of a processor; %d packets arrived",
		perSecond, seconds, asked, spent, 100*spent.Seconds()/float64(seconds), arrived)
	if asked > 5*uint64(seconds) {
		t.Errorf("the controller got %d packets", asked)
	}
	if spent > time.Duration(seconds)*time.Second/100 {
		t.Errorf("the controller took %v in %d s", spent, seconds)
	}
	if arrived < flows {
		t.Errorf("%d packets arrived in %d s, want %d", arrived, seconds, flows)
	}
}

// processorTime is what a process has used.
func (b *bed) processorTime(p *testbed.Process) (sum time.Duration) {
	b.t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid()))
	must.Succeed(b.t, err)
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", p.Pid(), task.Name()))
		must.Succeed(b.t, err)
		var ns int64
		_, err = fmt.Sscan(string(text), &ns)
		must.Succeed(b.t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// received is how many packets a host has received.
func (b *bed) received(h *testbed.Process) (n uint64) {
	b.t.Helper()
	_, rest, _ := strings.Cut(b.inSpace(h, "cat", "/proc/net/dev"), "eth0:")
	var bytes uint64
	if _, err := fmt.Sscan(rest, &bytes, &n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// newFlows sends count new flows of one datagram within a second, numbered from first on, with marks in
// turn.
func (b *bed) newFlows(from, to *testbed.Process, first, count int) {
	b.t.Helper()
	addresses := func(h *testbed.Process) (mac net.HardwareAddr) {
		b.in(h, func() error {
			link, err := net.InterfaceByName("eth0")
			if err == nil {
				mac = link.HardwareAddr
			}
			return err
		})
		return mac
	}
	const bytesOfIP, bytesOfUDP = 20, 8 + 58
	frame := append(bytes.Clone(addresses(to)), append(addresses(from), 8, 0)...)
	ip := make([]byte, bytesOfIP+bytesOfUDP)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{198, 18, 66, 1, 198, 18, 66, 2})
	binary.BigEndian.PutUint16(ip[24:], bytesOfUDP)
	frame = append(frame, ip...)
	b.in(from, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		header := frame[14:]
		for began, n := time.Now(), first; n < first+count; time.Sleep(time.Millisecond) {
			for due := int(float64(count) * time.Since(began).Seconds()); n < first+min(due, count); n++ {
				header[1] = []byte{tosEF, tosAF, 0, tosCS1}[n%4]
				binary.BigEndian.PutUint16(header[20:], uint16(n))
				binary.BigEndian.PutUint16(header[22:], uint16(10000+n>>16))
				binary.BigEndian.PutUint16(header[10:], 0)
				binary.BigEndian.PutUint16(header[10:], ^sum(header[:bytesOfIP]))
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// sum is the Internet checksum's sum (RFC 1071).
func sum(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
