package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DownloadOptions say what a client gets from a server, each in a network namespace of this machine.
type DownloadOptions struct {
	// SenderOptions are the server's. Of Target only the address counts, which is the server's own.
	SenderOptions
	// InServer and InClient run a function whose new sockets are the server's or the client's.
	InServer, InClient func(func() error) error
	// BinWidth and Bins size the receiver's time series; Bins 0: none.
	BinWidth time.Duration
	Bins     int
}

// NewDownload connects a client with a server the way an application asks for data: it dials by TCP, and
// sends one datagram by UDP. The sender is the server's, and sends nothing before it is started. The
// receiver is the client's, and counts until it is closed.
func NewDownload(ctx context.Context, options DownloadOptions) (*Sender, *Download, error) {
	options.SenderOptions = options.withDefaults()
	sender, receiver := &Sender{}, &Download{binWidth: options.BinWidth, bins: make([]atomic.Uint64, options.Bins)}
	var alive context.Context
	alive, receiver.stop = context.WithCancel(context.Background())
	count, connect, atOnce := options.Connections, downloadTCP, drainBytes
	if options.Protocol == UDP {
		count, connect, atOnce = 1, downloadUDP, 0
	}
	for range count {
		server, client, err := connect(ctx, options)
		if err != nil {
			sender.Stop()
			receiver.Close()
			return nil, nil, fmt.Errorf("download from %s: %w", options.Target.Addr(), err)
		}
		sender.streams = append(sender.streams, server)
		receiver.sockets = append(receiver.sockets, client)
		receiver.wait.Go(func() { drain(client, atOnce, receiver.count) })
		if datagrams, ok := client.(*net.UDPConn); ok {
			receiver.wait.Go(func() { keepAlive(alive, datagrams) })
		}
	}
	return sender, receiver, nil
}

func downloadTCP(ctx context.Context, options DownloadOptions) (server stream, client receiving, err error) {
	var listener *net.TCPListener
	err = options.InServer(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(options.Target.Addr(), 0)))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	var dialed net.Conn
	err = options.InClient(func() (err error) {
		dialer := net.Dialer{Timeout: dialTimeout}
		dialed, err = dialer.DialContext(ctx, "tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	accepted, err := listener.AcceptTCP()
	if err != nil {
		dialed.Close()
		return nil, nil, err
	}
	if server, err = newTCPStream(accepted, options.SenderOptions); err != nil {
		dialed.Close()
	}
	return server, dialed.(*net.TCPConn), err
}

func downloadUDP(_ context.Context, options DownloadOptions) (server stream, client receiving, err error) {
	fd := -1
	err = options.InServer(func() (err error) {
		fd, err = bindUDP(options.Target.Addr())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (stream, receiving, error) {
		unix.Close(fd)
		return nil, nil, err
	}
	port, err := portOf(fd)
	if err != nil {
		return fail(err)
	}
	var dialed *net.UDPConn
	err = options.InClient(func() (err error) {
		dialed, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(options.Target.Addr(), port)))
		return err
	})
	if err != nil {
		return fail(err)
	}
	// Where the server finds the client, NAT decides.
	_, err = dialed.Write([]byte("send"))
	var from unix.Sockaddr
	if err == nil {
		_, from, err = unix.Recvfrom(fd, make([]byte, 16), 0)
	}
	if err == nil {
		err = errors.Join(os.NewSyscallError("connect", unix.Connect(fd, from)), setTimeouts(fd, sendTimeout))
	}
	if err != nil {
		dialed.Close()
		return fail(err)
	}
	if server, err = newUDPStream(fd, options.SenderOptions); err != nil {
		dialed.Close()
	}
	return server, dialed, err
}

// receiving is a client's socket.
type receiving interface {
	syscall.Conn
	Close() error
}

// Download counts what the sockets of a client receive: bytes of payload, as the application gets
// them.
type Download struct {
	sockets  []receiving
	wait     sync.WaitGroup
	bytes    atomic.Uint64
	packets  atomic.Uint64 // reads: datagrams by UDP
	originNS atomic.Int64
	binWidth time.Duration
	bins     []atomic.Uint64
	stop     context.CancelFunc
}

// keepAliveInterval is a fraction of the half minute after which NAT forgets a flow of UDP that has not been answered.
const keepAliveInterval = 2 * time.Second

// keepAlive has NAT remember the client until its server sends, which may be long after the connection.
func keepAlive(ctx context.Context, client *net.UDPConn) {
	again := time.NewTicker(keepAliveInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			_, _ = client.Write([]byte("here")) // the next one may arrive
		}
	}
}

func (r *Download) count(bytes int) {
	r.bytes.Add(uint64(bytes))
	r.packets.Add(1)
	if origin := r.originNS.Load(); origin > 0 {
		if bin := (MonotonicNS() - origin) / r.binWidth.Nanoseconds(); bin < int64(len(r.bins)) {
			r.bins[bin].Add(uint64(bytes))
		}
	}
}

// Received is what was received so far: payload, and by UDP how many datagrams.
func (r *Download) Received() (bytes, datagrams uint64) { return r.bytes.Load(), r.packets.Load() }

// StartSeries starts to fill the series, once, with the first bin at a time of CLOCK_MONOTONIC.
func (r *Download) StartSeries(originNS int64) { r.originNS.Store(originNS) }

// Series is what was received in each bin.
func (r *Download) Series() []uint64 {
	series := make([]uint64, len(r.bins))
	for i := range r.bins {
		series[i] = r.bins[i].Load()
	}
	return series
}

// Close closes the sockets.
func (r *Download) Close() error {
	r.stop()
	var problems []error
	for _, socket := range r.sockets {
		problems = append(problems, socket.Close())
	}
	r.wait.Wait()
	return errors.Join(problems...)
}
