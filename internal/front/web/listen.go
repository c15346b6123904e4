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

	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/config"
)

// budget limits the connections at once; a browser opens up to six, and a hundred pages connect
// again when the agent has started again. All callers without a token count as one here.
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
		return nil, fmt.Errorf("open the dashboard: %w: give it another address, or remove dashboard from the configuration", err)
	}
	return listener, nil
}

// isLoopbackHost reports whether the Host of a request is a loopback address or localhost. A
// browser sends the host in its address bar, so foreign pages have another one.
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

// Feed returns a handler that passes requests on to the agent at a Unix socket.
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
