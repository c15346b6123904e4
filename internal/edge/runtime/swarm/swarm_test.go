package swarm

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/swarm"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/test/must"
)

func TestCheckArchitecture(t *testing.T) {
	nodes := func(architectures ...string) (list []runtime.Node) {
		for _, a := range architectures {
			list = append(list, runtime.Node{Architecture: a})
		}
		return list
	}
	for name, test := range map[string]struct {
		image string
		nodes []runtime.Node
		says  string
		note  bool
	}{
		"the same":            {"arm64", nodes("arm64"), "", false},
		"one of them":         {"arm64", nodes("amd64", "arm64"), "", false},
		"none":                {"arm64", nodes("amd64", "arm", "amd64"), "it is for arm64 and nodes are amd64, arm:", false},
		"32 bits on 64":       {"arm", nodes("amd64", "arm64"), "", true},
		"32 bits on both":     {"arm", nodes("arm64", "arm"), "", false},
		"an image of any":     {"", nodes("amd64"), "", false},
		"a node without word": {"arm64", nodes("amd64", ""), "", false},
		"no nodes":            {"arm64", nil, "", false},
	} {
		note, err := checkArchitecture("shop:1", test.image, test.nodes)
		if (note != "") != test.note {
			t.Errorf("%s: the note is %q", name, note)
		}
		if test.says == "" && err != nil || test.says != "" && (!errors.Is(err, runtime.ErrArchitecture) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// TestNodesOf: the address of a node is one that other nodes reach, also of a leader that joined
// without one (answers to GET /nodes, shortened).
func TestNodesOf(t *testing.T) {
	const answer = `[{"ID":"a","Description":{"Hostname":"a"},"Status":{"State":"ready","Addr":"%s"},"ManagerStatus":{"Leader":true,"Addr":"%s"}},
		{"ID":"b","Description":{"Hostname":"b"},"Status":{"State":"ready","Addr":"198.18.0.2"}}]`
	for _, test := range []struct {
		status, manager, want string
		alone                 bool
	}{
		{"198.18.0.1", "198.18.0.9:2377", "198.18.0.1", false},
		{"0.0.0.0", "198.18.0.1:2377", "198.18.0.1", false},
		{"127.0.0.1", "198.18.0.1:2377", "198.18.0.1", false},
		{"::", "[2001:db8::1]:2377", "2001:db8::1", false},
		{"::ffff:0.0.0.0", "0.0.0.0:2377", "", false},
		{"", "", "", false},
		{"127.0.0.1", "127.0.0.1:2377", "", false},
		{"127.0.0.1", "127.0.0.1:2377", "127.0.0.1", true},
		{"0.0.0.0", "0.0.0.0:2377", "", true},
	} {
		var items []swarm.Node
		must.Succeed(t, json.Unmarshal(fmt.Appendf(nil, answer, test.status, test.manager), &items))
		if test.alone {
			items = items[:1]
		}
		found := nodesOf(items)[0]
		want, _ := netip.ParseAddr(test.want)
		if found.Address != want || found.Ready != want.IsValid() || (found.Reason == "") != found.Ready {
			t.Errorf("%+v: %+v", test, found)
		}
	}
}

// TestKeys: weir-edge and proxies trust each other, and the key of proxies commands none.
func TestKeys(t *testing.T) {
	made, err := makeKeys()
	must.Succeed(t, err)
	k, err := readKey(swarm.Config{ID: "id", Spec: swarm.ConfigSpec{Data: made}})
	must.Succeed(t, err)
	proxies, err := tls.X509KeyPair(k.proxies, k.proxies)
	must.Succeed(t, err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(k.clients)
	if bytes.Contains(k.clients, []byte("PRIVATE")) {
		t.Error("proxies have weir-edge's key")
	}
	server := &tls.Config{Certificates: []tls.Certificate{proxies}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	captured := k.config.Clone()
	captured.Certificates = server.Certificates
	stranger := k.config.Clone()
	stranger.RootCAs = clients
	for name, test := range map[string]struct {
		client *tls.Config
		want   bool
	}{"weir-edge": {k.config, true}, "a captured proxy": {captured, false}, "another server": {stranger, false}} {
		here, there := net.Pipe()
		errs := make(chan error, 1)
		go func() {
			errs <- tls.Server(there, server).Handshake()
			there.Close()
		}()
		client := tls.Client(here, test.client)
		err := client.Handshake()
		if err == nil {
			_, err = client.Read(make([]byte, 1)) // the end, or an alert
		}
		if served := <-errs; (served == nil && errors.Is(err, io.EOF)) != test.want {
			t.Errorf("%s: %v, %v", name, err, served)
		}
		here.Close()
	}
	if _, err := readKey(swarm.Config{Spec: swarm.ConfigSpec{Data: k.proxies}}); err == nil {
		t.Error("a key of another form is read")
	}
}

// TestCheckOwner: an instance gets no config or secret that is weir-edge's or another service's.
func TestCheckOwner(t *testing.T) {
	ours := map[string]string{runtime.LabelService: "home-web", runtime.LabelProject: "home"}
	for name, c := range map[string]struct {
		labels   map[string]string
		external bool
		want     bool
	}{
		"the user's":                {map[string]string{"a": "b"}, true, true},
		"a file of the service":     {ours, false, true},
		"a file of another service": {ours, true, false},
		"the key":                   {map[string]string{runtime.LabelRole: roleKey}, true, false},
		"a part of it":              {map[string]string{runtime.LabelRole: roleKeyPart}, true, false},
		"the ledger":                {map[string]string{runtime.LabelRole: runtime.RoleLedger}, true, false},
		"a file of a proxy":         {map[string]string{runtime.LabelRole: roleFile, runtime.LabelService: "shop"}, true, false},
		"a role, by another name":   {map[string]string{runtime.LabelRole: roleKey}, false, false},
	} {
		if err := checkOwner("config", "x", c.external, c.labels); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOtherKey: a proxy that was deployed with another key says what to do.
func TestOtherKey(t *testing.T) {
	var keys [2]key
	for i := range keys {
		made, err := makeKeys()
		must.Succeed(t, err)
		keys[i], err = readKey(swarm.Config{Spec: swarm.ConfigSpec{Data: made}})
		must.Succeed(t, err)
	}
	pair, err := tls.X509KeyPair(keys[0].proxies, keys[0].proxies)
	must.Succeed(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must.Succeed(t, err)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	r := Runtime{key: keys[1], controls: map[netip.AddrPort]proxy.Control{}}
	control := r.control(netip.MustParseAddrPort(listener.Addr().String()))
	if _, err := control.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "weir-edge rm") {
		t.Error(err)
	}
}

// Users do not come to where proxies are commanded.
func TestCheckPorts(t *testing.T) {
	for port, wrong := range map[uint16]bool{80: false, firstControlPort - 1: false, firstControlPort: true, firstControlPort + controlPorts - 1: true, firstControlPort + controlPorts: false} {
		if err := checkPorts(runtime.Service{Name: "s", Ports: []runtime.Port{{Host: port, Container: 80}}}); (err != nil) != wrong {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// TestFreePort: services have ports of their own, also one that is deployed right after
// another was removed, until there is none left.
func TestFreePort(t *testing.T) {
	first, err := freePort("shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := freePort("solid", nil); err != nil || other == first {
		t.Errorf("solid has %d, as shop had: %v", other, err)
	}
	var services []swarm.Service
	taken := map[uint16]bool{}
	for range controlPorts {
		port, err := freePort("shop", services)
		if err != nil || taken[port] || port < firstControlPort || port >= firstControlPort+controlPorts {
			t.Fatalf("%d of %v: %v", port, taken, err)
		}
		taken[port] = true
		services = append(services, swarm.Service{Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Labels: map[string]string{labelPort: portText(port)}}}})
	}
	if port, err := freePort("shop", services); err == nil {
		t.Errorf("all are taken, and it has %d", port)
	}
}

// TestInstance: an instance is reached at the port of its node's address family, which
// engines choose one by one, and says what it waits for before it runs.
func TestInstance(t *testing.T) {
	task := swarm.Task{Status: swarm.TaskStatus{
		State: swarm.TaskStateRunning, ContainerStatus: &swarm.ContainerStatus{ContainerID: "c"},
		PortStatus: swarm.PortStatus{Ports: []swarm.PortConfig{ // IPv4's first
			{TargetPort: 80, PublishedPort: 49154}, {TargetPort: 80, PublishedPort: 49153},
			{TargetPort: 443, PublishedPort: 49155},
		}},
	}}
	service := swarm.Service{Spec: swarm.ServiceSpec{Annotations: swarm.Annotations{Labels: map[string]string{runtime.LabelNode: "n"}}}}
	for node, want := range map[string]string{"198.18.0.2": "198.18.0.2:49154", "2001:db8::2": "[2001:db8::2]:49153"} {
		address := netip.MustParseAddr(node)
		i := instance(service, []swarm.Task{task}, []runtime.Node{{ID: "n", Name: "one", Address: address}})
		if i.Phase != runtime.Running || i.Addresses[80].String() != want || i.Addresses[443] != netip.AddrPortFrom(address, 49155) || i.Reason != "" {
			t.Errorf("%s: %+v, want %s", node, i, want)
		}
	}
	if i := instance(service, []swarm.Task{task}, []runtime.Node{{ID: "n", Name: "one"}}); len(i.Addresses) > 0 {
		t.Errorf("on a node without an address: %+v", i)
	}
	failed := swarm.Task{ID: "1", Status: swarm.TaskStatus{State: swarm.TaskStateFailed, Err: "task: non-zero exit (1)"}}
	task.ID = "2"
	task.CreatedAt = time.Now()
	for state, want := range map[swarm.TaskState]runtime.Phase{swarm.TaskStateRunning: runtime.Running, swarm.TaskStateReady: runtime.Ended} {
		next := task
		next.Status.State = state
		if i := instance(service, []swarm.Task{failed, next}, nil); i.Phase != want || i.Run != "2" || (want == runtime.Ended) != (i.Reason == "task: non-zero exit (1)") {
			t.Errorf("restarted, and %s: %+v", state, i)
		}
	}
	for status, want := range map[*swarm.TaskStatus]string{
		{State: swarm.TaskStatePreparing, Message: "preparing"}:                                                                           "its task is preparing: preparing",
		{State: swarm.TaskStatePending, Message: "pending task scheduling", Err: "no suitable node (1 node not available for new tasks)"}: "its task is pending: no suitable node (1 node not available for new tasks)",
	} {
		if i := instance(service, []swarm.Task{{Status: *status}}, nil); i.Phase != runtime.Starting || i.Reason != want {
			t.Errorf("%+v, want %q", i, want)
		}
	}
}

// TestOutOfSequence: only what a manager says of an old version is a change by another weir-edge.
func TestOutOfSequence(t *testing.T) {
	for said, want := range map[string]bool{
		"Error response from daemon: rpc error: code = Unknown desc = update out of sequence": true,
		"Error response from daemon: rpc error: code = DeadlineExceeded":                      false,
	} {
		if got := isOutOfSequence(errors.New(said)); got != want {
			t.Errorf("%s: %v", said, got)
		}
	}
}
