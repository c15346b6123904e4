package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/controller"
)

const outputSVG cmdline.Output = "svg"

func newSDNTopologyCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "List or draw the links between switches, and the ports of hosts",
		Long: `List the links between switches, and the ports with hosts, that weir sdn run
has found. With -o svg they are drawn: switches on a circle, links as lines with the
port number and the rate of each end, thick where a port is about full, hosts as dots,
a lost switch dashed, and a port that is blocked because of a loop as a cross.`,
		Example: "weir sdn topology\nweir sdn topology -o svg >network.svg",
		Args:    cmdline.ExactArgs(),
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSDNSocket, "Unix socket of weir sdn run")
	format := cmdline.AddOutputFlag(cmd, outputSVG)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := client.NewSDN(socket).Status(cmd.Context())
		if err != nil {
			return err
		}
		switch *format {
		case cmdline.JSON:
			return cmdline.PrintJSON(cmd.OutOrStdout(), s.Links)
		case outputSVG:
			err = controller.DrawTopology(cmd.OutOrStdout(), s, true)
		default:
			sayNoSwitches(cmd, s)
			err = printTopology(cmd.OutOrStdout(), s)
		}
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	return cmd
}

// printTopology prints one line per link end and one line per port with hosts.
func printTopology(w io.Writer, s v1.SDN) error {
	t := cmdline.TextTable{Header: []string{"SWITCH", "PORT", "TO"}}
	for _, n := range s.Switches {
		for _, p := range n.Ports {
			name := fmt.Sprintf("%s (%s)", cmdline.Printable(p.Name), portNumber(p.Number))
			switch {
			case p.State == "blocked":
				t.Add([]string{n.DPID, name, "blocked: a loop"}, "")
			case p.PeerDPID != "" || len(p.Hosts) > 0:
				t.Add([]string{n.DPID, name, portTo(p)}, "")
			}
		}
	}
	return t.Print(w, cmdline.TerminalWidth(w))
}
