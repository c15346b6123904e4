package cli

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/share/policy"
)

// besideTimeout bounds the wait for another daemon of this host, without which an explanation is whole.
const besideTimeout = 2 * time.Second

// atSwitches returns what switches do with a container's marks at the trusted ports that its uplinks lead to:
// the queue of each class, or why they do not trust them, and how much EF they dropped above the port's bound. It is empty for a container whose
// packets keep no mark, and where no weir sdn run is beside socket. addressOf returns the MAC address of a
// device.
func atSwitches(ctx context.Context, socket string, addressOf func(device string) string, c *v1.Container) (notes []string) {
	if !policy.MarksDSCP(c.Policy) && !policy.TrustsDSCP(c.Policy) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, besideTimeout)
	defer cancel()
	network, err := client.NewSDN(filepath.Join(filepath.Dir(socket), "sdn.sock")).Status(ctx)
	if err != nil {
		return nil
	}
	leads := func(p v1.SDNPort) bool {
		return p.Trust != nil && slices.ContainsFunc(c.Shares, func(s v1.Share) bool { return slices.Contains(p.Hosts, addressOf(s.Uplink)) })
	}
	for _, s := range network.Switches {
		for _, p := range s.Ports {
			at := fmt.Sprintf("port %s of switch %s", p.Name, strings.TrimLeft(s.DPID, "0"))
			if !leads(p) {
				continue
			}
			if p.Trust.Refused != "" {
				notes = append(notes, fmt.Sprintf("%s does not trust marks: %s", at, p.Trust.Refused))
				continue
			}
			if queues := queuesOfClasses(&network); queues != "" {
				notes = append(notes, fmt.Sprintf("%s trusts marks: at each switch they go through %s", at, queues))
			}
			if p.Trust.EFDroppedPackets > 0 {
				notes = append(notes, fmt.Sprintf("%s takes %s of EF from all that is behind it, and has dropped %d packets above that", at, policy.FormatRate(p.Trust.EFBoundBPS), p.Trust.EFDroppedPackets))
			}
		}
	}
	return notes
}

// addressOf returns the MAC address of a device of this host, "-" without one.
func addressOf(device string) string {
	at, err := net.InterfaceByName(device)
	if err != nil || len(at.HardwareAddr) == 0 {
		return "-"
	}
	return at.HardwareAddr.String()
}

// queuesOfClasses returns the queue of each class at the ports of a network, all of which have the same; empty if none
// has queues.
func queuesOfClasses(network *v1.SDN) string {
	var list []string
	for _, class := range []v1.Class{v1.ClassEF, v1.ClassAF, v1.ClassBE} {
		for _, s := range network.Switches {
			for _, p := range s.Ports {
				for _, q := range p.Queues {
					text := fmt.Sprintf("queue %d (%s)", q.ID, strings.ToUpper(q.Class))
					if p.State == "ok" && q.Class == string(class) && !slices.Contains(list, text) {
						list = append(list, text)
					}
				}
			}
		}
	}
	return strings.Join(list, ", ")
}
