package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/api/v1/transport"
	"github.com/weir-project/weir/internal/share/policy"
)

// An agent knows its own uplinks, weir-edge what all nodes have left. So it is the command that asks
// weir-edge, where one runs beside it: neither daemon needs the other.

// edgeTimeout bounds the wait for weir-edge, without which an explanation is whole.
const edgeTimeout = 2 * time.Second

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
	ctx, cancel := context.WithTimeout(ctx, edgeTimeout)
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
	return fmt.Sprintf("node %[1]s has room for it, %[2]s: docker service create --name %[3]s --constraint node.hostname==%[1]s --container-label %[4]smin=%[5]s IMAGE, with the options that it was started with, and then docker rm -f %[3]s here",
		best.Name, policy.FormatRateWithin(best.FreeBPS), c.Name, policy.Prefix, policy.FormatRate(c.Policy.MinBPS))
}
