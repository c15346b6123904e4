package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/access"
	"github.com/weir-project/weir/internal/front/httpapi"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/promise"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

const (
	// changeTimeout bounds a request, and changeBytes the body of one that changes promises.
	changeTimeout = 5 * time.Second
	changeBytes   = 64 << 10
	// pathsPerRequest paths count as another request: one takes 16 µs in a ring of 4 switches and 135 µs in one
	// of 30, during which no packet-in is answered; a request takes 0.3 ms with its client.
	pathsPerRequest = 4
)

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	for kind, status := range map[error]int{
		promise.ErrInvalid: http.StatusBadRequest, promise.ErrUnknown: http.StatusNotFound,
		promise.ErrAlike: http.StatusUnprocessableEntity, promise.ErrNoRoom: http.StatusConflict,
		promise.ErrStandby: http.StatusServiceUnavailable,
	} {
		if errors.Is(err, kind) {
			return status
		}
	}
	return http.StatusInternalServerError
}

// addLinks adds the routes that read links and promises.
func (c *Controller) addLinks(mux *http.ServeMux, queues queueStates) {
	serve := c.server()
	mux.HandleFunc("GET /v1/links", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.Links(queues)) })
	mux.HandleFunc("GET /v1/paths", serve(func(r *http.Request) (any, error) {
		query := r.URL.Query()
		to, err := netip.ParseAddr(query.Get("to"))
		from := query["from"]
		if err != nil || len(from) == 0 || len(from) > v1.SDNMaxPaths {
			return nil, promise.Refuse(promise.ErrInvalid, "want ?to=ADDRESS and &from=ADDRESS up to %d times", v1.SDNMaxPaths)
		}
		paths := make([]v1.SDNPath, len(from))
		for i := range from {
			host, err := netip.ParseAddr(from[i])
			if err != nil {
				return nil, promise.Refuse(promise.ErrInvalid, "read from=: %v", err)
			}
			paths[i] = c.path(host, to)
		}
		return paths, nil
	}))
}

// Changing adds to a handler the routes that change promises, for callers that may.
func (c *Controller) Changing(read http.Handler) http.Handler {
	mux, serve := http.NewServeMux(), c.server()
	mux.Handle("/", read)
	mux.HandleFunc("POST /v1/promises", serve(func(r *http.Request) (any, error) {
		return c.promise(r, "", core.Desk.Reserve)
	}))
	mux.HandleFunc("PUT /v1/promises/{id}", serve(func(r *http.Request) (any, error) {
		return c.promise(r, r.PathValue("id"), core.Desk.Confirm)
	}))
	mux.HandleFunc("DELETE /v1/promises/{id}", serve(func(r *http.Request) (any, error) {
		c.mu.Lock()
		defer c.decided()
		commands, err := c.core.Promises().Release(time.Now(), r.PathValue("id"))
		c.deliver(commands)
		c.promisesChanged()
		return struct{}{}, err
	}))
	return mux
}

// errMayRead says that the caller may change nothing.
var errMayRead = errors.New("this caller may read only: promises need a token with the role admin (weir token NAME --role admin), or a certificate of an --api-admin")

// Remote returns a server of all routes for other hosts: those that change promises for callers with the
// role admin.
func (c *Controller) Remote(queues queueStates, tokens *access.Tokens, certificates *access.Certificates) *http.Server {
	all, answers := c.Changing(c.Handler(queues)), c.answers()
	return httpapi.NewRemote(c.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && access.CallerFrom(r.Context()).Role < access.Admin {
			answers.Refuse(w, r, http.StatusForbidden, errMayRead)
			return
		}
		all.ServeHTTP(w, r)
	})), answers, tokens, certificates)
}

func (c *Controller) answers() *httpapi.Answers {
	return &httpapi.Answers{Log: c.options.Log, Status: statusOf, Timeout: changeTimeout, Cost: cost}
}

// cost returns how many requests a request counts as.
func cost(r *http.Request) int {
	if r.URL.Path != "/v1/paths" {
		return 1
	}
	return 1 + min(len(r.URL.Query()["from"]), v1.SDNMaxPaths)/pathsPerRequest
}

// server returns a function that makes handlers.
func (c *Controller) server() func(func(*http.Request) (any, error)) http.HandlerFunc {
	answers := c.answers()
	return func(serve func(*http.Request) (any, error)) http.HandlerFunc {
		return answers.Serve(changeTimeout, changeBytes, func(_ http.ResponseWriter, r *http.Request) (any, error) { return serve(r) })
	}
}

// promise reserves or confirms the promise in the body of a request.
func (c *Controller) promise(r *http.Request, id string, do func(core.Desk, time.Time, promise.Request) (core.PromiseState, []core.Command, error)) (any, error) {
	var body v1.SDNPromiseRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, promise.Refuse(promise.ErrInvalid, "read the promise: %v", err)
	}
	if id != "" && body.ID != id {
		return nil, promise.Refuse(promise.ErrInvalid, "the id in the path is %q, in the promise %q", id, body.ID)
	}
	wanted := promise.Request{
		ID: body.ID, Service: body.Service, MinBPS: [2]uint64{body.MinBPS, body.BackBPS},
		Traffic: promise.Traffic{Node: body.Node.Unmap(), Peer: body.Peer.Unmap(), Port: body.Port, Protocol: map[string]uint8{"tcp": promise.TCP, "udp": promise.UDP}[body.Protocol]},
	}
	c.mu.Lock()
	defer c.decided()
	state, commands, err := do(c.core.Promises(), time.Now(), wanted)
	c.deliver(commands)
	if err != nil {
		return nil, err
	}
	c.promisesChanged()
	return promiseView(state), nil
}

