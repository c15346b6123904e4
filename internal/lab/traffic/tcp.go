package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds the handshake, also under a full queue.
const dialTimeout = 5 * time.Second

type tcpStream struct {
	conn   *net.TCPConn
	buffer []byte
}

func dialTCP(ctx context.Context, options SenderOptions) (*tcpStream, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", options.Target.String())
	if err != nil {
		return nil, err
	}
	return newTCPStream(conn.(*net.TCPConn), options)
}

// newTCPStream sends by a connection, which it closes if that cannot be.
func newTCPStream(conn *net.TCPConn, options SenderOptions) (*tcpStream, error) {
	t := &tcpStream{conn: conn, buffer: make([]byte, options.WriteBytes)}
	// Close with a reset: what is still in the socket must not be sent.
	if err := t.conn.SetLinger(0); err != nil {
		t.interrupt()
		return nil, fmt.Errorf("set linger: %w", err)
	}
	if err := t.set(options); err != nil {
		t.interrupt()
		return nil, err
	}
	return t, nil
}

// set sets the socket's options.
func (t *tcpStream) set(options SenderOptions) error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		if options.CongestionControl != "" {
			failure = os.NewSyscallError("set TCP_CONGESTION", unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, options.CongestionControl))
		}
		if options.RateBPS > 0 {
			bytesPerSecond := options.RateBPS / 8 / uint64(options.Connections)
			failure = errors.Join(failure, os.NewSyscallError("set SO_MAX_PACING_RATE",
				unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)))
		}
	})
	return errors.Join(err, failure)
}

func (t *tcpStream) send(stopped *atomic.Bool, account *account) error {
	for !stopped.Load() {
		n, err := t.conn.Write(t.buffer)
		account.sentBytes.Add(uint64(n))
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tcpStream) interrupt() { _ = t.conn.Close() }

func (t *tcpStream) release() {}
