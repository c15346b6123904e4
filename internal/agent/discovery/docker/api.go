package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/api/v1/transport"
)

// The range of supported API versions. Everything this package reads has had the same shape since
// 1.24; 1.40 (Docker 19.03, Podman) is the oldest tested version. The upper end must not lag far
// behind, because engines refuse old versions (Docker 29: below 1.44).
var (
	oldestAPI = apiVersion{1, 40}
	newestAPI = apiVersion{1, 56}
)

const (
	// requestTimeout bounds every request but the event stream. An engine that starts a hundred
	// containers at once may take seconds to answer.
	requestTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second
)

// Bounds of an engine's answers: a faulty engine must not take the agent's memory. A container in a
// list has a few kilobytes, and the agent controls 4000.
const (
	// maxListBytes bounds a list, and a network with all its containers.
	maxListBytes = 16 << 20
	// maxNetworks bounds the networks that are known.
	maxNetworks = 16384
	// maxPending bounds the containers that events name at once: a look at each is a goroutine, and a
	// host has fewer (4079 numbers).
	maxPending = 4096
	// maxObjectBytes bounds a container, an image, or an event, which repeats the container's labels.
	maxObjectBytes = 4 << 20
	// maxIDBytes bounds a container's ID in an event: engines use 64.
	maxIDBytes = 128
)

// apiVersion is a version of the Docker API, e.g. 1.41.
type apiVersion struct{ major, minor int }

func (v apiVersion) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v apiVersion) less(w apiVersion) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// parseVersion parses a version such as "1.41".
func parseVersion(text string) (apiVersion, error) {
	majorText, minorText, _ := strings.Cut(text, ".")
	major, err := strconv.ParseUint(majorText, 10, 16)
	if err != nil {
		return apiVersion{}, fmt.Errorf("read API version %q: %w", text, err)
	}
	minor, err := strconv.ParseUint(minorText, 10, 16)
	if err != nil {
		return apiVersion{}, fmt.Errorf("read API version %q: %w", text, err)
	}
	return apiVersion{int(major), int(minor)}, nil
}

// negotiate returns the API version to use with an engine whose newest version is offered.
func negotiate(offered string) (apiVersion, error) {
	version, err := parseVersion(offered)
	if err != nil {
		return apiVersion{}, err
	}
	if version.less(oldestAPI) {
		return apiVersion{}, fmt.Errorf("the engine's API is version %v, but %v is needed: update the engine", version, oldestAPI)
	}
	if newestAPI.less(version) {
		return newestAPI, nil
	}
	return version, nil
}

// statusError is an HTTP response with an error status.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the engine answers %d: %s", e.status, e.message)
}

// answerError is a response that cannot be decoded although the connection is intact.
type answerError struct{ err error }

func (e *answerError) Error() string { return "read the engine's answer: " + e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status == http.StatusNotFound
}

// isAnswer reports whether the engine answered: the connection is intact, and the error concerns
// this request only.
func isAnswer(err error) bool {
	var status *statusError
	var answer *answerError
	return errors.As(err, &status) || errors.As(err, &answer)
}

// api is a minimal client of the Docker API. The full client decodes everything, which is megabytes
// of garbage for a thousand containers.
type api struct {
	http    *http.Client
	version apiVersion
}

// connect returns a client that has negotiated the API version.
func connect(ctx context.Context, transport http.RoundTripper) (*api, error) {
	a := &api{http: &http.Client{Transport: transport}}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := a.do(ctx, "/_ping")
	if err != nil {
		return nil, err
	}
	drain(resp)
	if a.version, err = negotiate(resp.Header.Get("Api-Version")); err != nil {
		return nil, err
	}
	return a, nil
}

// newTransport returns an HTTP transport over a Unix socket. Extra connections that a burst of
// inspections opened are closed soon after.
func newTransport(socket string) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost:   inspectors,
		IdleConnTimeout:       10 * time.Second,
		ResponseHeaderTimeout: requestTimeout,
		DisableCompression:    true,
		ReadBufferSize:        4 << 10,
		WriteBufferSize:       1 << 10,
	}
}

// do sends a request; the caller closes the body of the response.
func (a *api) do(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "weir")
	resp, err := a.http.Do(req)
	if err != nil {
		// Drop the URL, which is made up; only its path helps a reader.
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer drain(resp)
		var body struct{ Message string }
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if json.Unmarshal(text, &body) != nil || body.Message == "" {
			body.Message = strings.TrimSpace(string(text))
		}
		return nil, &statusError{resp.StatusCode, body.Message}
	}
	return resp, nil
}

// drain reads the rest of a body so that the connection can be reused.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
}

// get decodes the JSON value at a path of the negotiated API version, of up to maxBytes.
func (a *api) get(ctx context.Context, path string, maxBytes int, read func(*json.Decoder) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := a.do(ctx, "/v"+a.version.String()+path)
	if err != nil {
		return err
	}
	defer drain(resp)
	body := &transport.Bounded{R: resp.Body, MaxBytes: maxBytes}
	if err := read(json.NewDecoder(body)); err != nil {
		if body.Err != nil {
			return body.Err // a connection error, not a bad response
		}
		return &answerError{err}
	}
	return nil
}

