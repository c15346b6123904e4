package apps

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps/c45"
	"github.com/weir-project/weir/internal/apps/flow"
)

func trained(t testing.TB) *Model {
	t.Helper()
	m, err := Train(generated(1, 200), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scores of a model on captures it never saw.
func scores(t *testing.T, m *Model, flows []*flow.Flow) [2]Scores {
	t.Helper()
	judged, err := m.Judge(flows)
	if err != nil {
		t.Fatal(err)
	}
	return [2]Scores{Score(judged, 0, m.Levels), Score(judged, 1, m.Levels)}
}

func TestSizesTellWhatPortsDoNot(t *testing.T) {
	s := scores(t, trained(t), generated(2, 100))
	if s[0].QoSAccuracy < 0.88 || s[0].QoSAccuracy > 0.99 {
		t.Errorf("level at the first packet: %.3f, want all but half of the flows on unknown ports", s[0].QoSAccuracy)
	}
	if s[1].QoSAccuracy < 0.99 || s[1].Accuracy < 0.99 {
		t.Errorf("second stage: type %.3f, level %.3f", s[1].Accuracy, s[1].QoSAccuracy)
	}
}

func TestTheShippedClassifier(t *testing.T) {
	m, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
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

// TestRealFlows holds the targets on captures that were not trained on, where
// WEIR_FLOWS names the table of flows (or a folder with flows-mixed-train.csv.gz).
// The least values are what docs/classifier.md says, less what chance moves.
func TestRealFlows(t *testing.T) {
	path := os.Getenv("WEIR_FLOWS")
	if path == "" {
		t.Skip("WEIR_FLOWS is not set: a table of real flows, which are no part of Weir")
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "flows-mixed-train.csv.gz")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	flows, err := flow.ReadTable(unzipped, Types, true)
	if err != nil {
		t.Fatal(err)
	}
	judged, err := CrossValidate(flows, DefaultOptions(), 10, true, 1, DefaultLevels(), 0)
	if err != nil {
		t.Fatal(err)
	}
	first, second := Score(judged, 0, DefaultLevels()), Score(judged, 1, DefaultLevels())
	t.Logf("first packet: type %.4f, level %.4f; second stage: type %.4f, level %.4f",
		first.Accuracy, first.QoSAccuracy, second.Accuracy, second.QoSAccuracy)
	if first.Accuracy < 0.80 || first.QoSAccuracy < 0.88 || second.Accuracy < 0.80 || second.QoSAccuracy < 0.90 {
		t.Errorf("first packet %.4f %.4f, second stage %.4f %.4f: want 0.80 0.88, 0.80 0.90",
			first.Accuracy, first.QoSAccuracy, second.Accuracy, second.QoSAccuracy)
	}
}

// TestTheKernelSaysTheSame walks the binary form as a BPF program does, after a
// round trip, and compares with the trees.
func TestTheKernelSaysTheSame(t *testing.T) {
	for name, m := range map[string]*Model{"trained": trained(t), "shipped": must(Shipped())} {
		compact, err := m.Compact()
		if err != nil {
			t.Fatal(err)
		}
		data, err := compact.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var read Compact
		if err := read.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*compact, read) {
			t.Fatalf("%s: it changed on its way through bytes", name)
		}
		all, ports := flow.Features(Types), flow.KnownPorts(Types)
		for _, f := range generated(3, 100) {
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
				want, got := m.Verdict(stage, f), read.Verdict(stage, word)
				if got.Type != want.Type || got.Level != want.Level || math.Abs(got.LevelConfidence-want.LevelConfidence) > 1e-4 {
					t.Fatalf("%s, stage %d, line %d: the nodes say %+v, the trees %+v", name, stage+1, f.Line, got, want)
				}
			}
		}
	}
}

func must(m *Model, err error) *Model {
	if err != nil {
		panic(err)
	}
	return m
}

func TestModelsSurviveJSON(t *testing.T) {
	m := trained(t)
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
	for _, f := range generated(4, 50) {
		for stage := range 2 {
			a, b := m.Verdict(stage, f), read.Verdict(stage, f)
			if a.Type != b.Type || a.Level != b.Level || math.Abs(a.TypeConfidence-b.TypeConfidence) > 1e-3 {
				t.Fatalf("stage %d: %+v became %+v", stage+1, a, b)
			}
		}
	}
}

func TestLittleConfidenceIsBestEffort(t *testing.T) {
	m := trained(t)
	f := flow.New()
	f.Values[flow.Proto], f.Values[flow.DstPort], f.Values[flow.SrcPort], f.Values[flow.SYN] = flow.UDP, 41234, 51000, 0
	sure := m.Verdict(0, f)
	m.MinConfidence = sure.LevelConfidence + 0.01
	if v := m.Verdict(0, f); v.Level != BE || !v.Abstained || v.Type != sure.Type {
		t.Errorf("%+v with at least %.2f", v, m.MinConfidence)
	}
}

func TestMissingColumnsAreMissingValues(t *testing.T) {
	m := trained(t)
	flows := without(without(generated(5, 50), flow.SrcPort), flow.SYN)
	if s := scores(t, m, flows); s[0].Accuracy < 0.75 {
		t.Errorf("accuracy %.3f without the initiator's port", s[0].Accuracy)
	}
	for i := range 12 {
		flows = without(flows, flow.SeqLen1+i)
	}
	if s := scores(t, m, flows); s[1].Accuracy < 0.5 {
		t.Errorf("second stage without sizes: %.3f", s[1].Accuracy)
	}
}

func TestFoldsKeepGroupsTogether(t *testing.T) {
	flows := generated(6, 100)
	of := map[string]int{}
	for i, part := range Folds(flows, 5, true, 1) {
		if before, ok := of[flows[i].Group]; ok && before != part {
			t.Fatalf("%s is in parts %d and %d", flows[i].Group, before, part)
		}
		of[flows[i].Group] = part
	}
	split := 0
	byFlow := Folds(flows, 5, false, 1)
	for i := 1; i < len(flows); i++ {
		if flows[i].Group == flows[i-1].Group && byFlow[i] != byFlow[i-1] {
			split++
		}
	}
	if split == 0 {
		t.Error("parted flow by flow, no group was split")
	}
	if _, err := CrossValidate(generated(7, 2), DefaultOptions(), 9, true, 1, DefaultLevels(), 0); err == nil || !strings.Contains(err.Error(), "fewer --folds") {
		t.Errorf("nine parts of two groups: %v", err)
	}
	judged, err := CrossValidate(flows, DefaultOptions(), 4, true, 1, DefaultLevels(), 0)
	if err != nil || len(judged) != len(flows) {
		t.Errorf("%d of %d flows judged, %v", len(judged), len(flows), err)
	}
}

func TestScores(t *testing.T) {
	at := func(name string) int { i, _ := TypeIndex(name); return i }
	levels := DefaultLevels()
	judge := func(truth, verdict string, bytes, confidence float64, group string) Judged {
		f := flow.New()
		f.Group, f.Values[flow.BytesClient], f.Values[flow.BytesServer] = group, bytes, 0
		v := Verdict{Type: at(verdict), Level: levels[at(verdict)], LevelConfidence: confidence}
		return Judged{Flow: f, Type: at(truth), Verdicts: [2]Verdict{v, v}}
	}
	s := Score([]Judged{
		judge("WEB", "WEB", 700, 0.9, "a"), judge("WEB", "MULTIMEDIA", 100, 0.9, "a"),
		judge("VOIP", "WEB", 100, 0.5, "b"), judge("BULK", "BULK", 100, 0.9, "b"),
	}, 0, levels)
	for name, c := range map[string]struct{ got, want float64 }{
		"accuracy": {s.Accuracy, 0.5}, "level": {s.QoSAccuracy, 0.75},
		"accuracy by bytes": {s.ByBytes.Accuracy, 0.8}, "level by bytes": {s.ByBytes.QoSAccuracy, 0.9},
		"recall of WEB": {s.Classes["WEB"].Recall, 0.5}, "precision of WEB": {s.Classes["WEB"].Precision, 0.5},
		"macro F1": {s.MacroF1, (0.5 + 0 + 1) / 3}, "recall of EF": {s.Levels["EF"].Recall, 0},
		"covered from 0.55": {s.Coverage[3].Covered, 0.75}, "level from 0.55": {s.Coverage[3].QoSAccuracy, 1},
		"confusion":   {float64(s.Confusion.Rows[at("VOIP")][at("WEB")]), 1},
		"worst group": {s.Groups[0].QoSAccuracy, 0.5},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if s.Groups[0].Group != "b" || s.Classes["WEB"].Count != 2 {
		t.Errorf("%+v", s)
	}
}

func TestRulesAndDrawing(t *testing.T) {
	m := trained(t)
	var rules bytes.Buffer
	if err := m.Explain(&rules, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Stage 1, tree 1 of 1", "service = EMAIL: EMAIL, BE 1.00 ("} {
		if !strings.Contains(rules.String(), want) {
			t.Errorf("no %q in:\n%s", want, rules.String())
		}
	}
	var svg bytes.Buffer
	if err := m.Draw(&svg, 1, 7); err != nil {
		t.Fatal(err)
	}
	texts := 0
	for decoder := xml.NewDecoder(&svg); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			texts++
		}
	}
	if texts < 10 {
		t.Errorf("%d words drawn", texts)
	}
	if err := m.Draw(&svg, 0, 1); err == nil {
		t.Error("a tree that is not there was drawn")
	}
}

func TestTrainRefuses(t *testing.T) {
	flows := generated(1, 20)
	for name, c := range map[string]struct {
		change func(*Options, []*flow.Flow)
		want   string
	}{
		"late feature": {func(o *Options, _ []*flow.Flow) { o.First.Features = []string{"sizes"} }, "not known at the first packet"},
		"no feature":   {func(o *Options, _ []*flow.Flow) { o.First.Features = []string{"colour"} }, `"colour" is neither a feature nor a set`},
		"no features":  {func(o *Options, _ []*flow.Flow) { o.Second.Features = nil }, "none is named"},
		"unknown type": {func(_ *Options, f []*flow.Flow) { f[3].Type = "RADIO" }, `flow of line 5: "RADIO" is none of VOIP`},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := DefaultOptions(), generated(1, 20)
			c.change(&o, f)
			if _, err := Train(f, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Train(nil, DefaultOptions()); err == nil {
		t.Error("no flows were enough")
	}
	if got := len(Kept(flows, 2)); got != 40 {
		t.Errorf("%d flows of rank 2 at most", got)
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
func deep(n int) *c45.Node {
	if n == 0 {
		return &c45.Node{Attribute: -1, Weights: []float64{0, 0, 0, 0, 0, 1, 0, 0, 0, 0}}
	}
	return &c45.Node{Attribute: 0, At: float64(n), Weights: make([]float64, NumTypes), Branches: []*c45.Node{deep(0), deep(n - 1)}}
}

func TestBrokenModels(t *testing.T) {
	m := trained(t)
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
