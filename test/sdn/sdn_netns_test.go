//go:build netns

package sdn

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
)

// TestClasses: the flows of two stations go through the switch in the queues of
// their applications.
func TestClasses(t *testing.T) {
	b := newBed(t)
	b.startWeir()
	b.bridge("br0", 0xab)
	h1 := b.station("br0", "p1", 1, "198.18.66.1")
	h2 := b.station("br0", "p2", 2, "198.18.66.2")
	b.wait("ping", 15*time.Second, func() error {
		if b.ping(h1, "198.18.66.2", 3) < 3 {
			return errors.New("unanswered")
		}
		return nil
	})
	// DNS is EF (SERVICES), SMTP is BE (EMAIL).
	b.udp(h1, h2, "198.18.66.2", 53)
	b.tcp(h1, h2, "198.18.66.2", 25)
	for port, queue := range map[string]string{"nw_dst=198.18.66.2,tp_src=": "", "udp": "set_queue:2"} {
		_ = port
		_ = queue
	}
	fmt.Println(b.entries("br0"))
	fmt.Println(b.must("bash", "-c", "true"))
	for _, f := range b.flows() {
		fmt.Printf("%+v\n", f)
	}
	if !strings.Contains(b.entries("br0"), "set_queue:2") {
		t.Error("no flow in the queue of EF")
	}
}

// udp sends datagrams to a station and expects them back.
func (b *bed) udp(from, to *process, address string, port int) {
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
	for range 5 {
		_ = client.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := client.Write(make([]byte, 60)); err != nil {
			b.t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 100)); err != nil {
			b.t.Errorf("UDP to port %d: %v", port, err)
		}
	}
}

// tcp opens a connection to a station and exchanges some bytes.
func (b *bed) tcp(from, to *process, address string, port int) {
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

func (b *bed) in(p *process, do func() error) {
	b.t.Helper()
	if err := testbed.InNetNS(p.netns(), do); err != nil {
		b.t.Fatal(err)
	}
}
