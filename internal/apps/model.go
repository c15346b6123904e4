package apps

import (
	"errors"
	"fmt"

	"github.com/weir-project/weir/internal/apps/flow"
)

// Stage is one step of classification: trees that vote.
type Stage struct {
	Features []flow.Feature
	Trees    []*Node
}

// Model is a classifier with two stages: for the first packet, and for the sizes of the
// first packets.
type Model struct {
	Stages [2]Stage
	Levels Levels
	// MinConfidence is the smallest confidence in a level; flows below it are BE.
	MinConfidence float64
	// Card documents the training data and parameters.
	Card Card
}

// Card documents a classifier.
type Card struct {
	Data    string `json:"data,omitempty"`
	Command string `json:"command,omitempty"`
	Flows   int    `json:"flows,omitempty"`
	Groups  int    `json:"groups,omitempty"`
}

// Verdict is the result of a stage for a flow.
type Verdict struct {
	Type  int
	Level Level
	// TypeConfidence and LevelConfidence are from 0 to 1.
	TypeConfidence, LevelConfidence float64
	// Abstained says that the level is BE for lack of confidence.
	Abstained bool
}

// Check returns an error if a model is invalid.
func (m *Model) Check() error {
	for i, stage := range m.Stages {
		if len(stage.Trees) == 0 {
			return fmt.Errorf("check classifier: stage %d has no trees", i+1)
		}
		if len(stage.Features) == 0 {
			return fmt.Errorf("check classifier: stage %d has no features", i+1)
		}
		for j, tree := range stage.Trees {
			if err := checkTree(tree, stage.Features, 0); err != nil {
				return fmt.Errorf("check classifier: stage %d, tree %d: %w", i+1, j+1, err)
			}
		}
	}
	if !(m.MinConfidence >= 0 && m.MinConfidence <= 1) {
		return fmt.Errorf("check classifier: the least confidence is %v: want 0 to 1", m.MinConfidence)
	}
	for i, l := range m.Levels {
		if l >= NumLevels {
			return fmt.Errorf("check classifier: %s has %v", Types[i], l)
		}
	}
	return nil
}

func checkTree(n *Node, features []flow.Feature, depth int) error {
	if n == nil {
		return errors.New("a node is missing")
	}
	if depth > MaxDepth {
		return fmt.Errorf("it is deeper than %d tests: train with a smaller --max-depth", MaxDepth)
	}
	if len(n.Weights) != NumTypes {
		return fmt.Errorf("a node has weights of %d types, want %d", len(n.Weights), NumTypes)
	}
	for _, w := range n.Weights {
		if !(w >= 0 && w < 1e12) {
			return fmt.Errorf("a node has weight %v", w)
		}
	}
	if n.Leaf() {
		return nil
	}
	if n.Attribute >= len(features) {
		return fmt.Errorf("a node tests feature %d of %d", n.Attribute, len(features))
	}
	want := 2
	if n.Nominal {
		want = len(features[n.Attribute].Values)
	}
	if n.Nominal != (len(features[n.Attribute].Values) > 0) || len(n.Branches) != want {
		return fmt.Errorf("a test of %s has %d branches, want %d", features[n.Attribute].Name, len(n.Branches), want)
	}
	for _, b := range n.Branches {
		if err := checkTree(b, features, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Verdict returns the verdict of stage 0 or 1 for a flow.
func (m *Model) Verdict(stage int, f *flow.Flow) Verdict {
	s := &m.Stages[stage]
	v := flow.Values(f, s.Features, flow.KnownPorts(Types))
	var votes votes
	for _, tree := range s.Trees {
		votes.add(m.Answer(tree.Predict(v)))
	}
	return votes.verdict(m.MinConfidence)
}

// Answer returns the likeliest type and class by one tree's probabilities p of the types. Unlike
// Verdict, it never abstains.
func (m *Model) Answer(p []float64) Verdict {
	var out Verdict
	var levels [NumLevels]float64
	for t, q := range p {
		levels[m.Levels[t]] += q
		if q > p[out.Type] {
			out.Type = t
		}
	}
	out.TypeConfidence = p[out.Type]
	for l, q := range levels {
		if q > levels[out.Level] {
			out.Level = Level(l)
		}
	}
	out.LevelConfidence = levels[out.Level]
	return out
}

// votes sums the answers of a stage's trees, weighted by confidence.
type votes struct {
	types  [NumTypes]float64
	levels [NumLevels]float64
	n      float64
}

func (v *votes) add(a Verdict) {
	v.types[a.Type] += a.TypeConfidence
	v.levels[a.Level] += a.LevelConfidence
	v.n++
}

func (v *votes) verdict(least float64) Verdict {
	var out Verdict
	for t, w := range v.types {
		if w > v.types[out.Type] {
			out.Type = t
		}
	}
	for l, w := range v.levels {
		if w > v.levels[out.Level] {
			out.Level = Level(l)
		}
	}
	out.TypeConfidence = v.types[out.Type] / v.n
	out.LevelConfidence = v.levels[out.Level] / v.n
	if out.LevelConfidence < least {
		out.Level, out.Abstained = BE, true
	}
	return out
}
