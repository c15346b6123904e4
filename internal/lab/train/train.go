package train

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// StageOptions are the training parameters of one stage.
type StageOptions struct {
	Features []string // names of features or feature sets of package flow
	C45      TreeOptions
	// Trees is the number of voting trees; 1 is a plain C4.5 tree of all flows. With more,
	// each tree is grown from a bootstrap sample of groups, drawn by a generator that
	// starts from Seed.
	Trees int
	Seed  uint64
	// GroupExponent weights a flow by (flows of its group and type)^-GroupExponent: 0
	// counts flows equally, 1 counts groups equally.
	GroupExponent float64
}

// Options are the training parameters of a classifier.
type Options struct {
	First, Second StageOptions
	MaxRank       int // flows of a higher rank are excluded; 0 means no limit
}

// DefaultOptions returns the parameters of the built-in classifier.
func DefaultOptions() Options {
	first, second := TreeDefaults(), TreeDefaults()
	first.MaxDepth, second.MaxDepth = 12, 12
	first.MinLeaf, second.MinLeaf = 20, 5
	return Options{
		First:   StageOptions{Features: []string{"services"}, C45: first, Trees: 1},
		Second:  StageOptions{Features: []string{"sizes", "turns", "largest"}, C45: second, Trees: 8, Seed: 1, GroupExponent: 0.3},
		MaxRank: 30,
	}
}

// Kept returns the flows with rank at most maxRank, or all if maxRank is 0.
func Kept(flows []*flow.Flow, maxRank int) []*flow.Flow {
	var out []*flow.Flow
	for _, f := range flows {
		if maxRank == 0 || f.Rank <= maxRank {
			out = append(out, f)
		}
	}
	return out
}

// Train grows a classifier from labelled flows.
func Train(flows []*flow.Flow, opts Options) (*apps.Model, error) {
	flows = Kept(flows, opts.MaxRank)
	if len(flows) == 0 {
		return nil, errors.New("train classifier: there are no flows")
	}
	m := &apps.Model{Levels: apps.DefaultLevels()}
	for i, stage := range []StageOptions{opts.First, opts.Second} {
		trained, err := trainStage(flows, stage)
		if err != nil {
			return nil, fmt.Errorf("train stage %d: %w", i+1, err)
		}
		m.Stages[i] = *trained
	}
	for _, f := range m.Stages[0].Features {
		if f.Late {
			return nil, fmt.Errorf("train stage 1: %s is not known at the first packet: leave it to stage 2", f.Name)
		}
	}
	return m, m.Check()
}

func trainStage(flows []*flow.Flow, opts StageOptions) (*apps.Stage, error) {
	features, err := flow.Select(opts.Features, apps.Types)
	if err != nil {
		return nil, err
	}
	set, err := trainingSet(flows, features, opts.GroupExponent)
	if err != nil {
		return nil, err
	}
	stage := &apps.Stage{Features: features}
	if opts.Trees <= 1 {
		tree, err := Grow(set, opts.C45)
		if err != nil {
			return nil, err
		}
		stage.Trees = []*apps.Node{tree}
		return stage, nil
	}
	random := rand.New(rand.NewPCG(opts.Seed, 0))
	for range opts.Trees {
		tree, err := Grow(drawGroups(set, flows, random), opts.C45)
		if err != nil {
			return nil, err
		}
		stage.Trees = append(stage.Trees, tree)
	}
	return stage, nil
}

// trainingSet returns the training set for
func trainingSet(flows []*flow.Flow, features []flow.Feature, exponent float64) (*Set, error) {
	set := &Set{Classes: apps.NumTypes}
	for _, f := range features {
		set.Attributes = append(set.Attributes, Attribute{Name: f.Name, Values: f.Values})
	}
	type of struct{ group, appType string }
	counts := map[of]float64{}
	for _, f := range flows {
		counts[of{f.Group, f.Type}]++
	}
	ports := flow.KnownPorts(apps.Types)
	for _, f := range flows {
		class, err := typeIndex(f.Type)
		if err != nil {
			return nil, fmt.Errorf("flow of line %d: %w", f.Line, err)
		}
		set.Rows = append(set.Rows, Row{
			Values: flow.Values(f, features, ports), Class: class,
			Weight: math.Pow(counts[of{f.Group, f.Type}], -exponent),
		})
	}
	return set, nil
}

// drawGroups returns a bootstrap sample of groups: a group drawn twice has twice its
// weight. Single flows are not drawn, because flows of a group are so similar that every
// tree would see all groups.
func drawGroups(set *Set, flows []*flow.Flow, random *rand.Rand) *Set {
	var names []string
	members := map[string][]int{}
	for i, f := range flows {
		if members[f.Group] == nil {
			names = append(names, f.Group)
		}
		members[f.Group] = append(members[f.Group], i)
	}
	times := make([]float64, len(flows))
	for range names {
		for _, i := range members[names[random.IntN(len(names))]] {
			times[i]++
		}
	}
	drawn := &Set{Attributes: set.Attributes, Classes: set.Classes}
	for i, row := range set.Rows {
		if times[i] > 0 {
			row.Weight *= times[i]
			drawn.Rows = append(drawn.Rows, row)
		}
	}
	return drawn
}

// typeIndex returns the index of a type's name.
func typeIndex(name string) (int, error) {
	if i := slices.Index(apps.Types, name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%q is none of %s", name, strings.Join(apps.Types, ", "))
}
