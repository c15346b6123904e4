// Package proxy is PiCasso's Service Proxy (section III.A): an HAProxy for each
// service, which takes its users' connections and gives them to instances.
//
// The problem: instances come and go while users are connected, and HAProxy reads
// its file only when it starts. So every change is made twice: at HAProxy's runtime
// socket (management guide, section 9.3: add, del and set server), where no
// connection is lost by it, and in the file, from which HAProxy starts again with
// what was there last, also without weir-edge. Where the way to that socket is long, the
// connection is kept (line.go).
//
// What is to be changed is computed from what should be there and what HAProxy
// says is there (plan.go), so that doing it again does nothing. An instance that
// goes is drained: it gets no new users and is taken out when the last one has left.
//
// Limits: HAProxy 2.6 or newer, which can add servers as it runs.
package proxy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Mode is the protocol that a proxy understands.
type Mode string

// The modes. With HTTP, response times are measured; with TCP only connect times.
const (
	ModeHTTP Mode = "http"
	ModeTCP  Mode = "tcp"
)

// Config is the configuration of a service's proxy.
type Config struct {
	Service string
	Mode    Mode
	// Health is the path that a healthy instance answers with 2xx or 3xx; empty means
	// that accepting a connection is healthy enough.
	Health string
	Ports  []Port
	// Control is the address of HAProxy's runtime socket, in the syntax of its option "stats
	// socket".
	Control string
	// Remote enables commands from other hosts; nil allows this host only.
	Remote *Remote
	// QueueTimeout is the longest time that a request waits for a free instance.
	QueueTimeout time.Duration
	// ResponseTime is the longest acceptable response time; 0 if unspecified.
	ResponseTime time.Duration
	// Sleeps: without an instance that answers users wait for one (awaitProgram).
	Sleeps bool
	// Users is how many users all instances may serve at once; 0: unknown.
	Users int
}

// Remote exposes HAProxy's runtime socket over TLS with client certificates, by a TCP proxy in
// front of it, because the socket itself supports neither.
type Remote struct {
	Port uint16
	// Socket is the runtime socket, Certificate the file with the proxy's certificate and key, and
	// Clients that with the certificates of those who may send commands, as the container sees them.
	Socket, Certificate, Clients string
}

// Port is one published port and the instances behind it.
type Port struct {
	Host    uint16
	Servers []Server
}

// Server is an instance that the proxy is to have.
type Server struct {
	Name    string
	Address netip.AddrPort
	// Weight, 0 to 256, is the instance's relative share of users. 0 admits no new users.
	Weight int
	// MaxUsers is the number of concurrent users; further ones queue. 0: no limit.
	MaxUsers int
	// Asked: health checks are HTTP requests, which a busy instance answers late. Its users are
	// only moved when no connection is accepted any more, which Apply detects. Without it an
	// instance that refuses connections is down.
	Asked bool
}

// Check intervals: a dead instance is detected by two failed checks, the second without delay.
const (
	checkInterval = 500 * time.Millisecond
	checkHurried  = 200 * time.Millisecond
	// checkDown is the interval for instances that do not answer, such as new ones; it adds to
	// their start-up time.
	checkDown    = 50 * time.Millisecond
	checksToFall = 2
)

// The check timeout is a multiple of the specified response time, so that a busy instance is not
// taken for dead, and at least minCheckTimeout.
const (
	checkPatience   = 4
	minCheckTimeout = 5 * time.Second
)

func (c Config) checkTimeout() time.Duration {
	return max(minCheckTimeout, checkPatience*c.ResponseTime)
}

const (
	// minPlaces and maxPlaces bound the connections at a port. Each takes two files, and 32 kB while
	// it is used.
	minPlaces, maxPlaces = 4000, 50_000
	// controlPlaces are kept for commands.
	controlPlaces = 100
	// sourcePart of a port's places are the most that one address may have, so that one machine
	// cannot take all of them, and a load balancer has enough. Of IPv6 a machine has 64 bits.
	sourcePart = 2

	connectTimeout = 1 * time.Second
	// requestTimeout is the longest time that a request may take to arrive, keepAlive that a
	// connection may be idle after an answer. Browsers keep several, which take places.
	requestTimeout = 10 * time.Second
	keepAlive      = 5 * time.Second
	idleTimeout    = 60 * time.Second
	tunnelTimeout  = 1 * time.Hour
)

func (p Port) backend() string { return fmt.Sprintf("instances-%d", p.Host) }

func (p Port) frontend() string { return fmt.Sprintf("users-%d", p.Host) }

// places returns the number of connections at a port: twice as many as instances may have users,
// because users wait in the proxy.
func (c Config) places() int { return min(max(minPlaces, 2*c.Users), maxPlaces) }

// bind writes the addresses of a port. IPv4 has one of its own, so that its users have IPv4 sockets.
func bind(line func(format string, args ...any), port uint16, options string) {
	line("  bind :%d%s", port, options)
	line(".if defined(%s)", ipv6Variable)
	line("  bind :::%d v6only%s", port, options)
	line(".endif")
}

