package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Pods is a connection over which weir-k8s reports pods to the agent. While it stands, the agent
// takes what it says for all that runs. It is used by one goroutine.
type Pods struct {
	body    *io.PipeWriter
	answers chan v1.PodState
	cancel  context.CancelFunc
	// ended is closed when the connection has ended, with err.
	ended chan struct{}
	err   error
}

var errPodsEnded = errors.New("report pods: the agent has stopped, or does not answer in time")

// ReportPods connects and reports all that runs of a runtime, v1.RuntimeKubernetes or v1.RuntimeContainerd. Errors:
// ErrNoAgent, *Error with status 409 if another weir-k8s is connected, that the agent has not answered within timeout.
func (c *Client) ReportPods(ctx context.Context, runtime string, all []v1.Pod, timeout time.Duration) (*Pods, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, writer := io.Pipe()
	// net/http returns from a failed request only when it can read no more of the body.
	context.AfterFunc(ctx, func() { writer.CloseWithError(errPodsEnded) })
	p := &Pods{body: writer, answers: make(chan v1.PodState), cancel: cancel, ended: make(chan struct{}), err: errPodsEnded}
	path := "/v1/pods"
	if runtime == v1.RuntimeContainerd {
		path = "/v1/containerd"
	}
	go p.follow(ctx, c, path, body)
	if _, err := p.Report(v1.PodsChange{All: all}, timeout); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// follow sends the request and passes the answers on until the connection ends.
func (p *Pods) follow(ctx context.Context, c *Client, path string, body io.Reader) {
	defer close(p.ended)
	defer p.cancel()
	response, err := c.send(ctx, http.MethodPost, path, body, nil)
	if err != nil {
		if ctx.Err() == nil {
			p.err = err
		}
		return
	}
	defer response.Body.Close()
	defer p.cancel() // before that, which waits for the body of the request
	for decoder := json.NewDecoder(response.Body); ; {
		var answer v1.PodState
		if decoder.Decode(&answer) != nil {
			return
		}
		select {
		case p.answers <- answer:
		case <-ctx.Done():
			return
		}
	}
}

// Report reports a change and returns the agent's answer, for which it waits for timeout. After an
// error the connection has ended.
func (p *Pods) Report(change v1.PodsChange, timeout time.Duration) (v1.PodState, error) {
	late := time.AfterFunc(timeout, p.cancel)
	defer late.Stop()
	if json.NewEncoder(p.body).Encode(change) == nil {
		select {
		case answer := <-p.answers:
			return answer, nil
		case <-p.ended:
		}
	}
	<-p.ended
	return v1.PodState{}, p.err
}

// Ended is closed when the connection has ended.
func (p *Pods) Ended() <-chan struct{} { return p.ended }

// Close ends the connection. The agent keeps what it knows.
func (p *Pods) Close() {
	p.cancel()
	<-p.ended
}
