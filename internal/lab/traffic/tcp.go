package traffic

import (
	"context"
	"fmt"
	"net"
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
	t := &tcpStream{conn: conn.(*net.TCPConn), buffer: make([]byte, options.WriteBytes)}
	// Close with a reset: what is still in the socket must not be sent.
	if err := t.conn.SetLinger(0); err != nil {
		t.interrupt()
		return nil, fmt.Errorf("set linger: %w", err)
	}
	if options.RateBPS > 0 {
		if err := setPacingRate(t.conn, options.RateBPS/8/uint64(options.Connections)); err != nil {
			t.interrupt()
			return nil, err
		}
	}
	return t, nil
}

func setPacingRate(conn *net.TCPConn, bytesPerSecond uint64) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("set the pacing rate: %w", err)
	}
	return nil
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
