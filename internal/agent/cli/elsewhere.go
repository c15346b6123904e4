package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/share/policy"
)

// An agent knows its own uplinks, weir-edge what all nodes have left. So `weir explain` asks weir-edge, where
// one runs beside it, and so does the agent once it has refused a minimum: neither daemon needs the other.

// besideTimeout bounds the wait for another daemon of this host, without which an explanation is whole.
const besideTimeout = 2 * time.Second

// plainName are names that a shell takes as they are. Those of nodes come from other machines.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// roomElsewhere returns which other node than host, this one, has room for a minimum that is refused here,
// and what moves its container there; "" if none is refused, no weir-edge with other nodes runs beside
// socket, or it is weir-edge that places the container. Nodes whose names are not plain are left out.
func roomElsewhere(ctx context.Context, socket, host string, c *v1.Container) string {
	refused := slices.ContainsFunc(c.Shares, func(s v1.Share) bool { return s.Controlled && s.AdmittedBPS < c.Policy.MinBPS })
	if !refused || !plainName.MatchString(c.Name) || c.Runtime != "docker" || len(c.Groups) > 0 || strings.HasPrefix(c.Name, "edgeproxy-") {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, besideTimeout)
	defer cancel()
	peer := transport.Local("weir-edge", filepath.Join(filepath.Dir(socket), "edge.sock"), "weir-edge run", errors.New("no weir-edge runs"))
	var nodes []edge.Node
	if peer.Call(ctx, http.MethodGet, "/v1/nodes", nil, &nodes) != nil || len(nodes) < 2 {
		return ""
	}
	var best *edge.Node
	for i := range nodes {
		n := &nodes[i]
		if n.Name != host && plainName.MatchString(n.Name) && n.State == "ready" && n.FreeBPS >= c.Policy.MinBPS && (best == nil || n.FreeBPS > best.FreeBPS) {
			best = n
		}
	}
	if best == nil {
		return "no other node of weir-edge has room for it"
	}
	return fmt.Sprintf("node %[1]s has room for it, %[2]s: docker service create --name %[3]s --label weir-edge.manage=true --container-label %[4]smin=%[5]s IMAGE, with the options that it was started with, and then docker rm -f %[3]s here; weir-edge moves it to a node with room",
		best.Name, policy.FormatRateWithin(best.FreeBPS), c.Name, policy.Prefix, policy.FormatRate(c.Policy.MinBPS))
}

// tellRoomElsewhere follows each refusal of a container's minimum with an event, and a line of the log, that
// names the node with room for it, until ctx ends.
func tellRoomElsewhere(ctx context.Context, events *stats.Events, latest func(context.Context) (*stats.Snapshot, error), socket string, log *slog.Logger) {
	host, _ := os.Hostname() // the name of its node
	for seq := uint64(0); ; {
		batch := events.Since(seq)
		for _, e := range batch.Events {
			if seq = e.Seq; e.Kind != v1.EventRefused {
				continue
			}
			now, err := latest(ctx)
			if err != nil {
				return // the agent ends
			}
			at := slices.IndexFunc(now.Containers, func(c v1.Container) bool { return c.ID == e.ID && c.Runtime == e.Runtime })
			if at < 0 {
				continue // it has ended
			}
			if room := roomElsewhere(ctx, socket, host, &now.Containers[at]); room != "" {
				log.Warn("minimum refused here", "name", e.Container, "elsewhere", room)
				events.Add(v1.Event{At: time.Now(), Kind: v1.EventRoomElsewhere, Container: e.Container, ID: e.ID, Runtime: e.Runtime, Message: room})
			}
		}
		if len(batch.Events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-batch.More:
			if batch.Closed {
				return
			}
		}
	}
}
