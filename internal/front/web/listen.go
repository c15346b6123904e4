package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weir-project/weir/internal/access"
	"github.com/weir-project/weir/internal/config"
)

// budget is how many connections are open at once; a browser opens up to six, and a
// hundred pages all connect again when the agent has started again. Everybody who only
// looks is one caller here.
var budget = access.Budget{
	Strangers: 256, Roles: map[access.Role]int{access.Read: 512, access.Admin: 64}, Caller: 512,
}

// Listen opens a loopback address, as config.ParseDashboard takes it.
func Listen(address string) (net.Listener, error) {
	parsed, err := config.ParseDashboard(address)
	if err != nil {
		return nil, fmt.Errorf("open the dashboard: %q %w", address, err)
	}
	listener, err := net.Listen("tcp", parsed)
	if err != nil {
		return nil, fmt.Errorf("open the dashboard: %w: give it another address, or take dashboard away", err)
	}
	return listener, nil
}

// isLoopbackHost says whether the Host of a request is one that no name server can
// lead elsewhere. Only its own page asks like that: a browser sends the host that
// the address bar has.
func isLoopbackHost(hostPort string) bool {
	host := hostPort
	if name, _, err := net.SplitHostPort(hostPort); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// Feed asks the agent that listens at a Unix socket.
func Feed(socket string) http.Handler {
	var dialer net.Dialer
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "weir"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}},
		FlushInterval: -1, // events go on as they come
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, "the agent does not answer: "+err.Error())
		},
	}
	return &proxy
}
