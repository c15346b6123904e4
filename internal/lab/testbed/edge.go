package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/api/v1/transport"
)

// Edge is weir-edge on the first node of a cluster, with its files in a folder.
type Edge struct {
	engines      []*Engine
	program, dir string
	peer         *transport.Peer
	process      *Process
}

// NewEdge returns the weir-edge of a program, which is not started yet, beside the first of engines.
func NewEdge(engines []*Engine, program, dir string) *Edge {
	e := &Edge{engines: engines, program: program, dir: dir}
	e.peer = &transport.Peer{
		Name: "weir-edge", Base: "http://weir-edge", HTTP: transport.Unix(e.Socket()),
		Unreachable: func(err error) error { return fmt.Errorf("ask weir-edge: %w", err) },
		Refused:     func(_ int, message string) error { return errors.New(message) },
	}
	return e
}

// Socket returns the path of the socket at which weir-edge answers.
func (e *Edge) Socket() string { return filepath.Join(e.dir, "edge.sock") }

// Start starts `weir-edge run` with further arguments, and waits for nothing.
func (e *Edge) Start(args ...string) (err error) {
	engine := e.engines[0]
	e.process, err = StartProcess("weir-edge", engine.Command(e.program, append([]string{
		"run", "--socket", e.Socket(), "--docker", engine.Socket(), "--state-dir", filepath.Join(e.dir, "state"),
	}, args...)...))
	return err
}

// Process returns the process of `weir-edge run`; nil before Start.
func (e *Edge) Process() *Process { return e.process }

// Run runs another command of weir-edge, on the same node, and returns its output.
func (e *Edge) Run(args ...string) ([]byte, error) {
	cmd := e.engines[0].Command(e.program, append(args, "--socket", e.Socket())...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("weir-edge %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out, nil
}

// LoadProxyImage is `weir-edge proxy-image | docker load` on all nodes.
func (e *Edge) LoadProxyImage(ctx context.Context) error {
	archive, err := e.Run("proxy-image")
	if err != nil {
		return err
	}
	for _, engine := range e.engines {
		if err := engine.Load(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	return nil
}

// WriteSpecification writes the specification of a service to a file, and returns its path.
func (e *Edge) WriteSpecification(name string, document map[string]any) (path string, err error) {
	path = filepath.Join(e.dir, name+".json")
	text, err := json.Marshal(document)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the specification: %w", err)
	}
	return path, nil
}

// Snapshot returns the state of nodes, services and instances.
func (e *Edge) Snapshot(ctx context.Context) (s edge.Snapshot, err error) {
	return s, e.peer.Call(ctx, http.MethodGet, "/v1/snapshot", nil, &s)
}

// Await polls until check has no error for a snapshot, and returns its error after patience.
func (e *Edge) Await(ctx context.Context, patience time.Duration, check func(edge.Snapshot) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return e.process.Await(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		seen, err := e.Snapshot(ctx)
		if err == nil {
			err = check(seen)
		}
		return err
	})
}
