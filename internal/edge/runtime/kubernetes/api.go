package kubernetes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/lease"
)

// maxAnswerBytes bounds an answer of the API server; a node has about 10 KB, a pod 5 KB.
const maxAnswerBytes = 32 << 20

// api asks an API server. The few requests of weir-edge take no client library, whose types would double
// the program.
type api struct {
	http   *http.Client
	server string
	// token is of the user; tokenFile, if it is set, has it, and changes.
	token, tokenFile string
	backOff          backOff
	watched          watched
	// lease is what this weir-edge has to hold for each change; nil for none.
	lease *lease.Lease
}

// The wait after a failure is doubled with each further one, from firstWait to longestWait. The API server
// may ask for up to longestAsked.
const (
	firstWait    = time.Second
	longestWait  = 10 * time.Second
	longestAsked = time.Minute
)

// backOff delays requests to an API server that is away or has too many requests. It is safe for concurrent use.
type backOff struct {
	mu    sync.Mutex
	wait  time.Duration // 0 after a success
	until time.Time
	err   error // of the last failure
}

// refuse returns the last failure while requests wait, and nil else.
func (b *backOff) refuse(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.until) {
		return b.err
	}
	return nil
}

// note counts the outcome of a request; asked is for how long the API server asks to wait. Requests that are under way
// when the API server fails, such as all watches, fail together and count as one failure.
func (b *backOff) note(now time.Time, err error, asked time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err == nil {
		b.wait, b.until = 0, time.Time{}
		return
	}
	if !now.Before(b.until) {
		b.wait = min(max(2*b.wait, firstWait), longestWait)
		b.until = now.Add(b.wait)
	}
	if until := now.Add(asked); until.After(b.until) {
		b.until = until
	}
}

// isBusy reports whether a status concerns the API server as a whole, or all that the user asks.
func isBusy(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// contentOf returns data in base64 or else a file; nil for none.
func contentOf(data, file, folder string) ([]byte, error) {
	if data != "" {
		return base64.StdEncoding.DecodeString(data)
	} else if file != "" {
		return os.ReadFile(beside(folder, file))
	}
	return nil, nil
}

// refusal is an answer of the API server that is no success. It may say for how long to wait.
type refusal struct {
	code    int
	message string
	wait    time.Duration
}

func (r *refusal) Error() string { return "Kubernetes says: " + r.message }

// isCode reports whether the API server has answered with a status.
func isCode(err error, code int) bool {
	var said *refusal
	return errors.As(err, &said) && said.code == code
}

// call makes a request and decodes its answer; body and into may be nil. A PATCH is a merge patch. After a
// failure of the API server it returns the same error for a while without a request.
func (a *api) call(ctx context.Context, method, path string, body, into any) error {
	if method != http.MethodGet {
		if err := a.checkLease(); err != nil {
			return err
		}
		defer a.watched.noteWritten()
	}
	response, err := a.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	return a.decode(response, into)
}

// callForLease is call for requests of the lease, which is lost unless it is renewed in time: the back-off of other requests
// does not delay it, and its outcome does not change that.
func (a *api) callForLease(ctx context.Context, method, path string, body, into any) error {
	request, err := a.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	response, err := a.do(request)
	if err != nil {
		return err
	}
	return a.decode(response, into)
}

// checkLease returns why this weir-edge may change nothing; nil if it may.
func (a *api) checkLease() error {
	if a.lease == nil {
		return nil
	}
	err := a.lease.Check()
	if held, is := errors.AsType[*lease.HeldError](err); is {
		err = fmt.Errorf("another weir-edge manages the namespace, and this one waits until it ends: %w", held)
	}
	return err
}

// decode decodes an answer, unless into is nil, and closes it.
func (a *api) decode(response *http.Response, into any) error {
	defer response.Body.Close()
	if into == nil {
		return nil
	}
	if err := decoderOf(response).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the API server at %s: %w", a.server, err)
	}
	return nil
}

func decoderOf(response *http.Response) *json.Decoder {
	return json.NewDecoder(&transport.Bounded{R: response.Body, MaxBytes: maxAnswerBytes})
}

// send is call without the answer's content.
func (a *api) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	if err := a.backOff.refuse(time.Now()); err != nil {
		return nil, err
	}
	request, err := a.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	response, err := a.do(request)
	said, refused := errors.AsType[*refusal](err)
	switch {
	case refused && isBusy(said.code):
		a.backOff.note(time.Now(), said, said.wait)
	case refused || err == nil:
		a.backOff.note(time.Now(), nil, 0)
	case !errors.Is(ctx.Err(), context.Canceled): // else the caller gave up: that says nothing of the API server
		a.backOff.note(time.Now(), err, 0)
	}
	return response, err
}

// do makes a request. Errors: refusal.
func (a *api) do(request *http.Request) (*http.Response, error) {
	response, err := a.http.Do(request)
	if err != nil {
		return nil, a.unreachable(err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response, nil
	}
	defer response.Body.Close()
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 for a date, which Kubernetes never sends
	said := &refusal{response.StatusCode, response.Status, time.Duration(min(max(seconds, 0), int(longestAsked/time.Second))) * time.Second}
	var status struct{ Message string }
	if decoderOf(response).Decode(&status) == nil && status.Message != "" {
		said.message = status.Message
	}
	return nil, said
}

func (a *api) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	if body == nil {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	request.Header = http.Header{"Content-Type": {kind}, "Accept": {"application/json"}}
	token := a.token
	if a.tokenFile != "" {
		said, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token for Kubernetes: %w", err)
		}
		token = strings.TrimSpace(string(said))
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// unreachable returns the error of an API server that does not answer: the same words each time, so that
// they are said once. Those of the network have the port that was tried from.
func (a *api) unreachable(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var network *net.OpError
	if errors.As(err, &network) {
		err = network.Err
	}
	return fmt.Errorf("ask the API server at %s: %w", a.server, err)
}
