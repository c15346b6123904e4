package traffic

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// drainBytes is how much of a connection is dropped at once.
const drainBytes = 1 << 20

// Sink takes what senders send: TCP and UDP, IPv4 and IPv6, on a range of
// ports. Nothing is looked at: a meter counts below.
type Sink struct {
	listeners []*net.TCPListener
	sockets   []*net.UDPConn
	wait      sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	connections map[net.Conn]struct{}
}

// NewSink opens ports basePort to basePort+ports-1 in the calling thread's
// network namespace.
func NewSink(basePort uint16, ports int) (*Sink, error) {
	s := &Sink{connections: map[net.Conn]struct{}{}}
	for i := range ports {
		if err := s.open(int(basePort) + i); err != nil {
			return nil, errors.Join(fmt.Errorf("open sink: %w", err), s.Close())
		}
	}
	for _, listener := range s.listeners {
		s.wait.Go(func() { s.accept(listener) })
	}
	return s, nil
}

func (s *Sink) open(port int) error {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, listener)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	s.sockets = append(s.sockets, socket)
	// Nothing is read: the kernel drops what does not fit the smallest buffer,
	// which costs least, and the open port keeps ICMP errors away.
	return socket.SetReadBuffer(1)
}

func (s *Sink) accept(listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			conn.Close()
			return
		}
		s.connections[conn] = struct{}{}
		s.wait.Go(func() {
			drain(conn, drainBytes, func(int) {})
			conn.Close()
			s.mu.Lock()
			delete(s.connections, conn)
			s.mu.Unlock()
		})
		s.mu.Unlock()
	}
}

// drain drops all that arrives and tells count of it, without a copy to user space: the receiver
// shares the machine with what is measured. That is MSG_TRUNC with up to atOnce bytes of TCP (tcp(7)),
// and with none of a datagram, of which it gives the size (udp(7)).
func drain(conn syscall.Conn, atOnce int, count func(bytes int)) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	for ended := false; !ended; {
		err := raw.Read(func(fd uintptr) bool {
			n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, 0, uintptr(atOnce), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			switch {
			case errno == unix.EAGAIN:
				return false
			case errno == 0 && n > 0:
				count(int(n))
			default:
				ended = errno != unix.EINTR
			}
			return true
		})
		ended = ended || err != nil
	}
}

// Close closes all ports and connections. Closing twice is allowed.
func (s *Sink) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	for conn := range s.connections {
		conn.Close()
	}
	s.mu.Unlock()
	if already {
		return nil
	}
	var problems []error
	for _, listener := range s.listeners {
		problems = append(problems, listener.Close())
	}
	for _, socket := range s.sockets {
		problems = append(problems, socket.Close())
	}
	s.wait.Wait()
	return errors.Join(problems...)
}
