package train

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

func trained(t testing.TB) *apps.Model {
	t.Helper()
	m, err := Train(generated(1, 200), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scores of a model on captures it never saw.
func scores(t *testing.T, m *apps.Model, flows []*flow.Flow) [2]Scores {
	t.Helper()
	judged, err := Judge(m, flows)
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
	flows, err := ReadTable(unzipped, apps.Types, true)
	if err != nil {
		t.Fatal(err)
	}
	var ways [][]Judged // to make the folds
	for seed := range uint64(5) {
		judged, err := CrossValidate(flows, DefaultOptions(), 10, true, seed+1, apps.DefaultLevels(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ways = append(ways, judged)
	}
	checkKept(t, ways)
	judged := ways[0]
	first, second := Score(judged, 0, apps.DefaultLevels()), Score(judged, 1, apps.DefaultLevels())
	t.Logf("first packet: type %.4f, level %.4f; second stage: type %.4f, level %.4f",
		first.Accuracy, first.QoSAccuracy, second.Accuracy, second.QoSAccuracy)
	if first.Accuracy < 0.80 || first.QoSAccuracy < 0.88 || second.Accuracy < 0.80 || second.QoSAccuracy < 0.90 {
		t.Errorf("first packet %.4f %.4f, second stage %.4f %.4f: want 0.80 0.88, 0.80 0.90",
			first.Accuracy, first.QoSAccuracy, second.Accuracy, second.QoSAccuracy)
	}
	asPaper := DefaultOptions()
	asPaper.First.Features, asPaper.First.C45 = []string{"paper"}, TreeDefaults()
	asPaper.First.C45.MaxDepth = DefaultOptions().First.C45.MaxDepth
	paper, err := CrossValidate(flows, asPaper, 10, true, 1, apps.DefaultLevels(), 0)
	if err != nil {
		t.Fatal(err)
	}
	contrasts, err := Compare(judged, paper, 0, apps.DefaultLevels(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contrasts[:2] {
		if t.Logf("%s, less the paper's features: %+v", c.Name, c.Difference); c.Difference.Low <= 0 {
			t.Errorf("%s: the paper's features are not worse: %+v", c.Name, c)
		}
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
	if _, err := CrossValidate(generated(7, 2), DefaultOptions(), 9, true, 1, apps.DefaultLevels(), 0); err == nil || !strings.Contains(err.Error(), "fewer --folds") {
		t.Errorf("nine parts of two groups: %v", err)
	}
	judged, err := CrossValidate(flows, DefaultOptions(), 4, true, 1, apps.DefaultLevels(), 0)
	if err != nil || len(judged) != len(flows) {
		t.Errorf("%d of %d flows judged, %v", len(judged), len(flows), err)
	}
}

func TestScores(t *testing.T) {
	at := func(name string) int { i, _ := typeIndex(name); return i }
	levels := apps.DefaultLevels()
	judge := func(truth, verdict string, bytes, confidence float64, group string) Judged {
		f := flow.New()
		f.Group, f.Values[flow.BytesClient], f.Values[flow.BytesServer] = group, bytes, 0
		v := apps.Verdict{Type: at(verdict), Level: levels[at(verdict)], LevelConfidence: confidence}
		return Judged{Flow: f, Type: at(truth), Verdicts: [2]apps.Verdict{v, v}}
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
	if err := Explain(&rules, m, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Stage 1, tree 1 of 1", "service = EMAIL: EMAIL, BE 1.00 ("} {
		if !strings.Contains(rules.String(), want) {
			t.Errorf("no %q in:\n%s", want, rules.String())
		}
	}
	var svg bytes.Buffer
	if err := Draw(&svg, m, 1, 7); err != nil {
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
	if err := Draw(&svg, m, 0, 1); err == nil {
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
