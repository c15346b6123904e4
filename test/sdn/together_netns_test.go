//go:build netns

package sdn

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
)

// TestTogether: two controllers, networks that are routed between, and queues from a
// file. The master is killed during a transfer: what is known keeps its queue and
// loses nothing, and the other routes what is new, of both versions of IP, into the
// queues of the file.
func TestTogether(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	file := b.path("queues.yaml")
	if err := os.WriteFile(file, []byte(`queues:
  1: {min: 20%, priority: 2}
  2: {min: 30%, priority: 0}
  3: {min: 10%, priority: 1}
  4: {min: 5mbit, max: 50%, priority: 5}
map: {ef: 2, af: 1, services: 3, email: 4}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := b.startPair(append([]string{"--queues", file, "--ovsdb", b.database(), "--rate", "100mbit"}, append(ipv4.options(), ipv6.options()...)...)...)
	b.twoBridges()
	p.control("br1")
	p.control("br2")
	b.wait("a master and a slave", 60*time.Second, func() error { return p.roles("master", "slave") })
	h1, h2 := b.atBothEnds(ipv4)
	b.address(h1, ipv6.hosts[0])
	b.address(h2, ipv6.hosts[1])
	b.inSpace(h1, "ip", "-6", "route", "add", "default", "via", ipv6.gateways[0])
	b.inSpace(h2, "ip", "-6", "route", "add", "default", "via", ipv6.gateways[1])
	b.reach(h1, ipv4.hosts[1])
	b.queuesOf(p.both[0], 4, 5)

	stream, lost := b.stream(h1, h2, ipv4.hosts[1], 53) // DNS: SERVICES
	transfer, arrived := b.connection(h1, h2, ipv4.hosts[1], 22)
	stop, sent := make(chan struct{}), make(chan int64, 1)
	go func() { sent <- writeUntil(stop, transfer) }()
	before := [2]string{}
	b.wait("the entries of both flows", 30*time.Second, func() error {
		before = [2]string{b.routed(ipv4.udp, 53, "3"), b.routed(ipv4.tcp, 22, "1")}
		if before[0] == "" || before[1] == "" {
			return fmt.Errorf("they are %q and %q", before[0], before[1])
		}
		return nil
	})

	endProcess(p.both[0].process, syscall.SIGKILL)
	b.wait("the other as master", 30*time.Second, func() error { return p.roles("none", "master") })
	b.wait("the link, hosts and flows at the other", 30*time.Second, func() error {
		s, err := client.NewSDN(p.both[1].control).Status(t.Context())
		if err == nil && len(s.Links) != 1 {
			err = fmt.Errorf("%d links", len(s.Links))
		}
		if n := hostsOf(s); err == nil && n < 2 {
			err = fmt.Errorf("%d hosts", n)
		}
		if err != nil {
			return err
		}
		for _, c := range []struct{ proto, port, class string }{{"udp", "53", "ef"}, {"tcp", "22", "af"}} {
			if class := b.classAt(p.both[1], c.proto, ipv4.hosts[1]+":"+c.port); class != c.class {
				return fmt.Errorf("%s to port %s has class %q", c.proto, c.port, class)
			}
		}
		return nil
	})
	for _, n := range []networks{ipv4, ipv6} {
		b.reach(h1, n.hosts[1])
		for _, c := range []struct {
			proto string
			port  int
			queue string
		}{{n.tcp, 25, "4"}, {n.udp, 5060, "2"}, {n.udp, 123, "3"}} {
			b.wait(fmt.Sprint("the entries of ", c.proto, c.port), 30*time.Second, func() error {
				if c.proto == n.tcp {
					b.tcp(h1, h2, n.hosts[1], c.port)
				} else {
					b.udp(h1, h2, n.hosts[1], c.port)
				}
				if b.routed(c.proto, c.port, c.queue) == "" {
					return fmt.Errorf("br1 has %s", lineWith(b.entries("br1"), c.proto, fmt.Sprint("tp_dst=", c.port)))
				}
				return nil
			})
		}
	}
	b.queuesOf(p.both[1], 4, 5)
	p.run(p.both[0])
	b.wait("the first as slave", 30*time.Second, func() error { return p.roles("slave", "master") })

	for i, now := range []string{b.routed(ipv4.udp, 53, "3"), b.routed(ipv4.tcp, 22, "1")} {
		if now != before[i] {
			t.Errorf("the entry was %s and is %s", before[i], now)
		}
	}
	stream.Close()
	if n, missing := lost(); missing != 0 || n < 200 {
		t.Errorf("%d of %d packets lost", missing, n)
	}
	close(stop)
	all := <-sent
	transfer.Close()
	if there := arrived(); there != all || all < 1<<20 {
		t.Errorf("%d of %d bytes arrived", there, all)
	}
}

// writeUntil writes about 1.6 MB/s until it is told to stop, and returns how much.
func writeUntil(stop chan struct{}, c net.Conn) int64 {
	all := int64(0)
	for ticker := time.Tick(10 * time.Millisecond); ; {
		n, err := c.Write(make([]byte, 16<<10))
		all += int64(n)
		if err != nil {
			return all
		}
		select {
		case <-stop:
			return all
		case <-ticker:
		}
	}
}

// routed is the cookie of a flow that the first of two bridges routes to the second in
// a queue, which that keeps; empty if there is none.
func (b *bed) routed(proto string, port int, queue string) string {
	b.t.Helper()
	first := lineWith(b.entries("br1"), proto, fmt.Sprintf("tp_dst=%d ", port), "dec_ttl", "set_queue:"+queue+",output:1")
	last := lineWith(b.entries("br2"), proto, fmt.Sprintf("tp_dst=%d ", port), "set_queue:"+queue+",output:9")
	cookie, _, _ := strings.Cut(first, ",")
	if other, _, _ := strings.Cut(last, ","); first == "" || other != cookie {
		return ""
	}
	return cookie
}

// queuesOf waits until a controller shows so many ports with so many queues, and the
// database has as many.
func (b *bed) queuesOf(c *oneOfTwo, ports, queues int) {
	b.t.Helper()
	b.wait("queues", 30*time.Second, func() error {
		s, err := client.NewSDN(c.control).Status(b.t.Context())
		if err != nil {
			return err
		}
		n := 0
		for _, one := range s.Switches {
			for _, p := range one.Ports {
				if p.State == "degraded" && len(p.Queues) == queues && p.Queues[3].Class == "ef" && fmt.Sprint(p.Queues[3].Applications) == "[SERVICES]" {
					n++
				}
			}
		}
		if rows := strings.Count(b.vsctl("--columns=_uuid", "list", "queue"), "_uuid"); n != ports || rows != ports*queues {
			return fmt.Errorf("%d ports have them, and there are %d rows: %+v", n, rows, s.Switches)
		}
		return nil
	})
}

// hostsOf is how many hosts a controller has seen: at first it believes in none.
func hostsOf(s v1.SDN) (n int) {
	for _, one := range s.Switches {
		for _, p := range one.Ports {
			n += len(p.Hosts)
		}
	}
	return n
}

// classAt is the class of a flow to a port of a host, as a controller shows it.
func (b *bed) classAt(c *oneOfTwo, proto, to string) string {
	flows, err := client.NewSDN(c.control).Flows(b.t.Context())
	if err != nil {
		return err.Error()
	}
	for _, f := range flows {
		if strings.HasPrefix(f.Flow, proto+" ") && strings.HasSuffix(f.Flow, "> "+to) {
			return f.Class
		}
	}
	return ""
}
