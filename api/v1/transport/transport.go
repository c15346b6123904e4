// Package transport has the common parts of the APIs of Weir's daemons. Clients send JSON
// requests over a Unix socket or TLS, get errors as v1.Error, and read events as a stream
// of JSON objects. Servers get limits for connections (internal/front/httpapi).
package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	// ConnectTimeout limits the connection set-up, TLS included.
	ConnectTimeout = 10 * time.Second
	// maxAnswerBytes is the default of Peer.MaxAnswerBytes. An agent with a thousand containers
	// and four uplinks sends 3 MB.
	maxAnswerBytes = 64 << 20
	// maxHeaderBytes limits the header of a response, maxLineBytes an object of a stream, and
	// maxMessageBytes the text of an error.
	maxHeaderBytes, maxLineBytes, maxMessageBytes = 64 << 10, 1 << 20, 4 << 10
)

// Peer is a daemon to send requests to. It is safe for concurrent use.
type Peer struct {
	// Name is the daemon's name in messages, such as "the agent".
	Name string
	// Base is the URL to which paths are appended.
	Base string
	// Token is a bearer token; empty for none.
	Token string
	HTTP  *http.Client
	// MaxAnswerBytes limits a response as Bounded does; 0 means 64 MiB.
	MaxAnswerBytes int
	// Unreachable turns a connection error into one that says what to do.
	Unreachable func(error) error
	// Refused turns an error response with its HTTP status into an error.
	Refused func(status int, message string) error
}

// Unix returns an HTTP client that connects to a Unix socket only.
func Unix(socket string) *http.Client {
	dialer := net.Dialer{Timeout: ConnectTimeout}
	return Client(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: 30 * time.Second,
	})
}

// Local returns the peer of the daemon that listens at a Unix socket. Errors of a connection are
// silent, if nothing listens there, with start, the command that starts it, and others with what to do.
func Local(name, socket, start string, silent error) *Peer {
	return &Peer{
		Name: name, Base: "http://weir", HTTP: Unix(socket),
		Unreachable: func(err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
				return fmt.Errorf("%w on %s: start one with `%s`, or say where it listens with --socket", silent, socket, start)
			case errors.Is(err, fs.ErrPermission):
				return fmt.Errorf("not allowed to use %s: run as root (sudo)", socket)
			}
			return fmt.Errorf("ask %s: %w", name, err)
		},
		Refused: func(_ int, message string) error { return errors.New(message) },
	}
}

// Client returns an HTTP client that follows no redirects, because daemons send none and a
// token must not reach another server. It does not ask for compressed responses, which would have
// any size.
func Client(transport *http.Transport) *http.Client {
	transport.DisableCompression, transport.MaxResponseHeaderBytes = true, maxHeaderBytes
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Call sends a request and decodes the response into result, unless that is nil. A body of
// type []byte or io.Reader is sent unchanged.
func (p *Peer) Call(ctx context.Context, method, path string, body, result any) error {
	response, err := p.Send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return p.Decode(response, result)
}

// Decode decodes a response into result, unless that is nil.
func (p *Peer) Decode(response *http.Response, result any) error {
	if result == nil {
		return nil
	}
	data, err := io.ReadAll(&Bounded{R: response.Body, MaxBytes: cmp.Or(p.MaxAnswerBytes, maxAnswerBytes)})
	if err == nil {
		err = json.Unmarshal(data, result)
	}
	if err != nil {
		return fmt.Errorf("read %s's answer: %w", p.Name, err)
	}
	return nil
}

// Send sends a request and returns the response, whose body the caller closes. A response
// that is not a success becomes an error.
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

// refusal returns the error of a response that is not a success.
func (p *Peer) refusal(response *http.Response) error {
	var problem v1.Error
	if err := p.Decode(response, &problem); err != nil || problem.Message == "" {
		problem.Message = p.Name + " answered " + response.Status
		if response.StatusCode == http.StatusNotFound { // as for every path of a foreign server
			problem.Message += ": another program listens there, or another version"
		}
	}
	if len(problem.Message) > maxMessageBytes {
		problem.Message = strings.ToValidUTF8(problem.Message[:maxMessageBytes], "") + "…"
	}
	return p.Refused(response.StatusCode, problem.Message)
}

// Stream calls each with the JSON objects of a response, one a line, until the response or ctx
// ends or each returns an error.
func Stream[T any](ctx context.Context, p *Peer, path string, each func(T) error) error {
	response, err := p.Send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		var object T
		err := json.Unmarshal(lines.Bytes(), &object)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read %s's answer: %w", p.Name, err)
		}
		if err := each(object); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read %s's answer: %w", p.Name, err)
	}
	return ctx.Err()
}
