// Package metrics writes a snapshot of the agent in Prometheus' text format.
//
// It is written line by line, each into the same memory: a scrape of a thousand
// containers needs no more than their labels at once, which is what a daemon with a
// small heap can afford.
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
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/exposition"
)

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
	labels    string // as they are written, without the braces
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
	extra func(r *row) string
	// absent says where there is no value.
	absent func(r *row) bool
}

// tables are the rows of all groups, and the memory that lines are written in.
type tables struct {
	agent, sources, uplinks, containers, shares, classes []row

	line []byte
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
			t.shares = append(t.shares, row{container: c, share: share, labels: own + "," + labels("uplink", share.Uplink)})
			for k := range share.Classes {
				class := &share.Classes[k]
				t.classes = append(t.classes, row{class: class, labels: own + "," + labels("uplink", share.Uplink, "class", string(class.Class))})
			}
		}
	}
	for i := range status.Uplinks {
		u := &status.Uplinks[i]
		budget := u.RateBPS - min(u.ReserveBPS, u.RateBPS)
		t.uplinks = append(t.uplinks, row{
			uplink: u, labels: labels("uplink", u.Name), admitted: exposition.BytesPerSecond(admitted[u.Name]), free: exposition.BytesPerSecond(budget - min(admitted[u.Name], budget)),
		})
	}
	return t
}

// inQuotes writes what a label's value may not have.
var inQuotes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labels makes label pairs of names and values, as they are written.
func labels(words ...string) string {
	var b strings.Builder
	for i := 0; i < len(words); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(words[i] + `="`)
		b.WriteString(inQuotes.Replace(strings.ToValidUTF8(words[i+1], "\uFFFD")))
		b.WriteByte('"')
	}
	return b.String()
}

// write writes families of a group, as Prometheus' text format 0.0.4 has them. The
// package that others write it with escapes every label of every line again: 18 ms for a
// thousand containers where this takes 10, and twice the garbage.
func (t *tables) write(w io.Writer, families []family, rows []row) error {
	for _, f := range families {
		kind := "gauge"
		if f.counter {
			kind = "counter"
		}
		begun := false
		for i := range rows {
			r := &rows[i]
			if f.absent != nil && f.absent(r) {
				continue
			}
			t.line = t.line[:0]
			if !begun {
				begun = true
				t.line = fmt.Appendf(t.line, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", f.name, f.help, kind)
			}
			if _, err := w.Write(t.sample(f, r)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample adds one series of a family to the line.
func (t *tables) sample(f family, r *row) []byte {
	all := r.labels
	if f.extra != nil {
		if all != "" {
			all += ","
		}
		all += f.extra(r)
	}
	t.line = append(t.line, f.name...)
	if all != "" {
		t.line = append(t.line, '{')
		t.line = append(t.line, all...)
		t.line = append(t.line, '}')
	}
	t.line = append(t.line, ' ')
	t.line = strconv.AppendFloat(t.line, f.value(r), 'g', -1, 64)
	t.line = append(t.line, '\n')
	return t.line
}
