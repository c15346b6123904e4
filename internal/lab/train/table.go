package train

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-project/weir/internal/apps/flow"
)

// ReadTable reads a CSV table of flows with column names in the first line. Columns may be
// in any order; unknown ones are ignored. proto and dst_port are required, and app_type
// with a value from types if labelled is set. Other absent, empty or NaN values are missing
// values. NaN in proto, dst_port or cap_rank and out-of-range numbers are errors.
func ReadTable(r io.Reader, types []string, labelled bool) ([]*flow.Flow, error) {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	head, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("read table of flows: it is empty: the first line names the columns")
	}
	if err != nil {
		return nil, fmt.Errorf("read table of flows: %w", err)
	}
	t, err := newTable(head, types, labelled)
	if err != nil {
		return nil, err
	}
	var flows []*flow.Flow
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return flows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read table of flows: %w", err)
		}
		line, _ := reader.FieldPos(0)
		f, err := t.flow(record)
		if err != nil {
			return nil, fmt.Errorf("read table of flows: line %d: %w", line, err)
		}
		f.Line = line
		flows = append(flows, f)
	}
}

// table holds the position of each column; -1 means absent.
type table struct {
	numbers                               [flow.NumColumns]int
	origin, group, capture, appType, rank int
	types                                 []string
}

func newTable(head, types []string, labelled bool) (*table, error) {
	head = slices.Clone(head)
	for i := range head {
		head[i] = strings.TrimSpace(strings.TrimPrefix(head[i], "\ufeff"))
		if slices.Contains(head[:i], head[i]) && head[i] != "" {
			return nil, fmt.Errorf("read table of flows: line 1: two columns are called %s", head[i])
		}
	}
	at := func(name string) int { return slices.Index(head, name) }
	t := &table{
		origin: at("origin"), group: at("group"), capture: at("capture"),
		appType: at("app_type"), rank: at("cap_rank"), types: types,
	}
	var missing []string
	for i, c := range columns {
		if t.numbers[i] = at(c.name); c.required && t.numbers[i] < 0 {
			missing = append(missing, c.name)
		}
	}
	if labelled && t.appType < 0 {
		missing = append(missing, "app_type")
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("read table of flows: line 1: no column %s: docs/classifier.md lists the columns",
			strings.Join(missing, ", "))
	}
	return t, nil
}

func text(record []string, i int) string {
	if i < 0 {
		return ""
	}
	return strings.Clone(record[i])
}

func (t *table) flow(record []string) (*flow.Flow, error) {
	f := flow.New()
	for i, c := range columns {
		v, err := number(text(record, t.numbers[i]), c)
		if err != nil {
			return nil, err
		}
		f.Values[i] = v
	}
	f.Origin, f.Group, f.Capture = text(record, t.origin), text(record, t.group), text(record, t.capture)
	if f.Type = text(record, t.appType); t.appType >= 0 && !slices.Contains(t.types, f.Type) {
		return nil, fmt.Errorf("app_type: %q is none of %s", f.Type, strings.Join(t.types, ", "))
	}
	if s := text(record, t.rank); s != "" {
		rank, err := strconv.Atoi(s)
		if err != nil || rank < 0 {
			return nil, fmt.Errorf("cap_rank: %q is not a whole number from 0", s)
		}
		f.Rank = rank
	}
	return f, nil
}

func number(s string, c column) (float64, error) {
	v := math.NaN()
	if s = strings.TrimSpace(s); s != "" {
		var err error
		if v, err = strconv.ParseFloat(s, 64); err != nil {
			return 0, fmt.Errorf("%s: %q is not a number", c.name, s)
		}
	}
	switch {
	case math.IsNaN(v) && c.required:
		return 0, fmt.Errorf("%s: it is missing: a flow needs it", c.name)
	case math.IsNaN(v):
		return v, nil
	case v != math.Trunc(v):
		return 0, fmt.Errorf("%s: %q is not a whole number", c.name, s)
	case v < c.min || v > c.max:
		return 0, fmt.Errorf("%s: %s is not within %.0f and %.0f", c.name, s, c.min, c.max)
	}
	return v, nil
}
