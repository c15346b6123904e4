// Package response measures how long users of a service wait, at the node where they connect: from
// the request to the last byte that they get.
//
// # Problem
//
// A proxy such as HAProxy knows when it wrote the last byte of an answer to the kernel. There the
// bytes wait for the uplink, on a full one for seconds. The moment at which the last byte is
// acknowledged is known to the kernel only, and it is not the moment of the user either: a receiver
// may delay the acknowledgement of the last segment by 40 to 200 ms.
//
// # Method
//
// The proxies of weir-edge write a line about each request to an abstract socket as soon as they
// wrote its last byte (parseLine). The collector asks the kernel for that connection (sock_diag)
// until nothing of the answer is held in the socket or at a device any more, and it is
// acknowledged. When the last byte left the host, for good if it was lost and sent again, a round
// trip on an idle path is added: the ways of the request and of the last byte. A first request has
// to open its connection, which counts, too.
//
//	response = open + (written - arrived) + (left - written) + shortest round trip
//
// # Limits
//
// Looks at an answer are 2 ms or a twelfth of its age apart, and the middle between two counts: 4 %.
// At most 64 answers are followed at once, and 200 requests looked at in a second, which takes some
// hundredths of a processor. Both are divided among the services that have requests. Several requests at a time on one connection (HTTP/2, pipelining) count
// until the connection holds nothing. Bytes that wait beyond this host count only as far as they
// delay acknowledgements of what the host still holds.
package response

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

const (
	// mostWindows bounds the statistics that are kept, keptFor how long without requests: older ones
	// are no present response times.
	mostWindows = 1000
	keptFor     = time.Minute
	// A turn reads up to turnReads lines, 5000 a second, which takes a few hundredths of a processor.
	// What is written between that and its end is dropped.
	turn      = 100 * time.Millisecond
	turnReads = 500
)

// key names the statistics of a service (without an instance) or of one instance.
type key struct{ service, instance string }

// Collector measures response times. Services may be called at any time.
type Collector struct {
	// name is the socket's, retry the time until it is opened again after a failure.
	name    string
	retry   time.Duration
	senders senders
	log     *slog.Logger

	mu      sync.Mutex
	windows map[key]*window
	// problem is the reason why nothing is measured; nil: it is.
	problem error
}

// New returns a collector for the proxies of this network namespace. proxies lists their containers.
func New(proxies func(context.Context) ([]Proxy, error), log *slog.Logger) *Collector {
	return &Collector{
		name: v1.ResponseSocket, retry: 10 * time.Second, senders: senders{procDir: "/proc", proxies: proxies},
		log: log, windows: map[key]*window{},
	}
}

// Run measures until ctx ends. It logs what prevents that, and tries again.
func (c *Collector) Run(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		err := c.measure(ctx)
		if err != nil && err.Error() != logged {
			logged = err.Error()
			c.log.Warn("cannot measure response times of services", "error", err, "retry", c.retry)
		}
		c.setProblem(err)
		select {
		case <-ctx.Done():
		case <-time.After(c.retry):
		}
	}
}

func (c *Collector) setProblem(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = err
}

// listen opens the socket. Errors: another process has it.
func (c *Collector) listen() (*net.UnixConn, error) {
	// Addresses are compared in full length; HAProxy's are filled up with zeros.
	name := "@" + c.name + strings.Repeat("\x00", len(unix.RawSockaddrUnix{}.Path)-len(c.name)-1)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%s has the socket @%s: end it", holder("/proc", name), c.name)
	} else if err != nil {
		return nil, fmt.Errorf("listen for response times: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) {
			if noFilter := identity.AdmitRoot(int(fd)); noFilter != nil {
				c.log.Warn("any process can keep response times of services from being measured", "error", noFilter)
			}
			for _, option := range []int{unix.SO_PASSCRED, unix.SO_TIMESTAMPNS} {
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1))
			}
		})
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("listen for response times: %w", err)
	}
	return conn, nil
}

