package cli

import (
	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/connect"
	"github.com/weir-project/weir/internal/share/policy"
)

func newSetCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME [--weight N] [--min R] [--max R] [--priority N] [--latency D] [--class C] [--ef-max P] [--af-min P] [--dscp USE] [--in-max R] ...",
		Short: "Change a running container's policy until it stops",
		Long: `Change a running container's policy. What is not given stays as it is; "none"
takes a value away. The change outlives restarts of the agent and ends with the
container. A change that cannot be honoured is refused as a whole.

NAME is a container's name, its ID or the start of it, or the name of a Compose or
Swarm service or of a pod that has one container in a network of its own.`,
		Example: `  weir set web --weight 300 --min 20mbit
  weir set backup --max none`,
		Args: cmdline.ExactArgs("NAME"),
	}
	agentFlags := connect.Add(cmd, socket)
	cmd.ValidArgsFunction = agentFlags.CompleteNames
	var (
		change v1.PolicyChange
		flags  = cmd.Flags()
		fields = []struct {
			field       **string
			name, usage string
		}{
			{&change.Weight, "weight", "relative share, 0 to 10000"},
			{&change.Min, "min", "guaranteed rate, e.g. 20mbit, or none"},
			{&change.Max, "max", "rate never exceeded, e.g. 50mbit, or none"},
			{&change.Priority, "priority", "order in which containers get idle rate, 0 to 1000, highest first"},
			{&change.Latency, "latency", "bound on queueing delay, e.g. 20ms, or none"},
			{&change.Class, "class", "ef, af, be, auto or none"},
			{&change.EFMax, "ef-max", "maximum of EF traffic: a rate, or a part of its share, e.g. 50%"},
			{&change.AFMin, "af-min", "minimum of AF traffic, ahead of BE: a rate, or a part of its share, e.g. 30%"},
			{&change.InWeight, "in-weight", "relative share of received traffic, 0 to 10000 (default: as for sent traffic)"},
			{&change.InMin, "in-min", "guaranteed rate of received traffic, or none"},
			{&change.InMax, "in-max", "rate never exceeded by received traffic, or none"},
			{&change.InPriority, "in-priority", "order in which containers get idle rate of received traffic"},
			{&change.InLatency, "in-latency", "bound on queueing delay of received traffic, or none"},
			{&change.DSCP, "dscp", "trust: the DSCP field of its packets decides their class; mark: the class is written there; both; or none"},
		}
	)
	for _, f := range fields {
		flags.String(f.name, "", f.usage)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		any := false
		for _, f := range fields {
			if flags.Changed(f.name) {
				value, err := flags.GetString(f.name)
				if err != nil {
					return err
				}
				*f.field, any = &value, true
			}
		}
		if !any {
			return cmdline.Usagef("nothing to set: %s", cmd.UseLine())
		}
		// The agent checks whether the host has room for it.
		if _, err := policy.ParseChange(change); err != nil {
			return cmdline.WithCode(cmdline.Usage, err)
		}
		agent, err := agentFlags.Open()
		if err != nil {
			return err
		}
		container, err := agent.Set(cmd.Context(), args[0], change)
		if err != nil {
			return err
		}
		return printContainers(cmd.OutOrStdout(), []v1.Container{container}, false)
	}
	return cmd
}

func newResetCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset NAME",
		Short: "Take back what weir set has changed of a container's policy",
		Args:  cmdline.ExactArgs("NAME"),
	}
	agentFlags := connect.Add(cmd, socket)
	cmd.ValidArgsFunction = agentFlags.CompleteNames
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, err := agentFlags.Open()
		if err != nil {
			return err
		}
		container, err := agent.Reset(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return printContainers(cmd.OutOrStdout(), []v1.Container{container}, false)
	}
	return cmd
}
