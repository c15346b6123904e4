package apps

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/test/must"
)

// builtIn is the built-in classifier.
func builtIn(t testing.TB) *Model {
	t.Helper()
	m, err := Shipped()
	must.Succeed(t, err)
	return m
}

// randomModel is a classifier of random trees over all features.
func randomModel(seed uint64) *Model {
	random := rand.New(rand.NewPCG(seed, 5))
	m := &Model{Levels: DefaultLevels(), MinConfidence: 0.3}
	for i := range m.Stages {
		s := &m.Stages[i]
		for _, f := range flow.Features(Types) {
			if i > 0 || !f.Late {
				s.Features = append(s.Features, f)
			}
		}
		for range 3 {
			s.Trees = append(s.Trees, randomTree(random, s.Features, 6))
		}
	}
	return m
}

func randomTree(random *rand.Rand, features []flow.Feature, depth int) *Node {
	n := &Node{Attribute: -1, Weights: make([]float64, NumTypes)}
	if depth == 0 || random.IntN(4) == 0 {
		for t := range n.Weights {
			n.Weights[t] = float64(random.IntN(9))
		}
		return n
	}
	n.Attribute = random.IntN(len(features))
	branches := 2
	if values := len(features[n.Attribute].Values); values > 0 {
		n.Nominal, branches = true, values
	} else {
		n.At = float64(random.IntN(1 << random.IntN(17)))
	}
	for range branches {
		b := randomTree(random, features, depth-1)
		n.Branches = append(n.Branches, b)
		for t, w := range b.Weights {
			n.Weights[t] += w
		}
	}
	return n
}

// randomFlows are n flows of random values, all known.
func randomFlows(seed uint64, n int) []*flow.Flow {
	random := rand.New(rand.NewPCG(seed, 3))
	out := make([]*flow.Flow, n)
	for i := range out {
		f := flow.New()
		f.Values[flow.Proto], f.Values[flow.SYN] = []float64{flow.TCP, flow.UDP}[random.IntN(2)], float64(random.IntN(2))
		for c := range f.Values {
			switch {
			case c == flow.Proto || c == flow.SYN:
			case c >= flow.SeqLen1 && c < flow.PktsClient && (c-flow.SeqLen1)%2 == 0:
				f.Values[c] = float64(random.IntN(3000) - 1500)
			default:
				f.Values[c] = float64(random.IntN(1 << random.IntN(9)))
			}
		}
		f.Values[flow.SrcPort], f.Values[flow.DstPort] = float64(random.IntN(1<<16)), float64(random.IntN(1<<random.IntN(17)))
		out[i] = f
	}
	return out
}

func TestTheShippedClassifier(t *testing.T) {
	m := builtIn(t)
	for _, c := range []struct {
		proto, port int
		want        string
		level       Level
	}{
		{flow.UDP, 53, "SERVICES", EF}, {flow.TCP, 443, "WEB", AF}, {flow.TCP, 25, "EMAIL", BE},
		{flow.UDP, 5060, "VOIP", EF}, {flow.TCP, 445, "BULK", BE}, {flow.TCP, 22, "INTERACTIVE", AF},
	} {
		f := flow.New()
		f.Values[flow.Proto], f.Values[flow.DstPort], f.Values[flow.SrcPort], f.Values[flow.SYN] = float64(c.proto), float64(c.port), 51000, 0
		v := m.Verdict(0, f)
		if Types[v.Type] != c.want || v.Level != c.level {
			t.Errorf("proto %d, port %d: %s %s, want %s %s", c.proto, c.port, Types[v.Type], v.Level, c.want, c.level)
		}
	}
	if m.Card.Flows == 0 || m.Card.Data == "" {
		t.Errorf("card %+v", m.Card)
	}
}

// TestTheKernelSaysTheSame walks the compact form as a BPF program does and compares with
// the trees, of the built-in classifier and of random ones.
func TestTheKernelSaysTheSame(t *testing.T) {
	for seed := range uint64(4) {
		m := builtIn(t)
		if seed > 0 {
			m = randomModel(seed)
		}
		compact, err := m.Compact()
		must.Succeed(t, err)
		all, ports := flow.Features(Types), flow.KnownPorts(Types)
		for _, f := range randomFlows(seed, 400) {
			for stage := range 2 {
				word := func(code uint8) uint32 {
					for i := range all {
						if all[i].Code == code {
							return all[i].Word(all[i].Of(f, ports))
						}
					}
					t.Fatalf("no feature has the code %d", code)
					return 0
				}
				want, got := m.Verdict(stage, f), compact.Verdict(stage, word)
				if got.Type != want.Type || got.Level != want.Level || math.Abs(got.LevelConfidence-want.LevelConfidence) > 1e-4 {
					t.Fatalf("seed %d, stage %d, %v: the nodes say %+v, the trees %+v", seed, stage+1, f.Values, got, want)
				}
			}
		}
	}
}

