//go:build netns

package sdn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Rate of the port that everything goes through, and what its classes are
// promised: internal/sdn/qos.
const (
	portBPS         = 100e6
	afBPS, beBPS    = 0.3 * portBPS, 0.2 * portBPS
	efBytes         = 1200 // with headers 1242 on the wire
	efPort          = 53   // DNS: SERVICES
	afPort, bePort  = 443, 25
	warmUp, measure = 3 * time.Second, 5 * time.Second
)

// TestKernelDatapath is figure 6 of the SDN-LLQ paper, two hosts, a switch and
// a controller, with Open vSwitch's forwarding in the kernel: flows of three
// classes want more than the port has. Behind its queues EF within its bound
// loses nothing and waits less than in one FIFO, also while the controller is
// killed and started again; and when EF wants more than its bound too, AF and BE
// have their minimums. So it is with Open vSwitch's queues and with Weir's own.
func TestKernelDatapath(t *testing.T) {
	b := newKernelBed(t)
	b.startWeir("--no-second-look")
	h1, h2 := b.twoHosts()
	b.oneQueue("p2")
	fifo := b.congest(h1, h2, 30e6, nil)
	t.Logf("FIFO: %v", fifo)
	endProcess(b.weir, syscall.SIGTERM)
	b.vsctl("--", "clear", "port", "p2", "qos", "--", "--all", "destroy", "qos", "--", "--all", "destroy", "queue")

	withQueues := func() {
		b.startWeir("--no-second-look", "--ovsdb", b.database(), "--rate", "100mbit")
		b.wait("queues", 20*time.Second, func() error {
			if p := b.port("p2"); p.State != "ok" || len(p.Queues) != 3 {
				return fmt.Errorf("p2 is %+v", p)
			}
			return nil
		})
	}
	withQueues()
	b.reach(h1, "198.18.66.2")
	var killed time.Duration
	llq := b.congest(h1, h2, 30e6, func() {
		killed = time.Since(epoch)
		endProcess(b.weir, syscall.SIGKILL)
		time.Sleep(2 * time.Second)
		withQueues()
	})
	t.Logf("queues: %v", llq)
	t.Logf("EF's delay is reduced by %.2f %% (paper: 99.996), its jitter by %.2f %% (99.85)",
		100*(1-llq.delay.Seconds()/fifo.delay.Seconds()), 100*(1-llq.jitter.Seconds()/fifo.jitter.Seconds()))
	if llq.lost != 0 || llq.sent < 10000 {
		t.Errorf("EF lost %d of %d packets, its controller killed at %v: %q", llq.lost, llq.sent, killed, llq.gaps)
	}
	if llq.delay > fifo.delay/20 || llq.jitter > fifo.jitter {
		t.Errorf("EF waits %v, jitter %v; in one FIFO %v and %v", llq.delay, llq.jitter, fifo.delay, fifo.jitter)
	}

	full := b.congest(h1, h2, 65e6, nil)
	t.Logf("EF beyond its bound: %v", full)
	full.sharesKept(t, 0.99)
	for flow, want := range map[string]string{"udp 53": "ef", "tcp 443": "af", "tcp 25": "be"} {
		proto, port, _ := strings.Cut(flow, " ")
		if class, _ := b.class(proto, "198.18.66.2:"+port); class != want {
			t.Errorf("%s is %s, want %s", flow, class, want)
		}
	}
	b.ownQueues(h1, h2, fifo)
}

// oneQueue gives a port the FIFO that all share: the paper's default.
func (b *bed) oneQueue(port string) {
	b.t.Helper()
	b.vsctl("set", "port", port, "qos=@qos", "--", "--id=@qos", "create", "qos", "type=linux-htb",
		fmt.Sprintf("other-config:max-rate=%.0f", portBPS), "queues:0=@queue",
		"--", "--id=@queue", "create", "queue", fmt.Sprintf("other-config:min-rate=%.0f", portBPS))
}

// congested is what the flows of a congested port got.
type congested struct {
	sent, lost    int           // packets of EF
	delay, jitter time.Duration // of EF: means; jitter is from packet to packet
	p99           time.Duration
	// The same of EF before the others begin.
	aloneDelay, aloneJitter time.Duration
	efBPS                   float64 // of frames, by what arrived
	afBPS, beBPS            float64
	gaps                    []string           // what EF lost, and when
	byQueues                map[string]float64 // the same, as weir sdn ps has it
	byClasses               map[string]float64 // and as the kernel counts it
}

func (c congested) String() string {
	return fmt.Sprintf("EF %.2f, AF %.2f, BE %.2f Mbit/s, by the queues %.2f, %.2f, %.2f, by the kernel's classes %.2f, %.2f, %.2f; EF lost %d of %d packets, delay %v (p99 %v), jitter %v; alone %v and %v",
		c.efBPS/1e6, c.afBPS/1e6, c.beBPS/1e6,
		c.byQueues["ef"]/1e6, c.byQueues["af"]/1e6, c.byQueues["be"]/1e6, c.byClasses["ef"]/1e6, c.byClasses["af"]/1e6, c.byClasses["be"]/1e6, c.lost, c.sent, c.delay, c.p99, c.jitter, c.aloneDelay, c.aloneJitter)
}

