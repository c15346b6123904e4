// Package httpapi is what the APIs of Weir's daemons have in common. For clients: requests
// and answers in JSON, over a Unix socket or TLS; what is not a success has a v1.Error as
// its body; events are a stream of JSON objects. For servers: what bounds a connection
// (server.go).
package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	// ConnectTimeout bounds how long it takes to reach a daemon: the connection, and TLS.
	ConnectTimeout = 10 * time.Second
	// maxAnswerBytes bounds an answer; that of an agent with a thousand containers and
	// four uplinks has 3 MB.
	maxAnswerBytes = 64 << 20
)

// Peer is a daemon that is asked. It may be used by many goroutines at once.
type Peer struct {
	// Name is what users call it, as in "the agent's answer": "the agent".
	Name string
	// Base is what paths are appended to.
	Base string
	// Token is a bearer token; empty for none.
	Token string
	HTTP  *http.Client
	// Unreachable says why there is no answer, and what to do.
	Unreachable func(error) error
	// Refused is what the daemon has against a request, with HTTP's status.
	Refused func(status int, message string) error
}

// Unix returns an HTTP client that speaks to a Unix socket only.
func Unix(socket string) *http.Client {
	dialer := net.Dialer{Timeout: ConnectTimeout}
	return Client(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	})
}

// Client goes nowhere but where it was told: a daemon sends nobody elsewhere, and a
// token is for that one alone.
func Client(transport *http.Transport) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Call makes a request and decodes the answer into result, unless that is nil. A body
// of type []byte or io.Reader is sent as it is.
func (p *Peer) Call(ctx context.Context, method, path string, body, result any) error {
	response, err := p.Send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return p.Decode(response, result)
}

// Decode reads an answer into result, unless that is nil.
func (p *Peer) Decode(response *http.Response, result any) error {
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswerBytes)).Decode(result); err != nil {
		return fmt.Errorf("read %s's answer: %w", p.Name, err)
	}
	return nil
}

// Send makes a request and returns the answer, whose body the caller closes, or what
// the daemon had against it.
func (p *Peer) Send(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	reader, err := encode(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.Base+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if p.Token != "" {
		request.Header.Set("Authorization", "Bearer "+p.Token)
	}
	response, err := p.HTTP.Do(request)
	if err != nil {
		return nil, p.Unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, p.refusal(response)
	}
	return response, nil
}

func encode(body any) (io.Reader, error) {
	switch body := body.(type) {
	case nil:
		return nil, nil
	case io.Reader:
		return body, nil
	case []byte:
		return bytes.NewReader(body), nil
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		return bytes.NewReader(data), nil
	}
}

// refusal is what an answer that is not a success says.
func (p *Peer) refusal(response *http.Response) error {
	var problem v1.Error
	if err := p.Decode(response, &problem); err != nil || problem.Message == "" {
		problem.Message = p.Name + " answered " + response.Status
		if response.StatusCode == http.StatusNotFound { // what listens there says so of every path that it has
			problem.Message += ": another program listens there, or another version"
		}
	}
	return p.Refused(response.StatusCode, problem.Message)
}

// Stream calls each with the JSON objects of an answer, until that or ctx ends, or each
// returns an error.
func Stream[T any](ctx context.Context, p *Peer, path string, each func(T) error) error {
	response, err := p.Send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		var object T
		err := decoder.Decode(&object)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read %s's answer: %w", p.Name, err)
		}
		if err := each(object); err != nil {
			return err
		}
	}
}
