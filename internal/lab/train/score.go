package train

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
)

// Judged is a labelled flow with the verdicts of both stages.
type Judged struct {
	Flow     *flow.Flow
	Type     int
	Verdicts [2]apps.Verdict
}

// Scores measure the verdicts of one stage; all rates are from 0 to 1.
type Scores struct {
	Flows       int                   `json:"flows"`
	Accuracy    float64               `json:"accuracy"`     // fraction with the right application type
	QoSAccuracy float64               `json:"qos_accuracy"` // fraction with the right level
	MacroF1     float64               `json:"macro_f1"`     // mean F1 score of the types that occur
	ByBytes     ByBytes               `json:"weighted_by_bytes"`
	Classes     map[string]ClassScore `json:"classes"`
	Levels      map[string]ClassScore `json:"levels"`
	// Confusion counts flows by true type (row) and verdict (column), in the order of
	// Types.
	Confusion Confusion    `json:"confusion"`
	Coverage  []Coverage   `json:"coverage"`
	Groups    []GroupScore `json:"groups"`
}

// ByBytes are accuracies weighted by payload bytes.
type ByBytes struct {
	Accuracy    float64 `json:"accuracy"`
	QoSAccuracy float64 `json:"qos_accuracy"`
}

// ClassScore is precision, recall and F1 of one type or level.
type ClassScore struct {
	Recall    float64 `json:"recall"`
	Precision float64 `json:"precision"`
	F1        float64 `json:"f1"`
	Count     int     `json:"count"`
}

// Confusion is a confusion matrix.
type Confusion struct {
	Types []string `json:"types"`
	Rows  [][]int  `json:"rows"`
}

// Coverage is the result of dropping verdicts below a confidence.
type Coverage struct {
	Confidence  float64 `json:"confidence"`
	Covered     float64 `json:"covered"` // fraction of flows with a verdict
	Accuracy    float64 `json:"accuracy"`
	QoSAccuracy float64 `json:"qos_accuracy"`
}

// GroupScore is the accuracy within one group of flows.
type GroupScore struct {
	Group       string  `json:"group"`
	Count       int     `json:"count"`
	Accuracy    float64 `json:"accuracy"`
	QoSAccuracy float64 `json:"qos_accuracy"`
}

// ratio returns a / b, or 0 if both are 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Score computes the scores of stage 0 or 1 with the given levels of types.
func Score(judged []Judged, stage int, levels apps.Levels) Scores {
	s := Scores{Flows: len(judged), Classes: map[string]ClassScore{}, Levels: map[string]ClassScore{}}
	types, byLevel := make([][]int, apps.NumTypes), make([][]int, apps.NumLevels)
	for i := range types {
		types[i] = make([]int, apps.NumTypes)
	}
	for i := range byLevel {
		byLevel[i] = make([]int, apps.NumLevels)
	}
	var right, rightLevel, bytes, rightBytes, rightLevelBytes float64
	for _, j := range judged {
		v := j.Verdicts[stage]
		types[j.Type][v.Type]++
		byLevel[levels[j.Type]][v.Level]++
		b := j.Flow.Bytes()
		bytes += b
		if v.Type == j.Type {
			right++
			rightBytes += b
		}
		if v.Level == levels[j.Type] {
			rightLevel++
			rightLevelBytes += b
		}
	}
	n := float64(len(judged))
	s.Accuracy, s.QoSAccuracy = ratio(right, n), ratio(rightLevel, n)
	s.ByBytes = ByBytes{ratio(rightBytes, bytes), ratio(rightLevelBytes, bytes)}
	s.Confusion = Confusion{Types: apps.Types, Rows: types}
	f1, occurring := 0.0, 0.0
	for t, c := range classScores(types) {
		s.Classes[apps.Types[t]] = c
		if c.Count > 0 {
			f1 += c.F1
			occurring++
		}
	}
	s.MacroF1 = ratio(f1, occurring)
	for l, c := range classScores(byLevel) {
		s.Levels[apps.Level(l).String()] = c
	}
	s.Coverage = coverage(judged, stage, levels)
	s.Groups = groupScores(judged, stage, levels)
	return s
}

func classScores(confusion [][]int) []ClassScore {
	out := make([]ClassScore, len(confusion))
	for c := range confusion {
		said := 0
		for truth := range confusion {
			said += confusion[truth][c]
			out[c].Count += confusion[c][truth]
		}
		hit := float64(confusion[c][c])
		out[c].Recall, out[c].Precision = ratio(hit, float64(out[c].Count)), ratio(hit, float64(said))
		out[c].F1 = ratio(2*out[c].Recall*out[c].Precision, out[c].Recall+out[c].Precision)
	}
	return out
}

func coverage(judged []Judged, stage int, levels apps.Levels) []Coverage {
	var out []Coverage
	for percent := 40; percent <= 100; percent += 5 {
		c := Coverage{Confidence: float64(percent) / 100}
		var n, right, rightLevel float64
		for _, j := range judged {
			v := j.Verdicts[stage]
			if v.LevelConfidence < c.Confidence {
				continue
			}
			n++
			if v.Type == j.Type {
				right++
			}
			if v.Level == levels[j.Type] {
				rightLevel++
			}
		}
		c.Covered, c.Accuracy, c.QoSAccuracy = ratio(n, float64(len(judged))), ratio(right, n), ratio(rightLevel, n)
		out = append(out, c)
	}
	return out
}

// groupScores returns the scores of all groups, those with most errors first.
func groupScores(judged []Judged, stage int, levels apps.Levels) []GroupScore {
	at := map[string]int{}
	var out []GroupScore
	for _, j := range judged {
		i, ok := at[j.Flow.Group]
		if !ok {
			i = len(out)
			at[j.Flow.Group] = i
			out = append(out, GroupScore{Group: j.Flow.Group})
		}
		out[i].Count++
		if j.Verdicts[stage].Type == j.Type {
			out[i].Accuracy++
		}
		if j.Verdicts[stage].Level == levels[j.Type] {
			out[i].QoSAccuracy++
		}
	}
	slices.SortStableFunc(out, func(a, b GroupScore) int {
		return cmp.Or(cmp.Compare(float64(b.Count)-b.QoSAccuracy, float64(a.Count)-a.QoSAccuracy), cmp.Compare(a.Group, b.Group))
	})
	for i := range out {
		n := float64(out[i].Count)
		out[i].Accuracy = math.Round(out[i].Accuracy/n*1e4) / 1e4
		out[i].QoSAccuracy = math.Round(out[i].QoSAccuracy/n*1e4) / 1e4
	}
	return out
}
