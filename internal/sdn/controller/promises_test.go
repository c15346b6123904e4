package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// announce sends the answer of the host of a port to a question for its address.
func (p *player) announce(port byte) {
	host := []byte{2, 9, 9, 9, 9, port}
	frame := bytes.Join([][]byte{
		{2, 'W', 'e', 'i', 'r', 0}, host, {8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, host, {198, 18, 0, port}, {2, 'W', 'e', 'i', 'r', 0, 0, 0, 0, 0},
	}, nil)
	p.write(&openflow.PacketIn{
		BufferID: openflow.OFP_NO_BUFFER, TotalLen: uint16(len(frame)), Data: frame,
		Match: openflow.Match{Fields: []openflow.OXM{openflow.NewOXMNumber(openflow.OFPXMT_OFB_IN_PORT, uint64(port))}},
	})
}

// asker sends requests to a server.
type asker struct {
	t testing.TB
	*httptest.Server
}

// ask returns the status and the body of an answer.
func (a asker) ask(method, path string, body any) (int, string) {
	a.t.Helper()
	b, err := json.Marshal(body)
	must.Succeed(a.t, err)
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+path, bytes.NewReader(b))
	must.Succeed(a.t, err)
	response, err := a.Client().Do(request)
	must.Succeed(a.t, err)
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// TestPromises: the API promises what fits, says why not with a status for each reason, and has the
// queues made; the listener for readers changes nothing.
func TestPromises(t *testing.T) {
	var told atomic.Int64
	states := func() map[topology.Port]qos.PortState {
		one := qos.PortState{State: "ok", RateBPS: 1e8, PromisableBPS: 15e6, Queues: map[openflow.Queue]qos.Rates{8: {MinBPS: 5e6}}}
		return map[topology.Port]qos.PortState{{Switch: 3, Number: 1}: one, {Switch: 3, Number: 2}: one}
	}
	c, address := start(t, func(o *Options) {
		o.Core.QueueStates = states
		o.PromisesChanged = func() { told.Add(1) }
	}, nil)
	p := connect(t, dial(t, address), 3)
	eventually(t, "connected", func() bool { return c.connected(3) })
	p.learned(c)
	read := asker{t, httptest.NewServer(c.Handler(states))}
	defer read.Close()
	change := asker{t, httptest.NewServer(c.Changing(c.Handler(states)))}
	defer change.Close()

	want := v1.SDNPromiseRequest{ID: "web/1", Service: "web", Node: netip.MustParseAddr("198.18.0.1"), Peer: netip.MustParseAddr("198.18.0.2"), Protocol: "tcp", Port: 80, MinBPS: 5e6, BackBPS: 1e6}
	if status, body := change.ask("POST", "/v1/promises", want); status != http.StatusNotFound || !strings.Contains(body, "no port is known that leads to 198.18.0.1") {
		t.Fatalf("hosts that are not known: %d %s", status, body)
	}
	p.announce(1)
	p.announce(2)
	eventually(t, "promised", func() bool { status, _ := change.ask("POST", "/v1/promises", want); return status == http.StatusOK })
	if status, body := change.ask("PUT", "/v1/promises/web%2F1", want); status != http.StatusOK || !strings.Contains(body, `"state":"in force"`) || !strings.Contains(body, `"path":[{"dpid":"0000000000000003","in":1,"out":2}]`) {
		t.Errorf("confirmed: %d %s", status, body)
	}
	if q := c.PromisedAt(topology.Port{Switch: 3, Number: 2}); len(q) != 1 || q[0].ID != 8 || q[0].MinBPS != 5e6 || told.Load() < 2 {
		t.Errorf("queues %+v, told %d times", q, told.Load())
	}
	with := func(change func(*v1.SDNPromiseRequest)) v1.SDNPromiseRequest {
		r := want
		r.ID, r.Port = "2", 81
		change(&r)
		return r
	}
	for says, c := range map[string]struct {
		method, path string
		body         any
		status       int
	}{
		"3 port 2 has 10mbit left to promise": {"POST", "/v1/promises", with(func(r *v1.SDNPromiseRequest) { r.MinBPS = 11e6 }), http.StatusConflict},
		"is VXLAN":                            {"POST", "/v1/promises", with(func(r *v1.SDNPromiseRequest) { r.Protocol, r.Port = "udp", 4789 }), http.StatusUnprocessableEntity},
		"both minimums are 0":                 {"POST", "/v1/promises", with(func(r *v1.SDNPromiseRequest) { r.MinBPS, r.BackBPS = 0, 0 }), http.StatusBadRequest},
		"unknown field":                       {"POST", "/v1/promises", map[string]int{"minimum": 1}, http.StatusBadRequest},
		"the id in the path is":               {"PUT", "/v1/promises/other", want, http.StatusBadRequest},
		"there is no promise of this id":      {"DELETE", "/v1/promises/none", nil, http.StatusNotFound},
		"want ?to=ADDRESS":                    {"GET", "/v1/paths?from=198.18.0.1&to=x", nil, http.StatusBadRequest},
		"up to 32 times":                      {"GET", "/v1/paths?to=198.18.0.1" + strings.Repeat("&from=198.18.0.2", v1.SDNMaxPaths+1), nil, http.StatusBadRequest},
		`unable to parse IP`:                  {"GET", "/v1/paths?to=198.18.0.1&from=198.18.0.2&from=x", nil, http.StatusBadRequest},
		`"free_min_bps":10000000,"state":"ok"},{"from":"198.18.0.9","free_min_bps":0,"state":"refused","reason":"no port is known`: {"GET", "/v1/paths?from=198.18.0.1&from=198.18.0.9&to=198.18.0.2", nil, http.StatusOK},
		`"promised_bps":5000000,"free_min_bps":10000000,"state":"ok"`:                                                              {"GET", "/v1/links", nil, http.StatusOK},
		`"promises":[{"id":"web/1"`: {"GET", "/v1/links", nil, http.StatusOK},
	} {
		if status, body := change.ask(c.method, c.path, c.body); status != c.status || !strings.Contains(body, says) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.method, c.path, status, body, c.status, says)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if status, _ := read.ask(method, "/v1/promises/web%2F1", want); status == http.StatusOK {
			t.Errorf("%s for readers: %d", method, status)
		}
	}
	if status, _ := change.ask("DELETE", "/v1/promises/web%2F1", nil); status != http.StatusOK || len(c.PromisedAt(topology.Port{Switch: 3, Number: 2})) > 0 {
		t.Errorf("released: %d", status)
	}
}

