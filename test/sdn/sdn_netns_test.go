//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// twoHosts is a bridge with a host at each of the ports p1 and p2.
func (b *bed) twoHosts() (h1, h2 *testbed.Process) {
	b.t.Helper()
	b.bridge("br0", 0xab)
	h1 = b.host("br0", "p1", 1, "198.18.66.1")
	h2 = b.host("br0", "p2", 2, "198.18.66.2")
	b.reach(h1, "198.18.66.2")
	return h1, h2
}

// reach waits until pings are answered.
func (b *bed) reach(from *testbed.Process, to string) {
	b.t.Helper()
	b.wait("ping "+to, 20*time.Second, func() error {
		if n := b.ping(from, to, 3); n < 3 {
			return fmt.Errorf("%d of 3 answered", n)
		}
		return nil
	})
}

// class is what weir says of a flow to a port of a host.
func (b *bed) class(proto, to string) (class, application string) {
	b.t.Helper()
	if class, application = b.classOr(proto, to); class == "" {
		b.t.Fatalf("weir sdn flows has none of %s to %s", proto, to)
	}
	return class, application
}

// classOr is class, with nothing where there is no such flow.
func (b *bed) classOr(proto, to string) (class, application string) {
	b.t.Helper()
	for _, f := range b.flows() {
		if strings.HasPrefix(f.Flow, proto+" ") && strings.HasSuffix(f.Flow, "> "+to) {
			return f.Class, f.Application
		}
	}
	return "", ""
}

// TestClasses: the flows of two hosts go through a switch in the queues of
// their applications, both ways, with queues that weir has made at its ports.
func TestClasses(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit", "--rate", "p2=50mbit", "--idle-timeout", "3s")
	h1, h2 := b.twoHosts()

	b.udp(h1, h2, "198.18.66.2", 53) // DNS: SERVICES
	b.tcp(h1, h2, "198.18.66.2", 25) // SMTP: EMAIL
	for _, c := range []struct{ proto, port, class, application, queue string }{
		{"udp", "53", "ef", "SERVICES", "2"}, {"tcp", "25", "be", "EMAIL", "0"},
	} {
		for _, field := range []string{"tp_dst=" + c.port, "tp_src=" + c.port} {
			b.entry("br0", c.proto+",", field, "set_queue:"+c.queue+",output:")
		}
		if class, application := b.class(c.proto, "198.18.66.2:"+c.port); class != c.class || application != c.application {
			t.Errorf("%s to port %s is %s %s, want %s %s", c.proto, c.port, class, application, c.class, c.application)
		}
	}
	b.queuesAreClasses()

	// What an idle flow has carried is counted when it goes.
	b.wait("the end of idle flows", 15*time.Second, func() error {
		for _, f := range b.flows() {
			if strings.HasSuffix(f.Flow, ":53") {
				return errors.New("still there")
			}
		}
		if ef := b.status().Classes[0]; ef.Class != "ef" || ef.Flows != 2 || ef.SentPackets < 5 || ef.SentBytes < 5*100 {
			return fmt.Errorf("counted: %+v", ef)
		}
		return nil
	})
}