// measure measures until ctx ends, or until it cannot.
func (c *Collector) measure(ctx context.Context) error {
	conn, err := c.listen()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sockets, err := kernel.OpenSockets()
	if err != nil {
		return err
	}
	defer sockets.Close()
	c.setProblem(nil)
	t := tracker{look: sockets.Sending, done: c.count}
	line, control := make([]byte, 1024), make([]byte, controlBytes)
	var next, turnEnds, paused time.Time // paused: until then nothing was read
	reads, flooded := 0, false
	for ctx.Err() == nil {
		now := time.Now()
		if now.After(turnEnds) {
			var flood error
			if reads >= turnReads {
				paused = now
				flood = c.senders.flood(reads, c.name)
			}
			c.setProblem(flood)
			flooded, reads, turnEnds = flood != nil, 0, now.Add(turn)
			c.senders.forget()
			t.budget.renew()
		}
		if reads >= turnReads {
			until := turnEnds
			if !next.IsZero() && next.Before(until) {
				until = next
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(until)):
			}
			next = t.step(time.Now())
			continue
		}
		deadline := next
		if flooded && (deadline.IsZero() || turnEnds.Before(deadline)) {
			deadline = turnEnds // to see that it has ended
		}
		if err := conn.SetReadDeadline(deadline); err != nil && ctx.Err() == nil {
			return fmt.Errorf("read response times: %w", err)
		}
		n, controls, _, _, err := conn.ReadMsgUnix(line, control)
		now = time.Now()
		switch {
		case err == nil:
			reads++
			from, age := origin(control[:controls], now)
			if writtenAt := now.Add(-age); !writtenAt.Before(paused) && c.senders.isProxy(ctx, from) {
				t.take(string(line[:n]), writtenAt)
			}
		case !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
			return fmt.Errorf("read response times: %w", err)
		}
		next = t.step(now)
	}
	return nil
}

// controlBytes is the size of what the kernel says of a line: its sender, and when it was written.
var controlBytes = unix.CmsgSpace(unix.SizeofUcred) + unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{})))

// origin returns the sender of a line, and how long ago it was written.
func origin(control []byte, now time.Time) (from unix.Ucred, age time.Duration) {
	from.Uid = ^uint32(0)
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return from, 0
	}
	for i := range messages {
		if sender, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			from = *sender
		} else if at := (unix.Timespec{}); messages[i].Header.Type == unix.SCM_TIMESTAMPNS {
			if _, err := binary.Decode(messages[i].Data, binary.NativeEndian, &at); err == nil {
				age = min(max(time.Duration(now.UnixNano()-at.Nano()), 0), time.Second) // the clock may be set
			}
		}
	}
	return from, age
}

// count adds an answer to the statistics.
func (c *Collector) count(a *answer, deliveredAt time.Time) {
	took, delivery := a.took+deliveredAt.Sub(a.writtenAt), time.Duration(0)
	if a.held { // else the instance, not the network, was the slower one
		delivery = max(took-a.first-a.minRTT, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range []key{{service: a.service}, {a.service, a.instance}} {
		w := c.windows[of]
		if w == nil {
			if len(c.windows) >= mostWindows {
				c.dropOld(deliveredAt)
			}
			if len(c.windows) >= mostWindows {
				return
			}
			w = &window{}
			c.windows[of] = w
		}
		w.add(deliveredAt, took, delivery)
	}
}

// dropOld drops the statistics of services without present requests. c.mu is held.
func (c *Collector) dropOld(now time.Time) {
	maps.DeleteFunc(c.windows, func(_ key, w *window) bool {
		return now.Sub(time.Unix((w.newest()+1)*slotSeconds, 0)) > keptFor
	})
}

// Services returns the present response times of services and their instances, and an error if they
// cannot be measured.
func (c *Collector) Services() ([]v1.ServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.dropOld(now)
	list := []v1.ServiceResponse{}
	for of, w := range c.windows {
		seen := w.summary(now)
		list = append(list, v1.ServiceResponse{
			Service: of.service, Instance: of.instance, Requests: seen.requests,
			MeanSeconds: seen.mean.Seconds(), P95Seconds: seen.p95.Seconds(), DeliverySeconds: seen.delivery.Seconds(),
		})
	}
	slices.SortFunc(list, func(a, b v1.ServiceResponse) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Instance, b.Instance))
	})
	return list, c.problem
}
