package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/train"
)

// evaluation is what 'weir classify eval' prints: the first packet's scores,
// and those after the second stage.
type evaluation struct {
	Method string `json:"method"`
	train.Scores
	SecondStage train.Scores `json:"second_stage"`
	// Against names other features of the first packet; Contrasts are beside those.
	Against   []string         `json:"against,omitempty"`
	Contrasts []train.Contrast `json:"contrasts,omitempty"`
}

func newClassifyEvalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "eval FILE...",
		Short: "Score a classifier on a labelled table of flows",
		Long: `Score a classifier on labelled flows: how many application types and levels are
right at the first packet and after the second stage.

With --folds K, classifiers are trained on K-1 parts of FILE and scored on the
rest. Flows of one capture resemble each other: parted flow by flow the scores
flatter, so groups stay together unless --by flow. With --against FEATURES others are
trained on the same parts with these features of the first packet, and two flows in a
branch as C4.5 has by itself; both are shown with 95 % intervals of drawn groups.`,
		Example: "weir classify eval flows.csv.gz\nweir classify eval flows.csv.gz --folds 10 --by flow --features paper -o json\nweir classify eval flows.csv.gz --folds 10 --against paper",
		Args:    atLeastOne("FILE"),
	}
	classifier, training := addClassifierFlags(cmd), addTrainFlags(cmd)
	format := cmdline.AddOutputFlag(cmd)
	folds := cmd.Flags().Int("folds", 0, "train on K-1 parts of FILE and score the rest, K times")
	by := cmd.Flags().String("by", "group", "part by group or by flow")
	against := cmd.Flags().StringSlice("against", nil, "with --folds: other features of the first packet to compare with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkEvalFlags(cmd, *folds, *by); err != nil {
			return err
		}
		opts, err := training.options()
		if err != nil {
			return err
		}
		flows, err := readFlows(cmd.InOrStdin(), args, true)
		if err != nil {
			return err
		}
		if len(flows) == 0 {
			return errors.New("score classifier: the table has no flows")
		}
		m, err := classifier.load()
		if err != nil {
			return err
		}
		var judged []train.Judged
		e := evaluation{Method: "classifier"}
		if *folds > 0 {
			e.Method = fmt.Sprintf("%d folds by %s", *folds, *by)
			judged, err = train.CrossValidate(flows, opts, *folds, *by == "group", opts.Second.Seed, m.Levels, m.MinConfidence)
		} else {
			// The score of a file is that of all its flows.
			if cmd.Flags().Changed("max-rank") {
				flows = train.Kept(flows, opts.MaxRank)
			}
			judged, err = train.Judge(m, flows)
		}
		if err != nil {
			return err
		}
		if len(*against) > 0 {
			other := opts
			other.First.Features, other.First.C45.MinLeaf = *against, train.TreeDefaults().MinLeaf
			others, err := train.CrossValidate(flows, other, *folds, *by == "group", opts.Second.Seed, m.Levels, m.MinConfidence)
			if err != nil {
				return err
			}
			if e.Contrasts, err = train.Compare(judged, others, 0, m.Levels, opts.Second.Seed); err != nil {
				return err
			}
			e.Against = *against
		}
		e.Scores, e.SecondStage = train.Score(judged, 0, m.Levels), train.Score(judged, 1, m.Levels)
		if *format == cmdline.JSON {
			return cmdline.PrintJSON(cmd.OutOrStdout(), e)
		}
		if len(e.Contrasts) > 0 {
			return printContrasts(cmd.OutOrStdout(), e, opts.First.Features)
		}
		return printEvaluation(cmd.OutOrStdout(), e)
	}
	return cmd
}

func checkEvalFlags(cmd *cobra.Command, folds int, by string) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("folds") && folds < 2:
		return cmdline.Usagef("--folds %d: want at least 2", folds)
	case by != "group" && by != "flow":
		return cmdline.Usagef("--by %s: want group or flow", by)
	case folds > 0 && changed("tree"):
		return cmdline.Usagef("--tree and --folds exclude each other: --folds trains its own")
	}
	if folds > 0 {
		return nil
	}
	for _, name := range []string{"by", "features", "late-features", "trees", "late-trees", "min-leaf", "late-min-leaf", "prune", "max-depth", "late-group-exponent", "seed", "against"} {
		if changed(name) {
			return cmdline.Usagef("--%s says how to train, which only --folds does here", name)
		}
	}
	return nil
}