func lineWith(text string, words ...string) string {
	for line := range strings.Lines(text) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// queuesAreClasses: the queues of a port are classes of HTB with the rates that
// weir sdn ps shows, and are gone when the port is given back.
func (b *bed) queuesAreClasses() {
	t := b.t
	t.Helper()
	b.wait("classes of HTB", 10*time.Second, func() error {
		classes := b.inSpace(b.Space, "tc", "class", "show", "dev", "p1")
		for class, words := range map[string][]string{
			"1:1": {"prio 2", "rate 20Mbit ceil 100Mbit"}, "1:2": {"prio 1", "rate 30Mbit ceil 100Mbit"}, "1:3": {"prio 0", "rate 50Mbit ceil 100Mbit"},
		} {
			if lineWith(classes, append(words, "class htb "+class+" ")...) == "" {
				return fmt.Errorf("no class %s of %v: %s", class, words, classes)
			}
		}
		if lineWith(b.inSpace(b.Space, "tc", "class", "show", "dev", "p2"), "rate 25Mbit ceil 50Mbit") == "" {
			return errors.New("p2 does not have its own rate")
		}
		return nil
	})
	ports := b.status().Switches[0].Ports
	for _, p := range ports {
		if p.Name != "p1" {
			continue
		}
		if p.State != "degraded" || p.RateBPS != 100e6 || len(p.Queues) != 3 || p.Queues[2].Class != "ef" || p.Queues[2].MinBPS != 50e6 {
			t.Errorf("weir sdn ps says of p1: %+v", p)
		}
	}
}

// TestEightQueues: a port has as many queues as a file says, with their bounds, an
// application type has its own, and other queues take their place in the file.
func TestEightQueues(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	file := b.path("queues.yaml")
	write := func(text string) {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(`queues:
  0: {priority: 7}
  1: {min: 20%, priority: 2}
  2: {min: 10mbit, max: 50%, priority: 0}
  3: {min: 5mbit, priority: 1}
  4: {min: 4mbit}
  5: {min: 3mbit}
  6: {min: 2mbit}
  7: {min: 1mbit, max: 2mbit, priority: 6}
map: {ef: 2, af: 1, be: 0, services: 3, email: 7}
`)
	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit", "--queues", file)
	h1, h2 := b.twoHosts()
	b.udp(h1, h2, "198.18.66.2", 53) // DNS: SERVICES
	b.tcp(h1, h2, "198.18.66.2", 25) // SMTP: EMAIL
	for port, queue := range map[string]string{"53": "3", "25": "7"} {
		b.entry("br0", "tp_dst="+port, "set_queue:"+queue+",output:")
	}
	classes := func(want map[string]string) {
		t.Helper()
		b.wait("classes of HTB", 15*time.Second, func() error {
			seen := b.inSpace(b.Space, "tc", "class", "show", "dev", "p1")
			if n := strings.Count(seen, "class htb "); n != len(want)+1 { // and the root
				return fmt.Errorf("%d classes: %s", n, seen)
			}
			for class, words := range want {
				if lineWith(seen, "class htb "+class+" ", words) == "" {
					return fmt.Errorf("no class %s of %s: %s", class, words, seen)
				}
			}
			return nil
		})
	}
	classes(map[string]string{
		"1:1": "rate 55Mbit ceil 100Mbit", "1:2": "prio 2 rate 20Mbit ceil 100Mbit", "1:3": "prio 0 rate 10Mbit ceil 50Mbit", "1:4": "prio 1 rate 5Mbit",
		"1:5": "rate 4Mbit", "1:6": "rate 3Mbit", "1:7": "rate 2Mbit", "1:8": "prio 6 rate 1Mbit ceil 2Mbit",
	})
	p1 := b.port("p1")
	if len(p1.Queues) != 8 || p1.Queues[3].Class != "ef" || fmt.Sprint(p1.Queues[3].Applications) != "[SERVICES]" || p1.Queues[0].MinBPS != 55e6 {
		t.Errorf("weir sdn ps says of p1: %+v", p1)
	}
	endProcess(b.weir, syscall.SIGTERM)

	write("queues: {1: {min: 60mbit}, 2: {min: 60mbit}}\n")
	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit", "--queues", file)
	b.wait("the refusal", 15*time.Second, func() error {
		if p := b.port("p1"); p.State != "refused" || !strings.Contains(p.Reason, "more than the port's rate of 100mbit") {
			return fmt.Errorf("p1 is %s: %s", p.State, p.Reason)
		}
		return nil
	})
	endProcess(b.weir, syscall.SIGTERM)

	write("queues: {1: {min: 60mbit}, 2: {min: 30mbit}}\n")
	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit", "--queues", file)
	classes(map[string]string{"1:1": "rate 10Mbit", "1:2": "rate 60Mbit", "1:3": "rate 30Mbit"})
	b.wait("the end of the other rows", 15*time.Second, func() error {
		if n := strings.Count(b.vsctl("--columns=_uuid", "list", "queue"), "_uuid"); n != 6 {
			return fmt.Errorf("%d queues, want 3 a port", n)
		}
		return nil
	})
}

// TestQueuesOfOthers: what somebody else configured stays until weir is told to
// replace it, and comes back afterwards; a database that is away is waited for.
func TestQueuesOfOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.bridge("br0", 0xab)
	b.host("br0", "p1", 1, "198.18.66.1")
	b.host("br0", "p2", 2, "198.18.66.2")
	b.vsctl("set", "port", "p1", "qos=@q", "--", "--id=@q", "create", "qos", "type=linux-htb", "other-config:max-rate=7000000")
	before := b.vsctl("get", "port", "p1", "qos")
	p1 := func() (state, reason string) {
		for _, n := range b.status().Switches {
			for _, p := range n.Ports {
				if p.Name == "p1" {
					return p.State, p.Reason
				}
			}
		}
		return "", ""
	}
	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit")
	b.wait("the refusal", 10*time.Second, func() error {
		if state, reason := p1(); state != "refused" || !strings.Contains(reason, "--replace") {
			return fmt.Errorf("p1 is %s: %s", state, reason)
		}
		return nil
	})
	if now := b.vsctl("get", "port", "p1", "qos"); now != before {
		t.Errorf("p1 had %s and has %s", before, now)
	}
	endProcess(b.weir, syscall.SIGTERM)

	b.startWeir("--ovsdb", b.database(), "--rate", "100mbit", "--replace")
	ours := func() error {
		if state, reason := p1(); state != "degraded" {
			return fmt.Errorf("p1 is %s: %s", state, reason)
		}
		if queues := strings.Count(b.vsctl("--columns=_uuid", "list", "queue"), "_uuid"); queues != 6 {
			return fmt.Errorf("%d queues, want 3 a port", queues)
		}
		if now := strings.TrimSpace(b.vsctl("get", "port", "p1", "qos")); now == "[]" {
			return errors.New("p1 has no queues")
		}
		return nil
	}
	b.wait("the replacement", 10*time.Second, ours)

	b.restartDatabase(500 * time.Millisecond)
	b.vsctl("clear", "port", "p1", "qos")
	b.wait("queues after the database was away", 15*time.Second, ours)

	endProcess(b.weir, syscall.SIGTERM)
	if out := b.must(harness.Program(t), "sdn", "down", "--ovsdb", b.database()); !strings.Contains(out, "p1 given back") || !strings.Contains(out, "p2 given back") {
		t.Errorf("weir sdn down says %q", out)
	}
	if now := strings.TrimSpace(b.vsctl("get", "port", "p2", "qos")); now != "[]" {
		t.Errorf("p2 has %s", now)
	}
	if left := b.vsctl("list", "queue"); left != "" {
		t.Errorf("queues are left: %s", left)
	}
}

// TestSeveralBridges: links between switches are found, a flow takes the shortest
// path with its class on all of it, and another path when a cable is cut.
func TestSeveralBridges(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startWeir()
	for i, name := range []string{"br1", "br2", "br3"} {
		b.bridge(name, i+1)
	}
	b.cable("br1", "c12", 1, "br2", "c21", 1)
	b.cable("br2", "c23", 2, "br3", "c32", 1)
	b.cable("br3", "c31", 2, "br1", "c13", 2)
	b.wait("the links", 20*time.Second, func() error {
		if links := b.status().Links; len(links) != 3 {
			return fmt.Errorf("%d links: %+v", len(links), links)
		}
		return nil
	})
	h1 := b.host("br1", "p1", 9, "198.18.66.1")
	h2 := b.host("br2", "p2", 9, "198.18.66.2")
	b.reach(h1, "198.18.66.2")
	if n := b.ping(h1, "198.18.66.2", 20); n != 20 { // and no answer twice: -q counts those too
		t.Errorf("%d of 20 answered", n)
	}
	b.udp(h1, h2, "198.18.66.2", 53)
	for bridge, output := range map[string]string{"br1": "output:1", "br2": "output:9"} {
		b.entry(bridge, "udp,", "tp_dst=53", "set_queue:2,"+output)
	}
	b.inSpace(b.Space, "ip", "link", "set", "c12", "down")
	b.wait("another path", 15*time.Second, func() error {
		if line := lineWith(b.entries("br1"), "udp,", "tp_dst=53"); !strings.Contains(line, "set_queue:2,output:2") {
			return fmt.Errorf("%q", line)
		}
		return nil
	})
	b.udp(h1, h2, "198.18.66.2", 53)
	b.entry("br3", "udp,", "tp_dst=53", "set_queue:2,output:1") // it keeps the class
}

// TestControllerKilled: known flows lose no packet when the controller is killed
// and started again, new ones go on meanwhile, and the flows are taken over.
func TestControllerKilled(t *testing.T) {
	b := newBed(t)
	b.startWeir()
	h1, h2 := b.twoHosts()
	client, lost := b.stream(h1, h2, "198.18.66.2", 53)
	cookie, _, _ := strings.Cut(b.entry("br0", "udp,", "tp_dst=53", "set_queue:2"), ",")
	endProcess(b.weir, syscall.SIGKILL)
	b.tcp(h1, h2, "198.18.66.2", 25) // new, and nobody is asked
	time.Sleep(2 * time.Second)
	b.startWeir()
	b.wait("the switch's return", 20*time.Second, func() error {
		if class, _ := b.classOr("udp", "198.18.66.2:53"); class != "ef" {
			return fmt.Errorf("class %q", class)
		}
		return nil
	})
	time.Sleep(2 * time.Second)
	client.Close()
	if sent, missing := lost(); missing != 0 || sent < 200 {
		t.Errorf("%d of %d packets lost", missing, sent)
	}
	if now, _, _ := strings.Cut(lineWith(b.entries("br0"), "udp,", "tp_dst=53"), ","); now != cookie {
		t.Errorf("the entry was %s and is %s", cookie, now)
	}
}

// TestTableFull: a switch whose table is full goes on forwarding.
func TestTableFull(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.startWeir()
	h1, h2 := b.twoHosts()
	b.vsctl("--", "--id=@t", "create", "Flow_Table", "flow_limit=20", "overflow_policy=refuse", "--", "set", "bridge", "br0", "flow_tables:0=@t")
	for port := range 30 {
		b.tcp(h1, h2, "198.18.66.2", 2000+port)
	}
	full := uint64(0)
	for _, c := range b.status().Counters {
		if c.Name == "tables_full" {
			full = c.Value
		}
	}
	if full == 0 {
		t.Error("the switch never refused an entry")
	}
}

// stream sends numbered datagrams, 100 a second, until its connection is closed;
// lost tells how many were sent and did not arrive.
func (b *bed) stream(from, to *testbed.Process, address string, port int) (client net.Conn, lost func() (sent, missing int)) {
	b.t.Helper()
	var server net.PacketConn
	b.in(to, func() (err error) {
		server, err = net.ListenPacket("udp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	b.in(from, func() (err error) {
		client, err = net.Dial("udp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	sent, arrived := make(chan int, 1), make(chan int, 1)
	var come atomic.Int64
	go func() {
		n := 0
		for ; ; n++ {
			if _, err := client.Write(make([]byte, 60)); err != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		sent <- n
	}()
	go func() {
		n := 0
		for ; ; n++ {
			if _, _, err := server.ReadFrom(make([]byte, 100)); err != nil {
				break
			}
			come.Add(1)
		}
		arrived <- n
	}()
	return client, func() (int, int) {
		all := <-sent
		for deadline := time.Now().Add(10 * time.Second); int(come.Load()) < all && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond) // what arrives twice
		server.Close()
		return all, all - <-arrived
	}
}

// udp sends datagrams to a host and expects them back.
func (b *bed) udp(from, to *testbed.Process, address string, port int) {
	b.t.Helper()
	var server net.PacketConn
	b.in(to, func() (err error) {
		server, err = net.ListenPacket("udp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	defer server.Close()
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, peer, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buffer[:n], peer)
		}
	}()
	var client net.Conn
	b.in(from, func() (err error) {
		client, err = net.Dial("udp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	defer client.Close()
	for range 10 { // for longer than the switch's caches take to see a new entry
		time.Sleep(100 * time.Millisecond)
		_ = client.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := client.Write(make([]byte, 60)); err != nil {
			b.t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 100)); err != nil {
			b.t.Errorf("UDP to port %d: %v", port, err)
		}
	}
}

// tcp opens a connection to a host and exchanges some bytes.
func (b *bed) tcp(from, to *testbed.Process, address string, port int) {
	b.t.Helper()
	var server net.Listener
	b.in(to, func() (err error) {
		server, err = net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	defer server.Close()
	go func() {
		if c, err := server.Accept(); err == nil {
			buffer := make([]byte, 100)
			n, _ := c.Read(buffer)
			_, _ = c.Write(buffer[:n])
			c.Close()
		}
	}()
	var client net.Conn
	b.in(from, func() (err error) {
		client, err = net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), 5*time.Second)
		return err
	})
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := client.Write([]byte("hello")); err != nil {
		b.t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 100)); err != nil {
		b.t.Errorf("TCP to port %d: %v", port, err)
	}
}

func (b *bed) in(p *testbed.Process, do func() error) {
	b.t.Helper()
	must.Succeed(b.t, testbed.InNetNS(p.NetNSPath(), do))
}