// remote serves a controller for other hosts, and returns what makes clients with a role.
func remote(t *testing.T, c *Controller) (open func(name string, role access.Role) *client.SDN) {
	t.Helper()
	authority, path := pki.New(t), filepath.Join(t.TempDir(), "tokens")
	pair := authority.Server(t, "sdn")
	certificates, err := access.NewCertificates(access.TLSFiles{Certificate: pair.Certificate, Key: pair.Key}, nil, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	l, err := httpapi.ListenTLS("127.0.0.1:0", certificates)
	must.Succeed(t, err)
	server := c.Remote(nil, access.NewTokens(path, slog.New(slog.DiscardHandler)), certificates)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	trust, err := client.LoadTLS(authority.Path, "", "")
	must.Succeed(t, err)
	return func(name string, role access.Role) *client.SDN {
		token := "weir_wrong"
		if role > access.None {
			token, err = access.AddToken(path, name, role)
			must.Succeed(t, err)
		}
		sdn, err := client.OpenSDN("https://"+l.Addr().String(), client.Options{TLS: trust, Token: token})
		must.Succeed(t, err)
		return sdn
	}
}

// statusFrom returns the status of an error of the API; 0 for others and none.
func statusFrom(err error) int {
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		return refused.Status
	}
	return 0
}

// TestRemote: other hosts need a token; with the role read they read, with admin they promise.
func TestRemote(t *testing.T) {
	c, _ := start(t, func(*Options) {}, nil)
	open := remote(t, c)
	for name, role := range map[string]access.Role{"unknown": access.None, "hub": access.Read, "weir-edge": access.Admin} {
		sdn := open(name, role)
		_, reads := sdn.Links(t.Context())
		_, promises := sdn.Reserve(t.Context(), v1.SDNPromiseRequest{ID: "a"})
		wanted := map[access.Role][2]int{access.None: {401, 401}, access.Read: {0, 403}, access.Admin: {0, 400}}[role]
		for i, err := range []error{reads, promises} {
			if status := statusFrom(err); status != wanted[i] {
				t.Errorf("%s: %v, want %d", name, err, wanted[i])
			}
		}
	}
}

