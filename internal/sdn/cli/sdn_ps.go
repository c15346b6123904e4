package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func newSDNPsCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List switches, their ports and queues",
		Args:  cmdline.ExactArgs(),
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSDNSocket, "Unix socket of weir sdn run")
	return cmdline.PrintAnswer(cmd, func(ctx context.Context, _ []string) (v1.SDN, error) {
		return client.NewSDN(socket).Status(ctx)
	}, func(cmd *cobra.Command, s v1.SDN) error {
		sayNoSwitches(cmd, s)
		for _, port := range s.MissingPorts {
			fmt.Fprintf(cmd.ErrOrStderr(), "weir: --trust %s: no known switch has this port\n", cmdline.Printable(port))
		}
		return errors.Join(printSwitches(cmd.OutOrStdout(), s), printMarks(cmd.OutOrStdout(), s))
	})
}

// sayNoSwitches prints what to do if no switch has connected.
func sayNoSwitches(cmd *cobra.Command, s v1.SDN) {
	if len(s.Switches) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "No switch has connected yet: ovs-vsctl set-controller BRIDGE tcp:ADDR:6653 -- set bridge BRIDGE protocols=OpenFlow13, with the address at which weir sdn run listens")
	}
}

// printSwitches prints one line per queue, and one line for a port without queues.
func printSwitches(w io.Writer, s v1.SDN) error {
	t := cmdline.TextTable{
		Header: []string{"SWITCH", "PORT", "TO", "QUEUE", "CLASS", "MIN", "MAX", "RATE", "SENT", "DROPPED", "STATE"}, Note: "REASON",
		Dispensable: []string{"SENT", "MAX", "TO"},
	}
	for _, n := range s.Switches {
		t.Add([]string{n.DPID, "", cmdline.Counted(n.Flows, "flow"), "", "", "", "", "", "", "", n.State}, cmdline.Printable(n.Reason))
		for _, p := range n.Ports {
			portState := p.State
			if !p.Up {
				portState = "down"
			}
			reason := p.Reason
			if note := trustNote(p.Trust); reason != "" && note != "" {
				reason += "; " + note
			} else {
				reason += note
			}
			name := fmt.Sprintf("%s (%s)", cmdline.Printable(p.Name), portNumber(p.Number))
			if len(p.Queues) == 0 {
				t.Add([]string{
					"", name, portTo(p), "-", "", "", "", cmdline.RateOrDash(p.SentBPS), strconv.FormatUint(p.SentBytes, 10), strconv.FormatUint(p.DroppedPackets, 10), portState,
				}, cmdline.Printable(reason))
			}
			for i, q := range p.Queues {
				class := strings.Join(append([]string{q.Class}, q.Applications...), " ")
				row := []string{
					"", "", "", strconv.FormatUint(uint64(q.ID), 10), class, cmdline.RateOrDash(q.MinBPS), cmdline.RateOrDash(q.MaxBPS), cmdline.RateOrDash(q.RateBPS),
					strconv.FormatUint(q.SentBytes, 10), strconv.FormatUint(q.DroppedPackets, 10), "",
				}
				note := ""
				if i == 0 {
					row[1], row[2], row[10], note = name, portTo(p), portState, reason
				}
				t.Add(row, cmdline.Printable(note))
			}
		}
	}
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// portNumber returns a port's number as text, or "local" for the switch's own port.
func portNumber(n uint32) string {
	if n == 0xfffffffe {
		return "local"
	}
	return strconv.FormatUint(uint64(n), 10)
}

// portTo returns the link peer or the hosts of a port.
func portTo(p v1.SDNPort) string {
	switch {
	case p.PeerDPID != "":
		return fmt.Sprintf("%s port %d", p.PeerDPID, p.PeerPort)
	case len(p.Hosts) == 1:
		return p.Hosts[0]
	case len(p.Hosts) > 1:
		return cmdline.Counted(len(p.Hosts), "host")
	}
	return "-"
}

func newSDNFlowsCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List flows, their applications, classes and paths",
		Args:  cmdline.ExactArgs(),
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSDNSocket, "Unix socket of weir sdn run")
	return cmdline.PrintAnswer(cmd, func(ctx context.Context, _ []string) ([]v1.SDNFlow, error) {
		return client.NewSDN(socket).Flows(ctx)
	}, func(cmd *cobra.Command, flows []v1.SDNFlow) error {
		if len(flows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "There is no flow: weir sdn ps lists the switches that have connected")
		}
		return printSDNFlows(cmd.OutOrStdout(), flows)
	})
}

func printSDNFlows(w io.Writer, flows []v1.SDNFlow) error {
	t := cmdline.TextTable{
		Header: []string{"FLOW", "APPLICATION", "CLASS", "RATE", "SENT", "PACKETS", "PATH"}, Dispensable: []string{"PACKETS", "PATH", "SENT"},
	}
	for _, f := range flows {
		class := f.Class
		if f.SecondLook {
			class += " (second look)"
		}
		t.Add([]string{
			f.Flow, f.Application, class, cmdline.RateOrDash(f.RateBPS), strconv.FormatUint(f.SentBytes, 10),
			strconv.FormatUint(f.SentPackets, 10), pathText(f.Path),
		}, "")
	}
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// pathText returns a path as SWITCH:IN>OUT of each switch.
func pathText(path []v1.SDNHop) string {
	var hops []string
	for _, hop := range path {
		hops = append(hops, fmt.Sprintf("%s:%s>%s", strings.TrimLeft(hop.DPID, "0"), portNumber(hop.In), portNumber(hop.Out)))
	}
	return strings.Join(hops, " ")
}