// congest has EF send at a rate beside AF and BE that take all they can get, and
// does something after it has measured.
func (b *bed) congest(from, to *testbed.Process, efBPS float64, then func()) congested {
	b.t.Helper()
	ef := b.voice(from, to, efPort, efBPS)
	b.wait("the flow's entry", 10*time.Second, func() error {
		if lineWith(b.entries("br0"), "udp,", "tp_dst=53", "set_queue:2") == "" {
			return errors.New("none")
		}
		return nil
	})
	// The first packets go on as best effort, until Open vSwitch's revalidators
	// have had the kernel told of the flow's own entry: half a second at most on
	// a machine with time for it.
	b.wait("EF in its queue", 20*time.Second, func() error {
		queues := b.port("p2").Queues
		its := "ef"
		if len(queues) < 3 {
			its = "be" // all share one
		}
		for _, q := range queues {
			if q.Class == its && q.RateBPS > uint64(0.7*efBPS) {
				return nil
			}
		}
		return fmt.Errorf("its queues are %+v", queues)
	})
	ef.measuring.Store(true)
	time.Sleep(warmUp)
	ef.measuring.Store(false)
	var c congested
	c.aloneDelay, _, c.aloneJitter = ef.delays()
	be, stopBE := b.bulk(from, to, bePort, 8)
	af, stopAF := b.bulk(from, to, afPort, 2)
	defer stopAF()
	defer stopBE()
	time.Sleep(warmUp)
	ef.measuring.Store(true)
	queues, began := b.port("p2"), time.Now()
	classes, counted := b.classBytes("p2")
	arrived := [3]uint64{ef.bytes.Load(), af.Load(), be.Load()}
	time.Sleep(measure)
	seconds := time.Since(began).Seconds()
	classesAfter, countedAgain := b.classBytes("p2")
	after := b.port("p2")
	ef.measuring.Store(false)
	const tcpFrame, tcpPayload = 1514.0, 1448.0
	c.efBPS = 8 * float64(ef.bytes.Load()-arrived[0]) / seconds * (efBytes + 42) / efBytes
	c.afBPS = 8 * float64(af.Load()-arrived[1]) / seconds * tcpFrame / tcpPayload
	c.beBPS = 8 * float64(be.Load()-arrived[2]) / seconds * tcpFrame / tcpPayload
	c.byQueues, c.byClasses = map[string]float64{}, map[string]float64{}
	for class, sent := range classesAfter {
		c.byClasses[class] = 8 * float64(sent-classes[class]) / countedAgain.Sub(counted).Seconds()
	}
	for _, q := range after.Queues { // both counts are up to a second old
		if q.Class != "" {
			c.byQueues[q.Class] = 8 * float64(q.SentBytes-sentBytes(queues, q.Class)) / seconds
		}
	}
	if then != nil {
		then()
		time.Sleep(2 * time.Second)
	}
	c.sent, c.lost = ef.stop()
	c.gaps = ef.gaps
	c.delay, c.p99, c.jitter = ef.delays()
	return c
}

// classBytes are what the classes that Open vSwitch's datapath names have sent, and when
// that was asked for.
func (b *bed) classBytes(port string) (map[string]uint64, time.Time) {
	b.t.Helper()
	out, class, asked := map[string]uint64{}, "", time.Now()
	for line := range strings.Lines(b.inSpace(b.Space, "tc", "-s", "class", "show", "dev", port)) {
		var sent uint64
		switch words := strings.Fields(line); {
		case len(words) > 2 && words[0] == "class":
			class = map[string]string{"1:1": "be", "1:2": "af", "1:3": "ef"}[words[2]]
		case class != "" && len(words) > 1 && words[0] == "Sent":
			if _, err := fmt.Sscan(words[1], &sent); err != nil {
				b.t.Fatal(err)
			}
			out[class] = sent
		}
	}
	return out, asked
}

func sentBytes(p v1.SDNPort, class string) uint64 {
	for _, q := range p.Queues {
		if q.Class == class {
			return q.SentBytes
		}
	}
	return 0
}

// port is what weir sdn ps shows of a port.
func (b *bed) port(name string) v1.SDNPort {
	b.t.Helper()
	for _, n := range b.status().Switches {
		for _, p := range n.Ports {
			if p.Name == name {
				return p
			}
		}
	}
	return v1.SDNPort{}
}

// voice is a stream of datagrams that say when they were sent.
type voice struct {
	client    net.Conn
	server    net.PacketConn
	sent      chan int
	received  atomic.Int64
	bytes     atomic.Uint64
	measuring atomic.Bool

	mu   sync.Mutex
	took []time.Duration
	gaps []string // what did not arrive, and when
}