// Asks reports whether instances are checked by HTTP requests.
func (c Config) Asks() bool { return c.Health != "" }

// File returns HAProxy's configuration.
func (c Config) File() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by weir-edge for the service %s, which changes it as instances come and go.", c.Service)
	line("global")
	line("  maxconn %d", len(c.Ports)*c.places()+controlPlaces)
	line("  no strict-limits") // with fewer files it has fewer places, and runs
	line("  stats socket %s", c.Control)
	// Users of a proxy that is replaced may stay for a while.
	line("  hard-stop-after 30s")
	if c.Sleeps {
		line(".if feature(LUA)")
		line("  lua-load %s", awaitFile)
		line(".endif")
	}
	line("defaults")
	line("  mode %s", c.Mode)
	line("  timeout connect %s", milliseconds(connectTimeout))
	if c.Mode == ModeHTTP {
		line("  timeout http-request %s", milliseconds(requestTimeout))
		line("  timeout http-keep-alive %s", milliseconds(keepAlive))
	}
	line("  timeout check %s", milliseconds(c.checkTimeout()))
	line("  timeout client %s", milliseconds(idleTimeout))
	line("  timeout server %s", milliseconds(idleTimeout))
	// A connection that has become a tunnel, such as a WebSocket, may be silent.
	line("  timeout tunnel %s", milliseconds(tunnelTimeout))
	line("  timeout queue %s", milliseconds(c.QueueTimeout))
	line("  retries 3")
	line("  option redispatch 1")
	if c.Remote != nil {
		line("frontend control")
		line("  mode tcp")
		bind(line, c.Remote.Port, fmt.Sprintf(" ssl crt %s ca-file %s verify required", c.Remote.Certificate, c.Remote.Clients))
		line("  default_backend control")
		line("backend control")
		line("  mode tcp")
		line("  server socket unix@%s", c.Remote.Socket)
	}
	for _, port := range c.Ports {
		line("frontend %s", port.frontend())
		bind(line, port.Host, "")
		line("  maxconn %d", c.places())
		line("  stick-table type ipv6 size 100k expire 60s store conn_cur")
		line("  tcp-request connection track-sc0 src,ipmask(32,64)")
		line("  tcp-request connection reject if { sc0_conn_cur gt %d }", c.places()/sourcePart)
		if c.Mode == ModeHTTP {
			c.logResponses(line)
		}
		if c.Sleeps {
			c.awaitInstance(line, port.backend())
		}
		line("  default_backend %s", port.backend())
		line("backend %s", port.backend())
		line("  balance roundrobin")
		line("  fullconn %d", c.places())
		if c.Health != "" {
			line("  option httpchk GET %s", c.Health)
		}
		for _, s := range port.Servers {
			s.Asked = c.Asks()
			line("  server %s %s", s.Name, s.arguments())
		}
	}
	return b.String()
}

// awaitInstance has users wait while no instance answers. An HAProxy without Lua refuses them until then.
func (c Config) awaitInstance(line func(format string, args ...any), backend string) {
	line(".if feature(LUA)")
	if rule := "lua.await if { nbsrv(%s) eq 0 }"; c.Mode == ModeHTTP {
		line("  http-request "+rule, backend)
	} else {
		line("  tcp-request inspect-delay %s", milliseconds(awaitTime))
		line("  tcp-request content "+rule, backend)
	}
	line(".endif")
}

// logResponses has the agent of the node told about each request (internal/agent/response), and how
// long its connection took to open: a round trip. Streams of events and WebSockets are no answers
// that users wait for: they last as long as users stay.
func (c Config) logResponses(line func(format string, args ...any)) {
	line("  http-request set-var(txn.open) fc_rtt(us) if { http_first_req }")
	line("  http-response set-log-level silent if { status 101 } || { res.hdr(content-type) -m beg text/event-stream }")
	line("  log abns@%s format raw local0", v1.ResponseSocket)
	line(`  log-format "%s %%s %%ci %%cp %%fi %%fp %%TR %%Tw %%Tc %%Tr %%Ta %%[var(txn.open)] %%ts"`, c.Service)
}

// arguments returns a server's arguments, for the file and for "add server".
func (s Server) arguments() string {
	text := fmt.Sprintf("%s check inter %s fastinter %s downinter %s fall %d rise 1 weight %d",
		s.Address, milliseconds(checkInterval), milliseconds(checkHurried), milliseconds(checkDown), checksToFall, s.Weight)
	if !s.Asked {
		text += " on-marked-down shutdown-sessions"
	}
	if s.MaxUsers > 0 {
		text += fmt.Sprintf(" maxconn %d", s.MaxUsers)
	}
	return text
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// healthPath returns a path as a request has it.
var healthPath = regexp.MustCompile(`^/[A-Za-z0-9._~=&/?-]*$`)

// CheckHealthPath returns an error if a health path is invalid; an empty one is valid.
func CheckHealthPath(path string) error {
	if path != "" && !healthPath.MatchString(path) {
		return fmt.Errorf("%q is not a path such as /healthy", path)
	}
	return nil
}