// readArray decodes a JSON array one element at a time, so that the list of a thousand containers
// is never in memory as a whole.
func readArray[T any](dec *json.Decoder, each func(T)) error {
	if token, err := dec.Token(); err != nil {
		return err
	} else if token == nil {
		return nil // null: Go's encoding of an empty list
	} else if token != json.Delim('[') {
		return fmt.Errorf("a list begins with %v", token)
	}
	for dec.More() {
		var element T
		if err := dec.Decode(&element); err != nil {
			return err
		}
		each(element)
	}
	_, err := dec.Token()
	return err
}

// running returns the IDs of all running containers, paused ones included.
func (a *api) running(ctx context.Context) ([]string, error) {
	var ids []string
	err := a.get(ctx, "/containers/json", maxListBytes, func(dec *json.Decoder) error {
		return readArray(dec, func(c struct {
			ID string `json:"Id"`
		}) {
			ids = append(ids, c.ID)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return ids, nil
}

// inspection holds the fields read from a container inspection.
type inspection struct {
	ID    string `json:"Id"`
	Name  string
	Image string // the image's ID
	State struct {
		Running   bool
		Pid       int
		StartedAt string
	}
	Config struct {
		Hostname string
		Image    string // the name used when the container was created
		Labels   map[string]string
	}
	HostConfig struct {
		NetworkMode string
	}
	NetworkSettings struct {
		// Networks by name.
		Networks map[string]struct{ NetworkID string }
		// Ports maps "80/tcp" to the host addresses that publish it.
		Ports map[string][]struct{ HostIP, HostPort string }
	}
}

func (a *api) inspect(ctx context.Context, nameOrID string) (*inspection, error) {
	var info inspection
	err := a.get(ctx, "/containers/"+url.PathEscape(nameOrID)+"/json", maxObjectBytes, func(dec *json.Decoder) error {
		return dec.Decode(&info)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect container %.12s: %w", nameOrID, err)
	}
	return &info, nil
}

// imageLabels returns the labels of an image.
func (a *api) imageLabels(ctx context.Context, id string) (map[string]string, error) {
	var info struct {
		Config struct{ Labels map[string]string }
	}
	err := a.get(ctx, "/images/"+url.PathEscape(id)+"/json", maxObjectBytes, func(dec *json.Decoder) error {
		return dec.Decode(&info)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect image %.19s: %w", id, err)
	}
	return info.Config.Labels, nil
}

// networkInfo holds the fields read from a network inspection.
type networkInfo struct {
	ID string `json:"Id"`
	// Ingress: it carries Swarm's routing mesh.
	Ingress bool
	Options struct {
		// Encrypted is there, whatever it says, if the network encrypts what passes between hosts.
		Encrypted json.RawMessage
	}
}

// networks returns the networks by ID.
func (a *api) networks(ctx context.Context) (byID map[string]networkInfo, err error) {
	byID = make(map[string]networkInfo)
	err = a.get(ctx, "/networks", maxListBytes, func(dec *json.Decoder) error {
		return readArray(dec, func(n networkInfo) { byID[n.ID] = n })
	})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	return byID, nil
}

func (a *api) network(ctx context.Context, nameOrID string) (*networkInfo, error) {
	var info networkInfo
	err := a.get(ctx, "/networks/"+url.PathEscape(nameOrID), maxListBytes, func(dec *json.Decoder) error {
		return dec.Decode(&info)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect network %.12s: %w", nameOrID, err)
	}
	return &info, nil
}

// message is one event of the engine.
type message struct {
	Type   string
	Action string
	Actor  struct {
		ID         string
		Attributes struct {
			// Container is set for network events only.
			Container string `json:"container"`
		}
	}
}

// eventFilters excludes events that do not matter, such as health checks, of which a busy engine
// sends many per second. Podman has its own names for some events.
var eventFilters = func() string {
	filters, err := json.Marshal(map[string][]string{
		"type": {"container", "network"},
		"event": {
			"start", "die", "died", "destroy", "remove", "rename", "update",
			"connect", "disconnect",
		},
	})
	if err != nil {
		panic(err) // marshalling strings cannot fail
	}
	return string(filters)
}()

// events opens the event stream. Engines answer before they subscribe, so the request also asks for
// events since a moment before; no event is then lost between the stream and a list requested
// afterwards. The caller closes the stream.
func (a *api) events(ctx context.Context) (io.ReadCloser, error) {
	now := time.Now()
	query := url.Values{
		"filters": {eventFilters},
		"since":   {fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())},
	}
	resp, err := a.do(ctx, "/v"+a.version.String()+"/events?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("watch events: %w", err)
	}
	return resp.Body, nil
}

// readMessages calls handle for every message of a stream until the stream breaks or handle fails, and
// returns the error.
func readMessages(stream io.Reader, handle func(message) error) error {
	for dec := json.NewDecoder(&transport.Bounded{R: stream, MaxBytes: maxObjectBytes, IsStream: true}); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return errors.New("the engine closed the stream of events")
		} else if err != nil {
			return fmt.Errorf("read the stream of events: %w", err)
		}
		if err := handle(m); err != nil {
			return fmt.Errorf("follow the events: %w", err)
		}
	}
}
