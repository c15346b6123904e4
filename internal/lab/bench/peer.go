package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// The names of the peers.
const (
	PeerNone          = "none"
	PeerFIFO          = "fifo"
	PeerHTB           = "htb"
	PeerTC            = "tc"
	PeerCNI           = "cni-bandwidth"
	PeerCNIContainerd = "cni-bandwidth-containerd"
	PeerPolicer       = "policer"
	PeerWeir          = "weir"
	PeerWeirBalanced  = "weir-balanced"
	PeerWeirLow       = "weir-low"
	// PeerWeirIn shares received traffic, too.
	PeerWeirIn = "weir-in"
	// PeerIFB and PeerCAKE limit received traffic at an IFB, by fq_codel and by CAKE.
	PeerIFB  = "ifb-fq_codel"
	PeerCAKE = "cake-ingress"
	// PeerDRR and PeerHFSC are the qdiscs that qCon tried first and that CNTC is made of.
	PeerDRR  = "drr"
	PeerHFSC = "hfsc"
	// PeerHTBExact and PeerHTBLow are HTB with packets as large as Weir's of that precision.
	PeerHTBExact = "htb-exact"
	PeerHTBLow   = "htb-low"
)

// defaultPeers take part in cases that name no peers.
var defaultPeers = []string{PeerNone, PeerHTB, PeerWeir}

// PeerNames lists all peers, in the order of reports.
func PeerNames() []string {
	return []string{PeerNone, PeerFIFO, PeerHTB, PeerTC, PeerCNI, PeerCNIContainerd, PeerPolicer, PeerWeir, PeerWeirBalanced, PeerWeirLow, PeerHTBExact, PeerHTBLow, PeerWeirIn, PeerIFB, PeerCAKE, PeerDRR, PeerHFSC}
}

// Peer is a way to share the link.
type Peer interface {
	// Apply puts the policies of the case in force and returns when they
	// are.
	Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error
	// change puts a new policy in force while traffic runs.
	change(ctx context.Context, containers []Placed, change Change) error
	// Remove takes everything away again; also after apply failed.
	Remove(ctx context.Context, b *Bed, containers []Placed) error
}

// NewPeer makes a peer by name.
func NewPeer(ctx context.Context, name string, options Options) (Peer, error) {
	switch name {
	case PeerNone:
		return fifo{}, nil
	case PeerHTB:
		return htb{}, nil
	case PeerFIFO:
		return fifo{always: true}, nil
	case PeerTC:
		return htb{plain: true}, nil
	case PeerCNI, PeerCNIContainerd:
		return newCNI(ctx, options, name == PeerCNIContainerd)
	case PeerPolicer:
		return policer{}, nil
	case PeerIFB, PeerCAKE:
		return newByIFB(ctx, name == PeerCAKE)
	case PeerDRR:
		return newDRR(ctx)
	case PeerHFSC:
		return newHFSC(ctx)
	case PeerWeir, PeerWeirBalanced, PeerWeirLow:
		precision, _ := precisionOf(name)
		options.AgentArgs = append([]string{"--precision", string(precision)}, options.AgentArgs...)
		return newWeir(options)
	case PeerWeirIn:
		options.AgentArgs = append([]string{"--in-rate", policy.FormatRate(htbUnlimitedBPS)}, options.AgentArgs...)
		return newWeir(options)
	case PeerHTBExact, PeerHTBLow:
		precision, _ := precisionOf(name)
		return htb{cut: precision}, nil
	}
	return nil, fmt.Errorf("unknown peer %q: choose from %s", name, strings.Join(PeerNames(), ", "))
}

// lacksError says what a peer needs that this machine does not have.
type lacksError struct{ error }

// probeQdisc returns an error if the kernel lacks a kind of qdisc.
func probeQdisc(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	if _, err := Output(exec.CommandContext(ctx, "unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", kind)); err != nil {
		return &lacksError{fmt.Errorf("this kernel has no %s (modprobe sch_%[1]s): %w", kind, err)}
	}
	return nil
}

// precisionOf returns the precision by which a peer cuts packets; false for one that does not.
func precisionOf(peer string) (v1.Precision, bool) {
	switch peer {
	case PeerWeir, PeerWeirIn, PeerHTBExact:
		return v1.PrecisionExact, true
	case PeerWeirBalanced:
		return v1.PrecisionBalanced, true
	case PeerWeirLow, PeerHTBLow:
		return v1.PrecisionLow, true
	}
	return "", false
}

// takesPart reports whether a peer runs a case.
func (c Case) takesPart(name string) bool { return slices.Contains(c.peers(), name) }

// peers returns the peers that take part.
func (c Case) peers() []string {
	if c.Peers == nil {
		return defaultPeers
	}
	return c.Peers
}

// static is part of peers whose policies cannot change while traffic runs;
// cases with changes do not name them.
type static struct{}

func (static) change(context.Context, []Placed, Change) error {
	return fmt.Errorf("the policies of this peer are static")
}
