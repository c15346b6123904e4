// Package metrics writes a snapshot of the agent in Prometheus' text format.
//
// It is written family by family, each into the same memory: a scrape of a
// thousand containers needs no more than one family of them at once, which is
// what a daemon with a small heap can afford.
//
// Rates are bytes per second here, Prometheus' base unit; everywhere else in Weir
// they are bits per second.
//
// Labels are bounded by what runs: container, runtime and uplink; neither IDs nor
// reasons, which would leave a new series behind with every container that was
// ever started.
package metrics

import (
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	v1 "github.com/weir-project/weir/api/v1"
)

// ContentType is that of what Write writes.
const ContentType = string(expfmt.FmtText)

// Write writes all metrics of a snapshot.
func Write(w io.Writer, s v1.Snapshot) error {
	t := newTables(s)
	for _, group := range []struct {
		families []family
		rows     []row
	}{
		{agentFamilies, t.agent}, {sourceFamilies, t.sources}, {uplinkFamilies, t.uplinks},
		{containerFamilies, t.containers}, {shareFamilies, t.shares}, {classFamilies, t.classes},
	} {
		if err := t.write(w, group.families, group.rows); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	if err := writeTurns(w, s.Status.Turns); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// writeTurns writes the one histogram; nothing for an agent that has not begun.
func writeTurns(w io.Writer, turns v1.Turns) error {
	if turns.Count == 0 {
		return nil
	}
	buckets := make([]*dto.Bucket, len(turns.Buckets))
	for i := range turns.Buckets {
		b := &turns.Buckets[i]
		buckets[i] = &dto.Bucket{UpperBound: &b.UpToSeconds, CumulativeCount: &b.Count}
	}
	name, help, kind := "weir_agent_turn_interval_seconds", "How long after one another the control loop looked at who is sending.", dto.MetricType_HISTOGRAM
	_, err := expfmt.MetricFamilyToText(w, &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{
		{Histogram: &dto.Histogram{SampleCount: &turns.Count, SampleSum: &turns.SumSeconds, Bucket: buckets}},
	}})
	return err
}

// row is what one series of each family of a group is about.
type row struct {
	labels    []*dto.LabelPair
	status    *v1.Status
	source    *v1.Source
	uplink    *v1.Uplink
	free      float64 // of the uplink, for minimums
	admitted  float64
	container *v1.Container
	share     *v1.Share
	class     *v1.ClassShare
}

// family is one metric.
type family struct {
	name, help string
	counter    bool
	value      func(r *row) float64
	// extra are labels that only this one has.
	extra func(r *row) []*dto.LabelPair
	// absent says where there is no value.
	absent func(r *row) bool
}

// tables are the rows of all groups, and the memory that families are written from.
type tables struct {
	agent, sources, uplinks, containers, shares, classes []row

	metrics  []*dto.Metric
	gauges   []dto.Gauge
	counters []dto.Counter
	values   []float64
	store    []dto.Metric
}

func newTables(s v1.Snapshot) *tables {
	status := &s.Status
	t := &tables{agent: []row{{status: status}}}
	for i := range status.Sources {
		source := &status.Sources[i]
		t.sources = append(t.sources, row{source: source, labels: labels("source", source.Name)})
	}
	admitted := map[string]uint64{}
	seen := map[[2]string]bool{}
	for i := range s.Containers {
		c := &s.Containers[i]
		for j := range c.Shares {
			admitted[c.Shares[j].Uplink] += c.Shares[j].AdmittedBPS
		}
		// Of two with the same labels, only one can be told.
		key := [2]string{c.Runtime, c.Name}
		if seen[key] {
			continue
		}
		seen[key] = true
		own := labels("container", c.Name, "runtime", c.Runtime)
		t.containers = append(t.containers, row{container: c, labels: own})
		for j := range c.Shares {
			share := &c.Shares[j]
			t.shares = append(t.shares, row{container: c, share: share, labels: append(own[:2:2], labels("uplink", share.Uplink)...)})
			for k := range share.Classes {
				class := &share.Classes[k]
				t.classes = append(t.classes, row{class: class, labels: append(own[:2:2], labels("uplink", share.Uplink, "class", string(class.Class))...)})
			}
		}
	}
	for i := range status.Uplinks {
		u := &status.Uplinks[i]
		budget := u.RateBPS - min(u.ReserveBPS, u.RateBPS)
		t.uplinks = append(t.uplinks, row{
			uplink: u, labels: labels("uplink", u.Name), admitted: bytesPerSecond(admitted[u.Name]), free: bytesPerSecond(budget - min(admitted[u.Name], budget)),
		})
	}
	return t
}

// labels makes label pairs of names and values.
func labels(words ...string) []*dto.LabelPair {
	pairs := make([]*dto.LabelPair, 0, len(words)/2)
	for i := 0; i < len(words); i += 2 {
		value := strings.ToValidUTF8(words[i+1], "\uFFFD")
		pairs = append(pairs, &dto.LabelPair{Name: &words[i], Value: &value})
	}
	return pairs
}

func (t *tables) write(w io.Writer, families []family, rows []row) error {
	if len(t.store) < len(rows) {
		t.store = make([]dto.Metric, len(rows))
		t.gauges = make([]dto.Gauge, len(rows))
		t.counters = make([]dto.Counter, len(rows))
		t.values = make([]float64, len(rows))
	}
	gauge, counter := dto.MetricType_GAUGE, dto.MetricType_COUNTER
	for _, f := range families {
		t.metrics = t.metrics[:0]
		for i := range rows {
			r := &rows[i]
			if f.absent != nil && f.absent(r) {
				continue
			}
			m := &t.store[i]
			t.values[i] = f.value(r)
			m.Label, m.Gauge, m.Counter = r.labels, nil, nil
			if f.extra != nil {
				m.Label = slices.Concat(r.labels, f.extra(r))
			}
			if f.counter {
				t.counters[i].Value = &t.values[i]
				m.Counter = &t.counters[i]
			} else {
				t.gauges[i].Value = &t.values[i]
				m.Gauge = &t.gauges[i]
			}
			t.metrics = append(t.metrics, m)
		}
		if len(t.metrics) == 0 {
			continue
		}
		kind := &gauge
		if f.counter {
			kind = &counter
		}
		if _, err := expfmt.MetricFamilyToText(w, &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: kind, Metric: t.metrics}); err != nil {
			return err
		}
	}
	return nil
}

// bytesPerSecond is a rate in bits per second in bytes per second.
func bytesPerSecond(bps uint64) float64 { return float64(bps) / 8 }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
