package apps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/weir-project/weir/internal/apps/flow"
)

// modelFormat is the version of the file format. It grows when older programs can no longer
// read a model.
const modelFormat = 1

type modelJSON struct {
	Format        int               `json:"format"`
	Card          Card              `json:"card"`
	Types         []string          `json:"types"`
	Levels        map[string]string `json:"levels"`
	MinConfidence float64           `json:"min_confidence"`
	Stages        []stageJSON       `json:"stages"`
}

type stageJSON struct {
	Features []string    `json:"features"`
	Trees    []*nodeJSON `json:"trees"`
}

// nodeJSON is a leaf with the training weight of each type, or a test of a feature. With
// At, values up to At take the first of two branches; without At there is a branch per
// value.
type nodeJSON struct {
	Feature  string      `json:"feature,omitempty"`
	At       *float64    `json:"at,omitempty"`
	Branches []*nodeJSON `json:"branches,omitempty"`
	Weights  []float64   `json:"weights,omitempty"`
}

// Write writes the model as JSON.
func (m *Model) Write(w io.Writer) error {
	out := modelJSON{
		Format: modelFormat, Card: m.Card, Types: Types,
		Levels: map[string]string{}, MinConfidence: m.MinConfidence,
	}
	for t, level := range m.Levels {
		out.Levels[Types[t]] = level.String()
	}
	for _, s := range m.Stages {
		stage := stageJSON{}
		for _, f := range s.Features {
			stage.Features = append(stage.Features, f.Name)
		}
		for _, tree := range s.Trees {
			stage.Trees = append(stage.Trees, toJSON(tree, s.Features))
		}
		out.Stages = append(out.Stages, stage)
	}
	encoder := json.NewEncoder(w)
	if err := encoder.Encode(out); err != nil {
		return fmt.Errorf("write classifier: %w", err)
	}
	return nil
}

func toJSON(n *Node, features []flow.Feature) *nodeJSON {
	if n.Leaf() {
		out := &nodeJSON{}
		for _, w := range n.Weights {
			out.Weights = append(out.Weights, math.Round(w*1e4)/1e4)
		}
		return out
	}
	out := &nodeJSON{Feature: features[n.Attribute].Name}
	if !n.Nominal {
		out.At = &n.At
	}
	for _, b := range n.Branches {
		out.Branches = append(out.Branches, toJSON(b, features))
	}
	return out
}

// Read reads and checks a model in the format of Write.
func Read(r io.Reader) (*Model, error) {
	var in modelJSON
	decoder := json.NewDecoder(r)
	switch err := decoder.Decode(&in); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("read classifier: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read classifier: %w: is it a file that weir classify train wrote?", err)
	}
	if in.Format != modelFormat {
		return nil, fmt.Errorf("read classifier: its format is %d, this weir reads %d: train it again", in.Format, modelFormat)
	}
	if len(in.Types) != NumTypes {
		return nil, fmt.Errorf("read classifier: it has %d application types, want %d", len(in.Types), NumTypes)
	}
	for i, t := range in.Types {
		if t != Types[i] {
			return nil, fmt.Errorf("read classifier: application type %d is %q, want %s", i+1, t, Types[i])
		}
	}
	m := &Model{Card: in.Card, MinConfidence: in.MinConfidence, Levels: DefaultLevels()}
	for name, level := range in.Levels {
		if err := m.Levels.Override([]string{name + "=" + level}); err != nil {
			return nil, fmt.Errorf("read classifier: %w", err)
		}
	}
	if len(in.Stages) != len(m.Stages) {
		return nil, fmt.Errorf("read classifier: it has %d stages, want %d", len(in.Stages), len(m.Stages))
	}
	for i, s := range in.Stages {
		stage, err := s.stage()
		if err != nil {
			return nil, fmt.Errorf("read classifier: stage %d: %w", i+1, err)
		}
		m.Stages[i] = *stage
	}
	return m, m.Check()
}

func (s stageJSON) stage() (*Stage, error) {
	features, err := flow.Select(s.Features, Types)
	if err != nil {
		return nil, err
	}
	stage := &Stage{Features: features}
	for i, tree := range s.Trees {
		n, err := fromJSON(tree, features, 0)
		if err != nil {
			return nil, fmt.Errorf("tree %d: %w", i+1, err)
		}
		stage.Trees = append(stage.Trees, n)
	}
	return stage, nil
}

func fromJSON(in *nodeJSON, features []flow.Feature, depth int) (*Node, error) {
	if in == nil {
		return nil, errors.New("a node is missing")
	}
	if depth > MaxDepth {
		return nil, fmt.Errorf("it is deeper than %d tests: train with a smaller --max-depth", MaxDepth)
	}
	if in.Feature == "" {
		if len(in.Weights) != NumTypes || len(in.Branches) > 0 {
			return nil, fmt.Errorf("a leaf has %d weights and %d branches, want %d and none", len(in.Weights), len(in.Branches), NumTypes)
		}
		return &Node{Attribute: -1, Weights: in.Weights}, nil
	}
	n := &Node{Attribute: -1, Nominal: in.At == nil, Weights: make([]float64, NumTypes)}
	for i := range features {
		if features[i].Name == in.Feature {
			n.Attribute = i
		}
	}
	if n.Attribute < 0 {
		return nil, fmt.Errorf("a node tests %q, which is not among the stage's features", in.Feature)
	}
	if in.At != nil {
		n.At = *in.At
	}
	for _, b := range in.Branches {
		branch, err := fromJSON(b, features, depth+1)
		if err != nil {
			return nil, err
		}
		for t, w := range branch.Weights {
			n.Weights[t] += w
		}
		n.Branches = append(n.Branches, branch)
	}
	return n, nil
}
