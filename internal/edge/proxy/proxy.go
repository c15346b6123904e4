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
// Limits: HAProxy 2.4 or newer, which can add servers as it runs.
package proxy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// Mode says what a proxy understands of what it passes on.
type Mode string

// Modes. Response times are known of HTTP only; of TCP, how long connecting takes.
const (
	ModeHTTP Mode = "http"
	ModeTCP  Mode = "tcp"
)

// Config is all that a service's proxy is told.
type Config struct {
	Service string
	Mode    Mode
	// Health is the path that a healthy instance answers with 2xx or 3xx; empty means
	// that accepting a connection is healthy enough.
	Health string
	Ports  []Port
	// Control is where HAProxy takes commands, as its option "stats socket" says it.
	Control string
	// Remote lets weir-edge command it from other hosts; nil: only from this one.
	Remote *Remote
	// QueueTimeout bounds how long a user waits for a place at an instance.
	QueueTimeout time.Duration
	// ResponseTime is how long an answer may take; 0 if nothing is said.
	ResponseTime time.Duration
}

// Remote is a way to HAProxy's runtime socket over TLS with client certificates. That
// socket itself knows neither, so a TCP proxy of its own goes before it.
type Remote struct {
	Port uint16
	// Socket is the runtime socket, Certificate the file with the certificate and the
	// key that both sides have, as the container sees them.
	Socket, Certificate string
}

// Port is one published port and the instances behind it.
type Port struct {
	Host    uint16
	Servers []Server
}

// Server is an instance as the proxy knows it.
type Server struct {
	Name    string
	Address netip.AddrPort
	// Weight is 0 to 256: the part of the users that it gets. 0: those who are there.
	Weight int
	// MaxUsers is how many it serves at once; others wait. 0: no limit.
	MaxUsers int
	// Asked: its health is a question that it answers, late if it is busy. Its users are
	// then only sent away when it cannot be reached any more, which Apply sees; an
	// instance that is not asked is down when it cannot be reached.
	Asked bool
}

// How soon a proxy notices that an instance is dead: after two checks, the second
// of which follows the first that fails without delay.
const (
	checkInterval = 500 * time.Millisecond
	checkHurried  = 200 * time.Millisecond
	// checkDown is for those that do not answer, as all that have just been started: it is
	// a part of how long they take.
	checkDown    = 50 * time.Millisecond
	checksToFall = 2
)

// A check waits for a multiple of what users may wait, so that who is busy is not taken
// for dead, and for minCheckTimeout at least.
const (
	checkPatience   = 4
	minCheckTimeout = 5 * time.Second
)

func (c Config) checkTimeout() time.Duration {
	return max(minCheckTimeout, checkPatience*c.ResponseTime)
}

const (
	maxUsers       = 4000 // connections of one proxy, which takes two files for each
	connectTimeout = 1 * time.Second
	idleTimeout    = 60 * time.Second
	tunnelTimeout  = 1 * time.Hour
)

func (p Port) backend() string { return fmt.Sprintf("instances-%d", p.Host) }

func (p Port) frontend() string { return fmt.Sprintf("users-%d", p.Host) }

// Asks says whether instances are asked for their health.
func (c Config) Asks() bool { return c.Health != "" }

// File is HAProxy's configuration.
func (c Config) File() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by weir-edge for the service %s, which changes it as instances come and go.", c.Service)
	line("global")
	line("  maxconn %d", maxUsers)
	line("  stats socket %s", c.Control)
	// Users of a proxy that is replaced may stay for a while.
	line("  hard-stop-after 30s")
	line("defaults")
	line("  mode %s", c.Mode)
	line("  timeout connect %s", milliseconds(connectTimeout))
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
		line("  bind :%d ssl crt %s ca-file %s verify required", c.Remote.Port, c.Remote.Certificate, c.Remote.Certificate)
		line("  default_backend control")
		line("backend control")
		line("  mode tcp")
		line("  server socket unix@%s", c.Remote.Socket)
	}
	for _, port := range c.Ports {
		line("frontend %s", port.frontend())
		line("  bind :%d", port.Host)
		line("  default_backend %s", port.backend())
		line("backend %s", port.backend())
		line("  balance roundrobin")
		line("  fullconn %d", maxUsers)
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

// arguments are those of a server in the file, and of "add server".
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

// healthPath is a path as a request has it.
var healthPath = regexp.MustCompile(`^/[A-Za-z0-9._~=&/?-]*$`)

// CheckHealthPath says what is wrong with a path for health checks; empty is none.
func CheckHealthPath(path string) error {
	if path != "" && !healthPath.MatchString(path) {
		return fmt.Errorf("%q is not a path such as /healthy", path)
	}
	return nil
}
