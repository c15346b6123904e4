// Command fleet runs weir-dra for many nodes in one process, for tests: fleet run KUBECONFIG FOLDER RATE NODE...
// It simulates their agents: each has one uplink of RATE bits per second and no containers.
//
// It also simulates kubelet: fleet prepare FOLDER reads a list of claims from its input, has the driver of a node prepare one
// after the other, and prints the driver's errors by the claims' UIDs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/cmd/weir-dra/internal/driver"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// prepareTimeout is kubelet's for a call of a driver.
const prepareTimeout = 45 * time.Second

func main() {
	var err error
	switch {
	case len(os.Args) > 4 && os.Args[1] == "run":
		err = run(os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
	case len(os.Args) == 3 && os.Args[1] == "prepare":
		err = prepare(os.Args[2])
	default:
		err = fmt.Errorf("usage: fleet run KUBECONFIG FOLDER RATE NODE... | fleet prepare FOLDER")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run runs the drivers. The folder of a node's kubelet has the node's name.
func run(kubeconfig, folder, rate string, nodes []string) error {
	socket := filepath.Join(folder, "agent")
	if err := simulateAgents(socket, rate); err != nil {
		return err
	}
	var group errgroup.Group
	for _, node := range nodes {
		kubelet := filepath.Join(folder, node)
		if err := os.MkdirAll(filepath.Join(kubelet, "plugins_registry"), 0o750); err != nil {
			return err
		}
		group.Go(func() error {
			code := driver.Run([]string{"weir-dra", "--kubeconfig", kubeconfig, "--node", node, "--socket", socket, "--kubelet", kubelet}, os.Stdout, os.Stderr)
			return fmt.Errorf("weir-dra of %s has ended with exit code %d", node, code)
		})
	}
	return group.Wait()
}

// simulateAgents answers as an agent that shares one uplink.
func simulateAgents(socket, rate string) error {
	bps, err := strconv.ParseUint(rate, 10, 64)
	if err != nil {
		return err
	}
	var snapshot v1.Snapshot
	snapshot.Status.Uplinks = []v1.Uplink{{Name: "uplink", RateBPS: bps, Scheduler: "htb"}}
	text, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	_ = os.Remove(socket) // of a process before this one
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // a driver that does not wait asks again
	})}
	go func() { _ = server.Serve(listener) }() // until the process ends
	return nil
}

// prepare calls the driver in a folder of kubelet.
func prepare(kubelet string) error {
	var list []*dra.Claim
	if err := json.NewDecoder(os.Stdin).Decode(&list); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(claims.Folder(kubelet), "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	said := map[string]string{}
	for _, claim := range list {
		ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
		answer, err := dra.NewDRAPluginClient(conn).NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: []*dra.Claim{claim}})
		cancel()
		if err != nil {
			return err
		}
		said[claim.GetUid()] = answer.GetClaims()[claim.GetUid()].GetError()
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}
