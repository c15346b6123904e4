package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/lab/train"
)

func newClassifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classify",
		Short: "Train, test and read the classifier of applications",
		Long: `Train, test and read the classifier that tells which kind of application sends a
flow (docs/classifier.md). FILE is a table of flows (CSV) or a capture (pcap or
pcapng), either may be gzipped; - is standard input.

The application types and their levels are VOIP, GAME, SERVICES and CHAT (EF),
MULTIMEDIA, WEB and INTERACTIVE (AF), EMAIL, BULK and P2P (BE).`,
		Args: cmdline.ExactArgs("a command (train, eval, explain or label)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cmdline.Usagef("%q is no command of %s: there are train, eval, explain and label", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(
		newClassifyTrainCommand(),
		newClassifyEvalCommand(),
		newClassifyExplainCommand(),
		newClassifyLabelCommand(),
	)
	return cmd
}

// classifierFlags choose a classifier and what its verdicts mean.
type classifierFlags struct {
	tree       string
	levels     []string
	confidence float64
	cmd        *cobra.Command
}

func addClassifierFlags(cmd *cobra.Command) *classifierFlags {
	f := &classifierFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.tree, "tree", "", "classifier, as 'weir classify train' writes it (default: the one that weir comes with)")
	addVerdictFlags(cmd, f)
	return f
}

func addVerdictFlags(cmd *cobra.Command, f *classifierFlags) {
	f.cmd = cmd
	cmd.Flags().StringArrayVar(&f.levels, "level", nil, "TYPE=LEVEL, such as P2P=AF: another level for an application type (repeatable)")
	cmd.Flags().Float64Var(&f.confidence, "min-confidence", 0, "a level less certain than this (0 to 1) is BE (default: what the classifier says)")
}

// apply sets what the user wants to be different in a classifier.
func (f *classifierFlags) apply(m *apps.Model) error {
	if err := m.Levels.Override(f.levels); err != nil {
		return cmdline.Usagef("%w", err)
	}
	if f.cmd.Flags().Changed("min-confidence") {
		if f.confidence < 0 || f.confidence > 1 {
			return cmdline.Usagef("--min-confidence %v: want 0 to 1", f.confidence)
		}
		m.MinConfidence = f.confidence
	}
	return nil
}

func (f *classifierFlags) load() (*apps.Model, error) {
	m, err := config.LoadClassifier(f.tree)
	if err != nil {
		return nil, err
	}
	return m, f.apply(m)
}

// trainFlags are how classifiers are trained.
type trainFlags struct {
	opts train.Options
}

func addTrainFlags(cmd *cobra.Command) *trainFlags {
	t := &trainFlags{opts: train.DefaultOptions()}
	sets := strings.Join(slices.Sorted(mapKeys(flow.FeatureSets())), ", ")
	first, second := &t.opts.First, &t.opts.Second
	flags := cmd.Flags()
	flags.StringSliceVar(&first.Features, "features", first.Features, "features of the first packet: names or the sets "+sets)
	flags.StringSliceVar(&second.Features, "late-features", second.Features, "features of the second stage")
	flags.IntVar(&first.Trees, "trees", first.Trees, "trees of the first stage that vote")
	flags.IntVar(&second.Trees, "late-trees", second.Trees, "trees of the second stage that vote")
	flags.Float64Var(&first.C45.MinLeaf, "min-leaf", first.C45.MinLeaf, "flows that two branches of a test must have")
	flags.Float64Var(&second.C45.MinLeaf, "late-min-leaf", second.C45.MinLeaf, "the same, in the second stage")
	flags.Float64Var(&first.C45.Confidence, "prune", first.C45.Confidence, "confidence of pruning, less prunes more; 0 does not prune")
	flags.IntVar(&first.C45.MaxDepth, "max-depth", first.C45.MaxDepth, "tests on a path, at most")
	flags.Float64Var(&second.GroupExponent, "late-group-exponent", second.GroupExponent, "0: the second stage's flows count alike, 1: the groups do")
	flags.Uint64Var(&second.Seed, "seed", second.Seed, "where the drawing of groups begins")
	flags.IntVar(&t.opts.MaxRank, "max-rank", t.opts.MaxRank, "train with flows of at most this cap_rank; 0: all")
	return t
}

func (t *trainFlags) options() (train.Options, error) {
	o := t.opts
	o.Second.C45.Confidence, o.Second.C45.MaxDepth, o.First.Seed = o.First.C45.Confidence, o.First.C45.MaxDepth, o.Second.Seed
	switch {
	case o.First.C45.Confidence < 0 || o.First.C45.Confidence > 0.5:
		return o, cmdline.Usagef("--prune %v: want 0 to 0.5", o.First.C45.Confidence)
	case o.First.C45.MinLeaf <= 0 || o.Second.C45.MinLeaf <= 0:
		return o, cmdline.Usagef("--min-leaf and --late-min-leaf: want more than 0")
	case o.First.C45.MaxDepth < 1 || o.First.C45.MaxDepth > apps.MaxDepth:
		return o, cmdline.Usagef("--max-depth %d: want 1 to %d", o.First.C45.MaxDepth, apps.MaxDepth)
	case o.First.Trees < 1 || o.First.Trees > apps.MaxTrees || o.Second.Trees < 1 || o.Second.Trees > apps.MaxTrees:
		return o, cmdline.Usagef("--trees and --late-trees: want 1 to %d", apps.MaxTrees)
	case o.MaxRank < 0:
		return o, cmdline.Usagef("--max-rank %d: want 0 or more", o.MaxRank)
	}
	return o, nil
}

func newClassifyTrainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train FILE... --out MODEL",
		Short: "Train a classifier from a labelled table of flows",
		Long: `Train a classifier from labelled tables of flows. The first stage sees the first
packet, the second the sizes of the first six packets with payload. What comes
out is a file for --tree of the other commands.`,
		Example: "weir classify train flows.csv.gz --out classifier.json\nweir classify train flows.csv.gz --out plain.json --features dst --min-leaf 2",
		Args:    atLeastOne("FILE"),
	}
	training, verdict := addTrainFlags(cmd), &classifierFlags{}
	addVerdictFlags(cmd, verdict)
	out := cmd.Flags().String("out", "", "write the classifier to this file (JSON)")
	note := cmd.Flags().String("data", "", "what the flows are, for the classifier's card")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *out == "" {
			return cmdline.Usagef("--out is missing: %s", cmd.UseLine())
		}
		opts, err := training.options()
		if err != nil {
			return err
		}
		flows, err := readFlows(cmd.InOrStdin(), args, true)
		if err != nil {
			return err
		}
		m, err := train.Train(flows, opts)
		if err != nil {
			return err
		}
		if err := verdict.apply(m); err != nil {
			return err
		}
		groups := map[string]bool{}
		kept := train.Kept(flows, opts.MaxRank)
		for _, f := range kept {
			groups[f.Group] = true
		}
		m.Card = apps.Card{Data: *note, Flows: len(kept), Groups: len(groups)}
		compact, err := m.Compact()
		if err != nil {
			return err
		}
		if err := writeFile(*out, m.Write); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d flows of %d groups, %d nodes for the kernel\n", *out, len(kept), len(groups), len(compact.Nodes))
		return nil
	}
	return cmd
}

// atLeastOne checks that a command has one argument or more.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || slices.Contains(args, "") {
			return cmdline.Usagef("%s is missing: %s", name, cmd.UseLine())
		}
		return nil
	}
}