var epoch = time.Now()

// voice sends to a port at a rate until it is stopped.
func (b *bed) voice(from, to *testbed.Process, port int, bps float64) *voice {
	b.t.Helper()
	v := &voice{sent: make(chan int, 1)}
	b.in(to, func() (err error) {
		v.server, err = net.ListenPacket("udp", net.JoinHostPort("198.18.66.2", strconv.Itoa(port)))
		if err == nil { // what finds no room here is not the switch's loss
			err = readBuffer(v.server.(*net.UDPConn), 16<<20)
		}
		return err
	})
	b.in(from, func() (err error) {
		v.client, err = net.Dial("udp", net.JoinHostPort("198.18.66.2", strconv.Itoa(port)))
		return err
	})
	b.t.Cleanup(func() { v.client.Close(); v.server.Close() })
	go v.receive()
	go v.send(bps / 8 / (efBytes + 42))
	return v
}

// readBuffer gives a socket more room than others may ask for.
func readBuffer(c *net.UDPConn, bytes int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
	})
	return errors.Join(err, failed)
}

func (v *voice) send(perSecond float64) {
	n, packet, began := 0, make([]byte, efBytes), time.Now()
	for ; ; time.Sleep(time.Millisecond) {
		for due := int(perSecond * time.Since(began).Seconds()); n < due; {
			binary.BigEndian.PutUint64(packet, uint64(time.Since(epoch)))
			binary.BigEndian.PutUint64(packet[8:], uint64(n))
			if _, err := v.client.Write(packet); errors.Is(err, net.ErrClosed) {
				v.sent <- n
				return
			} else if err == nil { // an ICMP error is told of here, and the packet not sent
				n++
			}
		}
	}
}

func (v *voice) receive() {
	next := uint64(0)
	for packet := make([]byte, 2*efBytes); ; {
		n, _, err := v.server.ReadFrom(packet)
		if err != nil {
			return
		}
		v.received.Add(1)
		v.bytes.Add(uint64(n))
		sent, number := time.Duration(binary.BigEndian.Uint64(packet)), binary.BigEndian.Uint64(packet[8:])
		if number > next {
			v.mu.Lock()
			v.gaps = append(v.gaps, fmt.Sprintf("%d to %d, before %v", next, number-1, sent))
			v.mu.Unlock()
		}
		next = max(next, number+1)
		if v.measuring.Load() {
			v.mu.Lock()
			v.took = append(v.took, time.Since(epoch)-sent)
			v.mu.Unlock()
		}
	}
}

// stop ends the stream and tells what was sent and did not arrive.
func (v *voice) stop() (sent, lost int) {
	v.client.Close()
	sent = <-v.sent
	for last := int64(-1); last != v.received.Load(); time.Sleep(500 * time.Millisecond) {
		last = v.received.Load()
	}
	v.server.Close()
	return sent, sent - int(v.received.Load())
}

// delays are the mean and the 99th percentile of the delay and the mean of its
// changes from packet to packet, since they were asked for last.
func (v *voice) delays() (mean, p99, jitter time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.took)
	if n < 2 {
		return 0, 0, 0
	}
	for i, d := range v.took {
		mean += d
		if i > 0 {
			jitter += (d - v.took[i-1]).Abs()
		}
	}
	slices.Sort(v.took)
	p99 = v.took[n*99/100]
	v.took = nil
	return mean / time.Duration(n), p99, jitter / time.Duration(n-1)
}

// bulk sends as much as n connections take, until it is stopped, and counts the
// bytes that arrive.
func (b *bed) bulk(from, to *testbed.Process, port, n int) (arrived *atomic.Uint64, stop func()) {
	b.t.Helper()
	arrived = &atomic.Uint64{}
	address := net.JoinHostPort("198.18.66.2", strconv.Itoa(port))
	var server net.Listener
	b.in(to, func() (err error) {
		server, err = net.Listen("tcp", address)
		return err
	})
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go count(c, arrived)
		}
	}()
	var clients []net.Conn
	stop = func() {
		server.Close()
		for _, c := range clients {
			c.Close()
		}
	}
	b.t.Cleanup(stop)
	for range n {
		b.in(from, func() error {
			c, err := net.DialTimeout("tcp", address, 20*time.Second)
			if err != nil {
				return err
			}
			clients = append(clients, c)
			go func() {
				for buffer := make([]byte, 1<<15); err == nil; {
					_, err = c.Write(buffer)
				}
			}()
			return c.(*net.TCPConn).SetLinger(0) // nothing is left for what comes after
		})
	}
	return arrived, stop
}

func count(c net.Conn, arrived *atomic.Uint64) {
	defer c.Close()
	for buffer := make([]byte, 1<<16); ; {
		n, err := c.Read(buffer)
		arrived.Add(uint64(n))
		if err != nil {
			return
		}
	}
}