// TestStandby: a controller that is not the master says so, and promises nothing.
func TestStandby(t *testing.T) {
	c, _ := start(t, func(o *Options) { o.Core.TakeoverAfter = time.Minute }, nil)
	sdn := remote(t, c)("weir-edge", access.Admin)
	if l, err := sdn.Links(t.Context()); err != nil || !l.Standby {
		t.Errorf("%+v, %v", l, err)
	}
	_, err := sdn.Confirm(t.Context(), v1.SDNPromiseRequest{ID: "a"})
	if ended := sdn.Release(t.Context(), "a"); statusFrom(err) != http.StatusServiceUnavailable || statusFrom(ended) != http.StatusServiceUnavailable {
		t.Errorf("%v, %v", err, ended)
	}
}

// TestPathsCost: a question for many paths counts as several, so that a caller gets no more of them than the
// limit of requests is for; other callers have their own.
func TestPathsCost(t *testing.T) {
	c, _ := start(t, func(*Options) {}, nil)
	open := remote(t, c)
	asker, other := open("asker", access.Read), open("other", access.Read)
	to, from := netip.MustParseAddr("198.18.0.99"), make([]netip.Addr, v1.SDNMaxPaths)
	for i := range from {
		from[i] = netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
	}
	const cost, perSecond = 9, 50
	began, answered := time.Now(), 0
	for range httpapi.CallerBurst {
		_, err := asker.Paths(t.Context(), to, from)
		if statusFrom(err) == http.StatusTooManyRequests {
			break
		}
		must.Succeed(t, err)
		answered++
	}
	least := httpapi.CallerBurst / cost
	most := int(float64(httpapi.CallerBurst)+perSecond*time.Since(began).Seconds())/cost + 1
	if answered < least || answered > most {
		t.Errorf("%d questions for %d paths are answered, want from %d to %d", answered, len(from), least, most)
	}
	_, err := other.Paths(t.Context(), to, from)
	must.Succeed(t, err)
}

// deadlines records the deadline of an answer.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

// TestReadersAreBounded: each route that reads has a deadline, and readers share answers; that of links
// until promises change.
func TestReadersAreBounded(t *testing.T) {
	c, _ := start(t, func(*Options) {}, nil)
	for path, h := range map[string]http.Handler{
		"/v1/sdn": c.Handler(nil), "/v1/sdn/flows": c.Handler(nil), "/v1/sdn/topology.svg": c.Handler(nil), "/v1/links": c.Handler(nil), "/metrics": c.Metrics(nil),
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if left := time.Until(w.write); w.Code != http.StatusOK || left <= 0 || left > 2*changeTimeout {
			t.Errorf("%s: status %d, %v are left for the answer", path, w.Code, left)
		}
	}
	later := time.Now().Add(time.Hour)
	for route, made := range map[string]func(at time.Time) time.Time{
		"state": func(at time.Time) time.Time { c.state.at = at; c.View(nil); return c.state.at },
		"flows": func(at time.Time) time.Time { c.flows.at = at; c.Flows(); return c.flows.at },
		"links": func(at time.Time) time.Time { c.links.at = at; c.Links(nil); return c.links.at },
	} {
		if !made(later).Equal(later) {
			t.Errorf("%s: made for each request", route)
		}
		if old := time.Now().Add(-answerAge); made(old).Equal(old) {
			t.Errorf("%s: told after %v", route, answerAge)
		}
	}
	c.mu.Lock()
	c.promisesChanged()
	c.mu.Unlock()
	c.links.at = later
	if c.Links(nil); c.links.at.Equal(later) {
		t.Error("links are those from before promises changed")
	}
}

// TestSharedFlows: a question for the flows of some ends leaves all flows to the next reader.
func TestSharedFlows(t *testing.T) {
	c, _ := start(t, func(*Options) {}, nil)
	c.flows.value, c.flows.at = []v1.SDNFlow{{Flow: "a:1 > b:2"}, {Flow: "c:3 > d:4"}}, time.Now().Add(time.Hour)
	if some := withEnds(c.Flows(), []string{"c:3"}); len(some) != 1 || some[0].Flow != "c:3 > d:4" || c.Flows()[0].Flow != "a:1 > b:2" {
		t.Errorf("%+v of %+v", some, c.Flows())
	}
}
