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
)

// The range of API versions this package speaks. All it reads has had the
// same shape since 1.24; 1.40 (Docker 19.03, Podman) is the oldest that is
// tested. The upper end must not lag far behind, because engines refuse old
// versions (Docker 29: below 1.44).
var (
	oldestAPI = apiVersion{1, 40}
	newestAPI = apiVersion{1, 56}
)

const (
	// requestTimeout bounds every request but the stream of events. An engine
	// that starts a hundred containers at once may take seconds to answer.
	requestTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second
)

// apiVersion is a version of the Docker API, e.g. 1.41.
type apiVersion struct{ major, minor int }

func (v apiVersion) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v apiVersion) less(w apiVersion) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// parseVersion reads "1.41".
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

// negotiate chooses the version to speak with an engine whose newest is
// offered.
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

// statusError is an answer of the engine that is not a success.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the engine answers %d: %s", e.status, e.message)
}

// answerError is an answer that cannot be read although the connection held.
type answerError struct{ err error }

func (e *answerError) Error() string { return "read the engine's answer: " + e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status == http.StatusNotFound
}

// isAnswer says that the engine answered, so that the connection is sound and
// the error concerns what was asked for only.
func isAnswer(err error) bool {
	var status *statusError
	var answer *answerError
	return errors.As(err, &status) || errors.As(err, &answer)
}

// api is a client that reads of the Docker API only what this package needs.
// The full client decodes everything, which for a thousand containers is
// megabytes of garbage.
type api struct {
	http    *http.Client
	version apiVersion
}

// connect finds out which version the engine speaks.
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

// newTransport speaks HTTP over a unix socket. Connections that a burst of
// inspections needed are closed soon after.
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

// do sends a request; the caller closes the answer's body.
func (a *api) do(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "weir")
	resp, err := a.http.Do(req)
	if err != nil {
		// The URL is made up; only its path means something to a reader.
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

// drain reads the rest of a body, without which the connection would not be
// used again.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
}

// get reads the JSON value at a path of the negotiated version.
func (a *api) get(ctx context.Context, path string, read func(*json.Decoder) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := a.do(ctx, "/v"+a.version.String()+path)
	if err != nil {
		return err
	}
	defer drain(resp)
	body := &errReader{r: resp.Body}
	if err := read(json.NewDecoder(body)); err != nil {
		if body.err != nil && !errors.Is(body.err, io.EOF) {
			return body.err // the connection's fault, not the answer's
		}
		return &answerError{err}
	}
	return nil
}

// errReader remembers the error that ended the reading.
type errReader struct {
	r   io.Reader
	err error
}

func (e *errReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil {
		e.err = err
	}
	return n, err
}

// readArray reads a JSON array one element at a time, so that the list of a
// thousand containers is never in memory as a whole.
func readArray[T any](dec *json.Decoder, each func(T)) error {
	if token, err := dec.Token(); err != nil {
		return err
	} else if token == nil {
		return nil // null: Go's way to write an empty list
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

// running lists the IDs of the running containers, paused ones included.
func (a *api) running(ctx context.Context) ([]string, error) {
	var ids []string
	err := a.get(ctx, "/containers/json", func(dec *json.Decoder) error {
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

// inspection is what is read of a container.
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
		Image    string // as it was named when the container was made
		Labels   map[string]string
	}
	HostConfig struct {
		NetworkMode string
	}
	NetworkSettings struct {
		// Networks by name.
		Networks map[string]struct{ NetworkID string }
		// Ports by "80/tcp": where the host publishes them.
		Ports map[string][]struct{ HostIP, HostPort string }
	}
}

func (a *api) inspect(ctx context.Context, nameOrID string) (*inspection, error) {
	var info inspection
	err := a.get(ctx, "/containers/"+url.PathEscape(nameOrID)+"/json", func(dec *json.Decoder) error {
		return dec.Decode(&info)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect container %.12s: %w", nameOrID, err)
	}
	return &info, nil
}

// imageLabels are the labels of an image.
func (a *api) imageLabels(ctx context.Context, id string) (map[string]string, error) {
	var info struct {
		Config struct{ Labels map[string]string }
	}
	err := a.get(ctx, "/images/"+url.PathEscape(id)+"/json", func(dec *json.Decoder) error {
		return dec.Decode(&info)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect image %.19s: %w", id, err)
	}
	return info.Config.Labels, nil
}

// networkInfo is what is read of a network.
type networkInfo struct {
	ID     string `json:"Id"`
	Driver string
}

func (a *api) networks(ctx context.Context) (drivers map[string]string, err error) {
	drivers = make(map[string]string)
	err = a.get(ctx, "/networks", func(dec *json.Decoder) error {
		return readArray(dec, func(n networkInfo) { drivers[n.ID] = n.Driver })
	})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	return drivers, nil
}

func (a *api) network(ctx context.Context, nameOrID string) (*networkInfo, error) {
	var info networkInfo
	err := a.get(ctx, "/networks/"+url.PathEscape(nameOrID), func(dec *json.Decoder) error {
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
			// Container is set for events of networks only.
			Container string `json:"container"`
		}
	}
}

// eventFilters leave health checks and the like, of which a busy engine has
// many each second, at the engine. Podman has its own names for some events.
var eventFilters = func() string {
	filters, err := json.Marshal(map[string][]string{
		"type": {"container", "network"},
		"event": {
			"start", "die", "died", "destroy", "remove", "rename", "update",
			"connect", "disconnect",
		},
	})
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return string(filters)
}()

// events opens the stream of events. Engines answer before they subscribe, so
// events since a moment before the request are asked for as well; none is
// then lost between the stream and a list that is asked for next. The caller
// closes the stream.
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

// readMessages calls handle for every message of a stream until it breaks,
// and returns why.
func readMessages(stream io.Reader, handle func(message)) error {
	for dec := json.NewDecoder(stream); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return errors.New("the engine closed the stream of events")
		} else if err != nil {
			return fmt.Errorf("read the stream of events: %w", err)
		}
		handle(m)
	}
}
