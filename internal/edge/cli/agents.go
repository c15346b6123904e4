package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/web"
)

// daemonOptions are the URL, TLS files and token with which weir-edge reaches daemons on other hosts.
type daemonOptions struct{ url, ca, cert, key, tokenFile string }

// agentOptions are those of the nodes' agents.
type agentOptions daemonOptions

// maxAgentBytes limits an answer of an agent, which another machine sends each second: that of two
// thousand containers is smaller.
const maxAgentBytes = 8 << 20

// dialer returns clients of the agents at addresses, one each. It is safe for concurrent use.
type dialer func(netip.Addr) (*client.Client, error)

// dialer returns the dialer of the nodes' agents, or nil without a URL.
func (a agentOptions) dialer() (dialer, error) {
	if a.url == "" {
		return nil, nil
	}
	if socket, ok := strings.CutPrefix(a.url, "unix://"); ok {
		return once(func(address netip.Addr) (*client.Client, error) {
			return client.Unix(strings.ReplaceAll(socket, "{address}", address.String())), nil
		}), nil
	}
	options, err := daemonOptions(a).options("the agents")
	if err != nil {
		return nil, err
	}
	dial := func(address netip.Addr) (*client.Client, error) { return client.New(a.at(address), options) }
	// A bad certificate or token file fails here, before any node is contacted.
	if _, err := dial(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err != nil {
		return nil, fmt.Errorf("ask the agents of nodes: %w", err)
	}
	return once(dial), nil
}

// options returns the credentials for daemons of that name.
func (o daemonOptions) options(name string) (client.Options, error) {
	trust, err := client.LoadTLS(o.ca, o.cert, o.key)
	if err != nil || o.tokenFile == "" {
		return client.Options{TLS: trust, MaxAnswerBytes: maxAgentBytes}, err
	}
	token, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return client.Options{}, fmt.Errorf("read the token of %s: %w", name, err)
	}
	word := strings.TrimSpace(string(token))
	if word == "" {
		return client.Options{}, fmt.Errorf("read the token of %s: %s is empty: `weir token weir-edge --role admin` there prints one", name, o.tokenFile)
	}
	return client.Options{TLS: trust, Token: word, MaxAnswerBytes: maxAgentBytes}, nil
}

// nodes returns the source of what nodes measure: the agents, or [run.Unmeasured] without a URL.
func (a agentOptions) nodes(ctx context.Context) (run.Nodes, dialer, error) {
	dial, err := a.dialer()
	switch {
	case err != nil:
		return nil, nil, err
	case dial == nil:
		return run.Unmeasured{}, nil, nil
	}
	return run.NewAgents(ctx, dial), dial, nil
}

// once keeps the client of each address.
func once(dial dialer) dialer {
	var mu sync.Mutex
	clients := map[netip.Addr]*client.Client{}
	return func(address netip.Addr) (*client.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		if known := clients[address]; known != nil {
			return known, nil
		}
		made, err := dial(address)
		if err == nil {
			clients[address] = made
		}
		return made, err
	}
}

// agentOf returns how the page asks the agent of a node, nil if none is known there.
func (d dialer) agentOf(snapshot func() edge.Snapshot) func(node string) web.Getter {
	return func(node string) web.Getter {
		nodes := snapshot().Nodes
		i := slices.IndexFunc(nodes, func(n edge.Node) bool { return n.Name == node && n.Weir })
		if i < 0 || d == nil {
			return nil
		}
		address, _ := netip.ParseAddr(nodes[i].Address) // the zero address for this host alone
		return func(ctx context.Context, path string) (*http.Response, error) {
			agent, err := d(address)
			if err != nil {
				return nil, err
			}
			return agent.Get(ctx, path)
		}
	}
}

// at returns the URL of the agent at a node's address.
func (a agentOptions) at(address netip.Addr) string {
	host := address.String()
	if address.Is6() {
		host = "[" + host + "]"
	}
	return strings.ReplaceAll(a.url, "{address}", host)
}

// check returns an error if the agent options contradict each other; it reads no files.
func (a agentOptions) check() error {
	if a.url == "" {
		if a != (agentOptions{}) {
			return cmdline.Usagef("--agents is missing: it says where the agents are that --agents-ca, --agents-cert, --agents-key and --agents-token-file are for")
		}
		return nil
	}
	if _, err := config.ParseAgentsURL(a.url); err != nil {
		return cmdline.Usagef("--agents: %q %w", a.url, err)
	}
	return nil
}
