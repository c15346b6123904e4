package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/server"
)

func newPsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List containers, their policies and what they get",
		Args:  exactArgs(),
	}
	format := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		containers, err := server.NewClient(g.socket).Containers(cmd.Context())
		if err != nil {
			return err
		}
		if *format == outputJSON {
			return printJSON(cmd.OutOrStdout(), containers)
		}
		return printContainers(cmd.OutOrStdout(), containers)
	}
	return cmd
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func printContainers(w io.Writer, containers []v1.Container) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMODE\tWEIGHT\tMIN\tMAX\tPRIORITY\tENTITLED\tRATE\tDROPPED\tSTATE\tREASON")
	for _, c := range containers {
		fmt.Fprintln(table, strings.TrimRight(strings.Join([]string{
			c.Name,
			string(c.Mode),
			strconv.FormatUint(uint64(c.Policy.Weight), 10),
			rateOrDash(c.Policy.MinBPS),
			rateOrDash(c.Policy.MaxBPS),
			strconv.FormatUint(uint64(c.Policy.Priority), 10),
			rateOrDash(c.EntitledBPS),
			rateOrDash(c.RateBPS),
			strconv.FormatUint(c.DroppedPackets, 10),
			string(c.State),
			c.Reason,
		}, "\t"), "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func rateOrDash(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return policy.FormatRateShort(bps)
}