func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + " %" }

func printEvaluation(w io.Writer, e evaluation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	first, second := e.Scores, e.SecondStage
	fmt.Fprintf(t, "%d flows, %s\n\n", first.Flows, e.Method)
	fmt.Fprintln(t, "\tFIRST PACKET\tSECOND STAGE\t")
	for _, row := range []struct {
		name string
		a, b float64
	}{
		{"application type", first.Accuracy, second.Accuracy},
		{"level", first.QoSAccuracy, second.QoSAccuracy},
		{"application type by bytes", first.ByBytes.Accuracy, second.ByBytes.Accuracy},
		{"level by bytes", first.ByBytes.QoSAccuracy, second.ByBytes.QoSAccuracy},
		{"macro F1", first.MacroF1, second.MacroF1},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", row.name, percent(row.a), percent(row.b))
	}
	fmt.Fprintln(t, "\nCLASS\tFLOWS\tRECALL\tPRECISION\tSECOND RECALL\tPRECISION\t")
	classes := func(names []string, a, b map[string]train.ClassScore) {
		for _, name := range names {
			recall := percent
			if a[name].Count == 0 { // there is none to be found
				recall = func(float64) string { return "-" }
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t\n", name, a[name].Count,
				recall(a[name].Recall), percent(a[name].Precision), recall(b[name].Recall), percent(b[name].Precision))
		}
	}
	classes(apps.Types, first.Classes, second.Classes)
	classes([]string{"EF", "AF", "BE"}, first.Levels, second.Levels)
	for i, s := range []train.Scores{first, second} {
		fmt.Fprintf(t, "\nSTAGE %d: TRUE \\ VERDICT\t%s\t\n", i+1, strings.Join(apps.Types, "\t"))
		for truth, row := range s.Confusion.Rows {
			fmt.Fprint(t, apps.Types[truth], "\t")
			for _, n := range row {
				fmt.Fprintf(t, "%d\t", n)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "\nSTAGE %d: CONFIDENCE FROM\tFLOWS\tTYPE\tLEVEL\t\n", i+1)
		for _, c := range s.Coverage {
			fmt.Fprintf(t, "%.2f\t%s\t%s\t%s\t\n", c.Confidence, percent(c.Covered), percent(c.Accuracy), percent(c.QoSAccuracy))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return printGroups(w, first.Groups)
}

// printContrasts shows the rates of two classifiers at the first packet, and which differ.
func printContrasts(w io.Writer, e evaluation, features []string) error {
	fmt.Fprintf(w, "%d flows, %s, at the first packet; 95 %% intervals; recall of types and levels\n\n", e.Flows, e.Method)
	of := func(i train.Interval) string {
		return fmt.Sprintf("%s (%.1f to %.1f)", percent(i.Value), 100*i.Low, 100*i.High)
	}
	t := report.Table{Header: []string{"", "FLOWS", strings.Join(features, ","), strings.Join(e.Against, ","), "DIFFERENCE", "VERDICT"}}
	for _, c := range e.Contrasts {
		verdict := "undecided"
		switch {
		case c.Difference.Low > 0:
			verdict = "better"
		case c.Difference.High < 0:
			verdict = "worse"
		}
		t.Add(c.Name, fmt.Sprint(c.Flows), of(c.A), of(c.B), of(c.Difference), verdict)
	}
	return t.WriteText(w)
}

// printGroups lists where most levels are wrong.
func printGroups(w io.Writer, groups []train.GroupScore) error {
	fmt.Fprintln(w, "\nGroups with the most wrong levels at the first packet:")
	t := report.Table{Header: []string{"GROUP", "FLOWS", "TYPE", "LEVEL"}}
	for _, g := range groups[:min(10, len(groups))] {
		t.Add(g.Group, fmt.Sprint(g.Count), percent(g.Accuracy), percent(g.QoSAccuracy))
	}
	return t.WriteText(w)
}
