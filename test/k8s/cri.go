//go:build ignore

// The modules that it imports are those of tools/kubernetes: make bin/kubernetes.

// Command cri calls the CRI of a container runtime, for tests: cri SOCKET. Each line of its input is
// a call, and each line of its output the answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // registers the messages
)

const (
	timeout = time.Minute
	// reconnect is the pause between attempts to connect to a runtime that has died.
	reconnect = 20 * time.Millisecond
)

type call struct {
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

type answer struct {
	Response json.RawMessage `json:"response,omitempty"`
	Error    string          `json:"error,omitempty"`
	TookNS   int64           `json:"took_ns"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

func run(socket string) error {
	again := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: reconnect, Multiplier: 1, MaxDelay: reconnect}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(again))
	if err != nil {
		return err
	}
	defer conn.Close()
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		began := time.Now()
		response, err := invoke(conn, c)
		a := answer{Response: response, TookNS: time.Since(began).Nanoseconds()}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

func invoke(conn *grpc.ClientConn, c call) (json.RawMessage, error) {
	request, err := message(c.Method + "Request")
	if err != nil {
		return nil, err
	}
	response, err := message(c.Method + "Response")
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(c.Request, request); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := conn.Invoke(ctx, "/runtime.v1.RuntimeService/"+c.Method, request, response); err != nil {
		return nil, err
	}
	return protojson.Marshal(response)
}

func message(name string) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("runtime.v1." + name))
	if err != nil {
		return nil, fmt.Errorf("there is no %s: %w", name, err)
	}
	return kind.New().Interface(), nil
}
