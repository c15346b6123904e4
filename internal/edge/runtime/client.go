package runtime

import (
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/moby/moby/client"

	"github.com/weir-project/weir/api/v1/transport"
)

// maxAnswerBytes bounds an engine's answer, and an event: a faulty engine must not take weir-edge's
// memory. The list of a swarm's tasks has about 4 KB for each, of the last five that ended as well.
const maxAnswerBytes = 32 << 20

// NewClient returns a client of the engine at a socket; it makes no request.
func NewClient(socket string) (*client.Client, error) { return newClient(socket, maxAnswerBytes) }

func newClient(socket string, maxAnswerBytes int) (*client.Client, error) {
	engine := transport.Unix(socket)
	engine.Transport, engine.CheckRedirect = boundedAnswers{engine.Transport, maxAnswerBytes}, client.CheckRedirect
	api, err := client.New(client.WithHost("unix://"+socket), client.WithHTTPClient(engine))
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", socket, err)
	}
	return api, nil
}

// boundedAnswers is an engine whose answers are bounded: those in JSON, and each object of a stream.
// Readers of logs and of an image's archive bound these themselves.
type boundedAnswers struct {
	http.RoundTripper
	maxBytes int
}

// Streams by their path, without the version of the API.
var (
	objectStreams = []string{"/events", "/images/create", "/images/load"}
	rawStreams    = []string{"/containers/*/logs", "/images/get"}
)

func (b boundedAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err != nil || isAt(rawStreams, request.URL.Path) {
		return response, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{&transport.Bounded{R: response.Body, MaxBytes: b.maxBytes, IsStream: isAt(objectStreams, request.URL.Path)}, response.Body}
	return response, nil
}

func isAt(patterns []string, at string) bool {
	for _, pattern := range patterns {
		if matches, _ := path.Match("/v*"+pattern, at); matches {
			return true
		}
	}
	return false
}
