package appid

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weir-project/weir/internal/appid/c45"
	"github.com/weir-project/weir/internal/appid/flow"
)

// StageOptions are how one stage is trained.
type StageOptions struct {
	Features []string // of package flow, or names of sets
	C45      c45.Options
	// Trees is how many trees vote; 1 is a plain C4.5 tree of all flows. Of
	// several, each is grown from as many groups as there are, drawn with
	// repetition, by a generator that starts from Seed.
	Trees int
	Seed  uint64
	// GroupExponent weighs a flow by (flows of its group and type)^-GroupExponent:
	// 0 counts flows, 1 counts groups.
	GroupExponent float64
}

// Options are how a classifier is trained.
type Options struct {
	First, Second StageOptions
	MaxRank       int // flows of a higher rank are left out; 0 takes all
}

// DefaultOptions are what the shipped classifier was trained with.
func DefaultOptions() Options {
	first, second := c45.Defaults(), c45.Defaults()
	first.MaxDepth, second.MaxDepth = 12, 12
	first.MinLeaf, second.MinLeaf = 20, 5
	return Options{
		First:   StageOptions{Features: []string{"services"}, C45: first, Trees: 1},
		Second:  StageOptions{Features: []string{"sizes", "turns", "largest"}, C45: second, Trees: 8, Seed: 1, GroupExponent: 0.3},
		MaxRank: 30,
	}
}

// Kept are the flows whose rank is not above maxRank, or all if it is 0.
func Kept(flows []*flow.Flow, maxRank int) []*flow.Flow {
	var out []*flow.Flow
	for _, f := range flows {
		if maxRank == 0 || f.Rank <= maxRank {
			out = append(out, f)
		}
	}
	return out
}

// Train makes a classifier from labelled flows.
func Train(flows []*flow.Flow, opts Options) (*Model, error) {
	flows = Kept(flows, opts.MaxRank)
	if len(flows) == 0 {
		return nil, errors.New("train classifier: there are no flows")
	}
	m := &Model{Levels: DefaultLevels()}
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

func trainStage(flows []*flow.Flow, opts StageOptions) (*Stage, error) {
	features, err := flow.Select(opts.Features, Types)
	if err != nil {
		return nil, err
	}
	set, err := trainingSet(flows, features, opts.GroupExponent)
	if err != nil {
		return nil, err
	}
	stage := &Stage{Features: features}
	if opts.Trees <= 1 {
		tree, err := c45.Grow(set, opts.C45)
		if err != nil {
			return nil, err
		}
		stage.Trees = []*c45.Node{tree}
		return stage, nil
	}
	random := rand.New(rand.NewPCG(opts.Seed, 0))
	for range opts.Trees {
		tree, err := c45.Grow(drawGroups(set, flows, random), opts.C45)
		if err != nil {
			return nil, err
		}
		stage.Trees = append(stage.Trees, tree)
	}
	return stage, nil
}

// trainingSet is what c45 learns from.
func trainingSet(flows []*flow.Flow, features []flow.Feature, exponent float64) (*c45.Set, error) {
	set := &c45.Set{Classes: NumTypes}
	for _, f := range features {
		set.Attributes = append(set.Attributes, c45.Attribute{Name: f.Name, Values: f.Values})
	}
	type of struct{ group, appType string }
	counts := map[of]float64{}
	for _, f := range flows {
		counts[of{f.Group, f.Type}]++
	}
	ports := flow.KnownPorts(Types)
	for _, f := range flows {
		class, err := TypeIndex(f.Type)
		if err != nil {
			return nil, fmt.Errorf("flow of line %d: %w", f.Line, err)
		}
		set.Rows = append(set.Rows, c45.Row{
			Values: values(f, features, ports), Class: class,
			Weight: math.Pow(counts[of{f.Group, f.Type}], -exponent),
		})
	}
	return set, nil
}

func values(f *flow.Flow, features []flow.Feature, ports *flow.Ports) []float64 {
	out := make([]float64, len(features))
	for i := range features {
		out[i] = features[i].Of(f, ports)
	}
	return out
}

// drawGroups is a set of as many groups, drawn with repetition: a flow drawn
// twice has twice its weight. Flows are not drawn one by one, since those of a
// group are alike and a tree would be grown from all of them after all.
func drawGroups(set *c45.Set, flows []*flow.Flow, random *rand.Rand) *c45.Set {
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
	drawn := &c45.Set{Attributes: set.Attributes, Classes: set.Classes}
	for i, row := range set.Rows {
		if times[i] > 0 {
			row.Weight *= times[i]
			drawn.Rows = append(drawn.Rows, row)
		}
	}
	return drawn
}
