package llq

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
)

// threeFlows returns a case with one container that may send as much as the link carries, with
// a class for each of its flows.
func threeFlows() bench.Case {
	return bench.Case{
		Group: Suite, Name: "three flows", LinkBPS: linkBPS,
		Containers: []bench.Container{{
			Name: "app", Policy: bench.Policy{Weight: 100},
			Labels: map[string]string{
				"weir.class": "auto", "weir.dscp": "trust", "weir.ef-max": percentLabel(policy.DefaultEFMaxPercent), "weir.af-min": percentLabel(policy.DefaultAFMinPercent),
			},
		}},
	}
}

func percentLabel(percent float64) string { return strconv.FormatFloat(percent, 'f', -1, 64) + "%" }

// classRates returns the part of the link of each class, the same for all peers.
func classRates() alloc.ClassRates {
	return alloc.ClassParts{
		EFMax: alloc.Part{Percent: policy.DefaultEFMaxPercent}, AFMin: alloc.Part{Percent: policy.DefaultAFMinPercent},
	}.Of(linkBPS)
}

// newPeer makes a peer by name.
func newPeer(ctx context.Context, name string, options Options) (bench.Peer, error) {
	if name == bench.PeerHTB {
		parts := classRates()
		var flows []bench.HTBFlow
		for i, rate := range []uint64{parts.EFBPS, parts.AFBPS, parts.BEBPS} {
			flows = append(flows, bench.HTBFlow{Port: sentFlows[i].port, RateBPS: rate})
		}
		return bench.NewHTBFlows(flows), nil
	}
	return bench.NewPeer(ctx, name, bench.Options{RunOptions: options.RunOptions})
}

// ordersFlows returns an error if the peer is an agent that does not serve the flows by class.
func ordersFlows(ctx context.Context, p bench.Peer) error {
	agent, ok := p.(interface {
		Controlled(ctx context.Context) ([]v1.Container, error)
	})
	if !ok {
		return nil
	}
	rows, err := agent.Controlled(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if strings.Contains(row.Reason, policy.LabelClass) {
			return fmt.Errorf("it does not order flows here: %s", row.Reason)
		}
		if row.Name == threeFlows().Containers[0].Name && len(row.Classes) < len(sentFlows) {
			return fmt.Errorf("it does not order flows here: it has %d traffic classes for %s", len(row.Classes), row.Name)
		}
	}
	return nil
}
