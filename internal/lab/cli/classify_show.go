package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/train"
)

func newClassifyExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Print the rules of a classifier",
		Long: `Print the rules of a classifier: a test a line; behind a leaf the application
type, its level, how certain the level is, and in parentheses how much of the
training came there and what of it was of another type.`,
		Example: "weir classify explain\nweir classify explain --stage 2 --svg tree.svg",
		Args:    cmdline.ExactArgs(),
	}
	classifier := addClassifierFlags(cmd)
	stage := cmd.Flags().Int("stage", 1, "1: the first packet, 2: the first packets' sizes")
	number := cmd.Flags().Int("number", 0, "which of the stage's trees, from 1 (default: all are printed, the first is drawn)")
	svg := cmd.Flags().String("svg", "", "draw the tree into this file instead")
	binary := cmd.Flags().String("binary", "", "write the binary form, as the kernel walks it, to this file instead")
	format := cmdline.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *svg != "" && *binary != "" {
			return cmdline.Usagef("--svg and --binary exclude each other: each writes one file")
		}
		m, err := classifier.load()
		if err != nil {
			return err
		}
		if *stage != 1 && *stage != 2 {
			return cmdline.Usagef("--stage %d: want 1 or 2", *stage)
		}
		if trees := len(m.Stages[*stage-1].Trees); cmd.Flags().Changed("number") && (*number < 1 || *number > trees) {
			return cmdline.Usagef("--number %d: stage %d has the trees 1 to %d", *number, *stage, trees)
		}
		out := cmd.OutOrStdout()
		switch {
		case *svg != "":
			return writeFile(*svg, func(w io.Writer) error { return train.Draw(w, m, *stage-1, max(*number, 1)-1) })
		case *binary != "":
			return writeBinary(*binary, m)
		case *format == cmdline.JSON:
			return m.Write(out)
		}
		return train.Explain(out, m, *stage-1, *number)
	}
	return cmd
}

func writeBinary(path string, m *apps.Model) error {
	compact, err := m.Compact()
	if err != nil {
		return err
	}
	data, err := train.Binary(compact)
	if err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// labelled is what is printed of a flow.
type labelledFlow struct {
	Flow        string       `json:"flow,omitempty"`
	Line        int          `json:"line,omitempty"`
	Proto       int          `json:"proto"`
	SrcPort     *int         `json:"src_port,omitempty"`
	DstPort     int          `json:"dst_port"`
	Label       string       `json:"label,omitempty"`
	First       labelVerdict `json:"first"`
	SecondStage labelVerdict `json:"second_stage"`
}

type labelVerdict struct {
	Type       string  `json:"type"`
	QoS        string  `json:"qos"`
	Confidence float64 `json:"confidence"`
}

func newClassifyLabelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "label FILE...",
		Short: "Say of every flow in a capture or table what it is",
		Long: `Say of every flow in a capture (pcap, pcapng) or table which application type and
level a classifier gives it, at its first packet and after the second stage. Of a
capture that is cut off, the flows before the cut are printed.`,
		Example: "weir classify label capture.pcap\ntcpdump -i eth0 -c 1000 -w - | weir classify label -",
		Args:    atLeastOne("FILE"),
	}
	classifier := addClassifierFlags(cmd)
	format := cmdline.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := classifier.load()
		if err != nil {
			return err
		}
		flows, readErr := readFlows(cmd.InOrStdin(), args, false)
		if readErr != nil && len(flows) == 0 {
			return readErr
		}
		out := make([]labelledFlow, 0, len(flows))
		for _, f := range flows {
			out = append(out, label(m, f))
		}
		if *format == cmdline.JSON {
			err = cmdline.PrintJSON(cmd.OutOrStdout(), out)
		} else {
			err = printLabels(cmd.OutOrStdout(), out)
			if len(out) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "There is no flow of TCP or UDP in it.")
			}
		}
		if err != nil {
			return err
		}
		return readErr
	}
	return cmd
}

func label(m *apps.Model, f *flow.Flow) labelledFlow {
	out := labelledFlow{
		Flow: f.Tuple, Line: f.Line, Label: f.Type,
		Proto: int(f.Values[flow.Proto]), DstPort: int(f.Values[flow.DstPort]),
	}
	if port := f.Values[flow.SrcPort]; !math.IsNaN(port) {
		n := int(port)
		out.SrcPort = &n
	}
	for stage, verdict := range []*labelVerdict{&out.First, &out.SecondStage} {
		v := m.Verdict(stage, f)
		*verdict = labelVerdict{apps.Types[v.Type], v.Level.String(), v.LevelConfidence}
	}
	return out
}

func printLabels(w io.Writer, flows []labelledFlow) error {
	t := report.Table{Header: []string{"FLOW", "FIRST", "LEVEL", "CONFIDENCE", "SECOND", "LEVEL", "CONFIDENCE", "LABEL"}}
	for _, f := range flows {
		name := f.Flow
		if name == "" {
			name = fmt.Sprintf("line %d: %d to port %d", f.Line, f.Proto, f.DstPort)
		}
		cells := []string{name}
		for _, v := range []labelVerdict{f.First, f.SecondStage} {
			cells = append(cells, v.Type, v.QoS, fmt.Sprintf("%.2f", v.Confidence))
		}
		t.Add(append(cells, cmp.Or(f.Label, "-"))...)
	}
	return t.WriteText(w)
}
