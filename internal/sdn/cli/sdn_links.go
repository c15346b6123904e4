package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
)

func newSDNLinksCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "links",
		Short: "List what links carry, have promised and could promise",
		Long: `List the ports that lead to other switches and to hosts: what they send, what is
promised there to services, and the largest minimum that could still be promised. Below
are the promises, which weir-edge makes, with the reason of those that are not in force.`,
		Args: cmdline.ExactArgs(),
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSDNSocket, "Unix socket of weir sdn run")
	return cmdline.PrintAnswer(cmd, func(ctx context.Context, _ []string) (v1.SDNLinks, error) {
		return client.NewSDN(socket).Links(ctx)
	}, func(cmd *cobra.Command, l v1.SDNLinks) error {
		if l.Standby {
			fmt.Fprintln(cmd.ErrOrStderr(), "This controller is a standby: the master has the links and promises")
		} else if len(l.Links) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "No port leads anywhere yet: weir sdn ps lists the switches that have connected")
		}
		return errors.Join(printLinks(cmd.OutOrStdout(), l.Links), printPromises(cmd.OutOrStdout(), l.Promises))
	})
}

func printLinks(w io.Writer, links []v1.SDNLinkDirection) error {
	t := cmdline.TextTable{Header: []string{"SWITCH", "PORT", "TO", "RATE", "SENT", "PROMISED", "FREE", "STATE"}, Note: "REASON"}
	for _, l := range links {
		to := portTo(v1.SDNPort{PeerDPID: l.PeerDPID, PeerPort: l.PeerPort, Hosts: l.Hosts})
		t.Add([]string{
			l.DPID, fmt.Sprintf("%s (%s)", cmdline.Printable(l.Name), portNumber(l.Port)), to, cmdline.RateOrDash(l.RateBPS), cmdline.RateOrDash(l.SentBPS),
			cmdline.RateOrDash(l.PromisedBPS), cmdline.RateOrDash(l.FreeMinBPS), l.State,
		}, cmdline.Printable(l.Reason))
	}
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func printPromises(w io.Writer, promises []v1.SDNPromise) error {
	if len(promises) == 0 {
		return nil
	}
	t := cmdline.TextTable{Header: []string{"SERVICE", "NODE", "PEER", "MIN", "BACK", "PATH", "STATE"}, Note: "REASON", Dispensable: []string{"PATH"}}
	for _, p := range promises {
		t.Add([]string{
			cmdline.Printable(p.Service), fmt.Sprintf("%v %s %d", p.Node, p.Protocol, p.Port), p.Peer.String(), cmdline.RateOrDash(p.MinBPS),
			cmdline.RateOrDash(p.BackBPS), pathText(p.Path), p.State,
		}, cmdline.Printable(p.Reason))
	}
	fmt.Fprintln(w)
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