// promisesChanged has queues made, and the answer of Links made again. The caller holds c.mu.
func (c *Controller) promisesChanged() {
	c.promised.Add(1)
	if c.options.PromisesChanged != nil {
		c.options.PromisesChanged()
	}
}

// PromisedAt returns the queues of promises at a port.
func (c *Controller) PromisedAt(at topology.Port) []qos.Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Promises().At(at)
}

// tellPromises logs the promises that changed by themselves. The caller holds c.mu.
func (c *Controller) tellPromises() {
	for _, p := range c.core.Promises().News() {
		log := c.options.Log.With("id", p.ID, "service", p.Service, "node", p.Node, "peer", p.Peer)
		switch {
		case p.Broken != nil:
			log.Warn("promise broken", "reason", p.Broken)
		case p.Ways[0] == nil && p.Ways[1] == nil:
			log.Info("promise ended: it was not confirmed")
		default:
			log.Info("promise moved, or in force again", "path", fmt.Sprint(p.Ways))
		}
		c.promisesChanged()
	}
}

func (c *Controller) path(from, to netip.Addr) v1.SDNPath {
	c.mu.Lock()
	defer c.decided()
	way, free, commands, err := c.core.Promises().PathBetween(time.Now(), from.Unmap(), to.Unmap())
	c.deliver(commands)
	out := v1.SDNPath{From: from, Hops: hops(way), FreeMinBPS: free, State: v1.PathOK}
	switch {
	case errors.Is(err, promise.ErrNoRoom):
		out.State, out.Reason = v1.PathNone, err.Error()
	case err != nil:
		out.State, out.Reason = v1.PathRefused, err.Error()
	}
	return out
}

// Links returns what links have, carry and have promised, and all promises: the present ones, the rest at
// most answerAge old. The caller changes nothing in it.
func (c *Controller) Links(queues queueStates) v1.SDNLinks {
	return c.links.get(c.promised.Load(), func() v1.SDNLinks { return c.makeLinks(queues.now()) })
}

func (c *Controller) makeLinks(made map[topology.Port]qos.PortState) v1.SDNLinks {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.core.Snapshot(false)
	out := v1.SDNLinks{At: s.At, Standby: c.core.IsStandby(), Links: []v1.SDNLinkDirection{}, Promises: []v1.SDNPromise{}}
	for _, n := range s.Switches {
		for _, p := range n.Ports {
			at := topology.Port{Switch: n.DPID, Number: p.Number}
			state, queued := made[at]
			if !p.Link && len(p.Stations) == 0 && !queued {
				continue
			}
			view := c.port(p, state)
			one := v1.SDNLinkDirection{
				DPID: n.DPID.String(), Port: p.Number, Name: view.Name, PeerDPID: view.PeerDPID, PeerPort: view.PeerPort, Hosts: view.Hosts,
				RateBPS: view.RateBPS, SentBPS: view.SentBPS, State: "ok", Reason: p.Slow,
			}
			promised, free, err := c.core.Promises().FreeMinimum(at)
			one.PromisedBPS, one.FreeMinBPS = promised, free
			switch {
			case !p.Up:
				one.State, one.FreeMinBPS = "down", 0
			case err != nil:
				one.State, one.Reason = "refused", err.Error()
			case state.State == "degraded":
				one.State, one.Reason = state.State, state.Reason
			}
			out.Links = append(out.Links, one)
		}
	}
	for _, p := range c.core.Promises().All() {
		out.Promises = append(out.Promises, promiseView(p))
	}
	return out
}

func promiseView(p core.PromiseState) v1.SDNPromise {
	out := v1.SDNPromise{
		SDNPromiseRequest: v1.SDNPromiseRequest{
			ID: p.ID, Service: p.Service, Node: p.Node, Peer: p.Peer, Port: p.Port, MinBPS: p.MinBPS[0], BackBPS: p.MinBPS[1],
			Protocol: map[uint8]string{promise.TCP: "tcp", promise.UDP: "udp"}[p.Protocol],
		},
		State: v1.PromiseInForce, Since: p.Since, Path: hops(p.Ways[0]), Back: hops(p.Ways[1]),
	}
	switch {
	case p.Broken != nil:
		out.State, out.Reason = v1.PromiseBroken, p.Broken.Error()
	case p.Waits != "":
		out.State, out.Reason = v1.PromiseWaiting, p.Waits
	case !p.Expires.IsZero():
		out.State = v1.PromiseReserved
	}
	if !p.Expires.IsZero() {
		out.Expires = &p.Expires
	}
	return out
}

func hops(way []topology.Hop) (out []v1.SDNHop) {
	for _, hop := range way {
		out = append(out, v1.SDNHop{DPID: hop.Switch.String(), In: hop.In, Out: hop.Out})
	}
	return out
}