func TestModelsSurviveJSON(t *testing.T) {
	m := builtIn(t)
	m.MinConfidence = 0.6
	if err := m.Levels.Override([]string{"p2p=af"}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range randomFlows(4, 200) {
		for stage := range 2 {
			a, b := m.Verdict(stage, f), read.Verdict(stage, f)
			if a.Type != b.Type || a.Level != b.Level || math.Abs(a.TypeConfidence-b.TypeConfidence) > 1e-3 {
				t.Fatalf("stage %d: %+v became %+v", stage+1, a, b)
			}
		}
	}
}

func TestLittleConfidenceIsBestEffort(t *testing.T) {
	m := builtIn(t)
	f := flow.New()
	f.Values[flow.Proto], f.Values[flow.DstPort], f.Values[flow.SrcPort], f.Values[flow.SYN] = flow.UDP, 41234, 51000, 0
	sure := m.Verdict(0, f)
	m.MinConfidence = sure.LevelConfidence + 0.01
	if v := m.Verdict(0, f); v.Level != BE || !v.Abstained || v.Type != sure.Type {
		t.Errorf("%+v with at least %.2f", v, m.MinConfidence)
	}
}

func TestLevels(t *testing.T) {
	l := DefaultLevels()
	if err := l.Override([]string{"web=ef", "VOIP=BE"}); err != nil || l[5] != EF || l[0] != BE {
		t.Errorf("%v, %v", l, err)
	}
	for _, bad := range []string{"web", "radio=EF", "web=XX"} {
		if err := l.Override([]string{bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if got := Level(7).String(); got != "level 7" {
		t.Error(got)
	}
}

// deep is a tree with n tests on a path.
func deep(n int) *Node {
	if n == 0 {
		return &Node{Attribute: -1, Weights: []float64{0, 0, 0, 0, 0, 1, 0, 0, 0, 0}}
	}
	return &Node{Attribute: 0, At: float64(n), Weights: make([]float64, NumTypes), Branches: []*Node{deep(0), deep(n - 1)}}
}

func TestBrokenModels(t *testing.T) {
	m := builtIn(t)
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"format":     {func(m map[string]any) { m["format"] = 9 }, "its format is 9, this weir reads 1"},
		"types":      {func(m map[string]any) { m["types"] = []string{"WEB"} }, "it has 1 application types"},
		"order":      {func(m map[string]any) { m["types"].([]any)[0] = "WEB" }, `application type 1 is "WEB", want VOIP`},
		"level":      {func(m map[string]any) { m["levels"] = map[string]string{"WEB": "X"} }, `"X" is none of EF`},
		"stages":     {func(m map[string]any) { m["stages"] = []any{} }, "it has 0 stages"},
		"feature":    {func(m map[string]any) { stage(m)["features"] = []string{"colour"} }, "colour"},
		"no trees":   {func(m map[string]any) { stage(m)["trees"] = []any{} }, "stage 1 has no trees"},
		"no node":    {func(m map[string]any) { stage(m)["trees"] = []any{nil} }, "a node is missing"},
		"leaf":       {func(m map[string]any) { stage(m)["trees"] = []any{map[string]any{"weights": []int{1}}} }, "a leaf has 1 weights"},
		"test":       {func(m map[string]any) { stage(m)["trees"] = []any{map[string]any{"feature": "ttl_c2s"}} }, `a node tests "ttl_c2s"`},
		"branches":   {func(m map[string]any) { stage(m)["trees"] = []any{map[string]any{"feature": "proto", "at": 6}} }, "proto has 0 branches, want 2"},
		"confidence": {func(m map[string]any) { m["min_confidence"] = 2 }, "the least confidence is 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var raw map[string]any
			if err := json.Unmarshal(b.Bytes(), &raw); err != nil {
				t.Fatal(err)
			}
			c.change(raw)
			data, err := json.Marshal(raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Read(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Read(strings.NewReader(b.String()[:100])); err == nil {
		t.Error("half a file was read")
	}
	for want, tree := range map[string]*Node{
		"a node is missing": nil, "weights of 1 types": {Attribute: -1, Weights: []float64{1}},
		"weight -1":        {Attribute: -1, Weights: []float64{-1, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		"tests feature 99": {Attribute: 99, Weights: make([]float64, NumTypes)},
	} {
		m.Stages[1].Trees[0] = tree
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	m = builtIn(t)
	m.Levels[0] = 7
	if err := m.Check(); err == nil {
		t.Error("level 7 is accepted")
	}
	m = builtIn(t)
	m.Stages[0].Trees[0] = deep(MaxDepth + 1)
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "deeper than 32 tests") {
		t.Errorf("too deep: %v", err)
	}
	b.Reset()
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&b); err == nil || !strings.Contains(err.Error(), "deeper than 32 tests") {
		t.Errorf("too deep as JSON: %v", err)
	}
}

func stage(m map[string]any) map[string]any { return m["stages"].([]any)[0].(map[string]any) }

// FuzzModel: whatever is accepted gives verdicts.
func FuzzModel(f *testing.F) {
	f.Add([]byte(`{"format":1}`))
	var b bytes.Buffer
	if err := builtIn(f).Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	flows := randomFlows(9, 8)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, fl := range flows {
			m.Verdict(0, fl)
			m.Verdict(1, fl)
		}
		if c, err := m.Compact(); err == nil {
			for stage := range c.Roots {
				tests := 0
				c.Verdict(stage, func(uint8) uint32 { tests++; return 7 })
				if tests > MaxTrees*MaxDepth {
					t.Fatalf("%d tests", tests)
				}
			}
		}
	})
}

// TestMissingValuesTakeAllBranches averages over branches by their training weight.
func TestMissingValuesTakeAllBranches(t *testing.T) {
	leaf := func(class int, weight float64) *Node {
		n := &Node{Attribute: -1, Weights: make([]float64, 2)}
		n.Weights[class] = weight
		return n
	}
	n := &Node{Attribute: 0, At: 5, Weights: []float64{3, 1}, Branches: []*Node{leaf(0, 3), leaf(1, 1)}}
	if p := n.Predict([]float64{math.NaN()}); p[0] != 0.75 || p[1] != 0.25 {
		t.Errorf("probabilities %v, want 0.75 and 0.25", p)
	}
	n.Branches[0] = leaf(0, 0) // no training flow came here
	if p := n.Predict([]float64{1}); p[0] != 0.75 {
		t.Errorf("an empty branch says %v, want its parent's 0.75", p)
	}
}
