package picasso

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// wireMeter counts what users' connections receive. The zero value is ready.
type wireMeter struct {
	mu     sync.Mutex
	open   map[*farConn]bool
	closed received
}

// received is what connections received: of pages and their heads, and all of it in frames
// as they are at the uplink.
type received struct{ payloadBytes, frameBytes uint64 }

func (r *received) add(other received) {
	r.payloadBytes += other.payloadBytes
	r.frameBytes += other.frameBytes
}

// read returns the bytes received so far.
func (m *wireMeter) read() received {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.closed
	for conn := range m.open {
		sum.add(conn.received())
	}
	return sum
}

// dial connects a user, a round trip away. This kernel may have no netem, so the users'
// end of the connection waits: as long as a round trip for the connection, and for each
// request.
func (b *bed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return b.dialMetered(ctx, network, address, &wireMeter{})
}

// dialMetered counts what the user receives.
func (b *bed) dialMetered(ctx context.Context, network, address string, meter *wireMeter) (conn net.Conn, err error) {
	time.Sleep(roundTrip)
	inErr := testbed.InNetNS(b.cluster.Host.NetNSPath(), func() error {
		conn, err = (&net.Dialer{Timeout: patience, FallbackDelay: -1}).DialContext(ctx, network, address)
		return nil
	})
	if inErr != nil {
		return nil, inErr
	}
	if err != nil {
		return nil, err
	}
	far := &farConn{Conn: conn, meter: meter}
	meter.mu.Lock()
	defer meter.mu.Unlock()
	if meter.open == nil {
		meter.open = map[*farConn]bool{}
	}
	meter.open[far] = true
	return far, nil
}

// farConn is a connection whose other end is a round trip away.
type farConn struct {
	net.Conn
	meter *wireMeter
}

func (c *farConn) Write(p []byte) (int, error) {
	time.Sleep(roundTrip)
	return c.Conn.Write(p)
}

func (c *farConn) Close() error {
	c.meter.mu.Lock()
	if c.meter.open[c] {
		c.meter.closed.add(c.received())
		delete(c.meter.open, c)
	}
	c.meter.mu.Unlock()
	return c.Conn.Close()
}

// received asks the kernel (TCP_INFO, tcp(7)). A segment takes its headers as well, also
// one that acknowledges only. The last one, which answers the user's FIN, is not there yet.
func (c *farConn) received() (r received) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return r
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return r
	}
	_ = raw.Control(func(fd uintptr) { // a connection that is closed has received nothing more
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			r = received{info.Bytes_received, info.Bytes_received + uint64(info.Segs_in)*measure.TCPHeaderBytes}
		}
	})
	return r
}

func (b *bed) url(node, port int) string {
	return fmt.Sprintf("http://%s/", net.JoinHostPort(b.cluster.Nodes[node].Addr.String(), strconv.Itoa(port)))
}

// crowd returns users of a port of a node.
func (b *bed) crowd(node, port, users int) profile.Crowd {
	return profile.Crowd{URL: b.url(node, port), Users: users, Timeout: patience, Fresh: true, Dial: b.dial}
}

// metered returns a crowd whose users' connections are counted.
func (b *bed) metered(node, port, users int, meter *wireMeter) profile.Crowd {
	crowd := b.crowd(node, port, users)
	crowd.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return b.dialMetered(ctx, network, address, meter)
	}
	return crowd
}

// arrive sends one request for each arrival time, and does not wait for the answers of earlier
// ones. Waits count from the arrival times, so that a late machine is no advantage.
func arrive(ctx context.Context, one profile.Crowd, times []time.Duration) (answers profile.Answers) {
	var (
		users sync.WaitGroup
		mu    sync.Mutex
		took  []float64
	)
	one.Users, one.Requests = 1, 1
	began := time.Now()
	for _, at := range times {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(at))):
		}
		if ctx.Err() != nil {
			break
		}
		users.Go(func() {
			got := one.Run(ctx)
			waited := time.Since(began.Add(at))
			mu.Lock()
			defer mu.Unlock()
			answers.Requests += got.Requests
			answers.Failed += got.Failed
			answers.Bytes += got.Bytes
			if got.LastError != nil {
				answers.LastError = got.LastError
			}
			if got.Requests > got.Failed {
				took = append(took, waited.Seconds())
			}
		})
	}
	users.Wait()
	answers.Took = time.Since(began)
	if len(took) > 0 {
		answers.Mean = time.Duration(measure.Mean(took) * float64(time.Second))
		answers.P95 = time.Duration(measure.Quantile(took, 0.95) * float64(time.Second))
	}
	return answers
}
