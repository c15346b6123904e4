// Package metrics writes a snapshot of the agent in Prometheus' text format.
//
// A scrape of a thousand containers keeps only their labels in memory, each made once, and writes
// line by line, because the agent's heap is small.
//
// Rates are in bytes per second here, Prometheus' base unit; everywhere else in Weir they are in
// bits per second.
//
// Labels are limited to container, runtime and uplink, and a pod's namespace and name. IDs or reasons
// would leave a new series behind with every container that was ever started.
package metrics

import (
	"io"
	"strconv"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/exposition"
	"github.com/weir-project/weir/internal/share/explain"
)

// Write writes all metrics of a snapshot.
func Write(w io.Writer, s v1.Snapshot) error {
	t := newTables(s)
	out := exposition.NewWriter(w)
	for _, group := range []struct {
		families []family
		rows     []row
	}{
		{agentFamilies, t.agent}, {sourceFamilies, t.sources}, {uplinkFamilies, t.uplinks},
		{containerFamilies, t.containers}, {shareFamilies, t.shares}, {classFamilies, t.classes},
		{incomingFamilies, newTables(explain.Incoming(s)).shares},
	} {
		writeGroup(out, group.families, group.rows)
	}
	writeTurns(out, s.Status.Turns)
	return out.Err()
}

// writeTurns writes the histogram of the control loop, once the loop runs.
func writeTurns(out *exposition.Writer, turns v1.Turns) {
	if turns.Count == 0 {
		return
	}
	const name = "weir_agent_turn_interval_seconds"
	out.Head(name, "Time between two turns of the control loop.", "histogram")
	for _, b := range turns.Buckets {
		out.Sample(name+"_bucket", exposition.Labels("le", strconv.FormatFloat(b.UpToSeconds, 'g', -1, 64)), float64(b.Count))
	}
	out.Sample(name+"_bucket", exposition.Labels("le", "+Inf"), float64(turns.Count))
	out.Sample(name+"_sum", "", turns.SumSeconds)
	out.Sample(name+"_count", "", float64(turns.Count))
}

// row holds the values of one labelled object in a group of families.
type row struct {
	labels    string // as exposition.Labels returns them
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
	// extra returns labels of this family alone.
	extra func(r *row) string
	// absent reports whether a row has no value.
	absent func(r *row) bool
}

// tables holds the rows of all groups.
type tables struct{ agent, sources, uplinks, containers, shares, classes []row }

func newTables(s v1.Snapshot) *tables {
	status := &s.Status
	t := &tables{agent: []row{{status: status}}}
	for i := range status.Sources {
		source := &status.Sources[i]
		t.sources = append(t.sources, row{source: source, labels: exposition.Labels("source", source.Name)})
	}
	admitted := map[string]uint64{}
	seen := map[[2]string]bool{}
	for i := range s.Containers {
		c := &s.Containers[i]
		for j := range c.Shares {
			admitted[c.Shares[j].Uplink] += c.Shares[j].AdmittedBPS
		}
		// Two series of a family may not have the same labels.
		key := [2]string{c.Runtime, c.Name}
		if seen[key] {
			continue
		}
		seen[key] = true
		own := exposition.Labels("container", c.Name, "runtime", c.Runtime)
		if namespace, pod, is := strings.Cut(c.Name, "/"); is && c.Runtime == v1.RuntimeKubernetes {
			own += "," + exposition.Labels("namespace", namespace, "pod", pod)
		}
		t.containers = append(t.containers, row{container: c, labels: own})
		for j := range c.Shares {
			share := &c.Shares[j]
			t.shares = append(t.shares, row{container: c, share: share, labels: own + "," + exposition.Labels("uplink", share.Uplink)})
			for k := range share.Classes {
				class := &share.Classes[k]
				t.classes = append(t.classes, row{class: class, labels: own + "," + exposition.Labels("uplink", share.Uplink, "class", string(class.Class))})
			}
		}
	}
	for i := range status.Uplinks {
		u := &status.Uplinks[i]
		budget := u.RateBPS - min(u.ReserveBPS, u.RateBPS)
		t.uplinks = append(t.uplinks, row{
			uplink: u, labels: exposition.Labels("uplink", u.Name), admitted: exposition.BytesPerSecond(admitted[u.Name]), free: exposition.BytesPerSecond(budget - min(admitted[u.Name], budget)),
		})
	}
	return t
}

// writeGroup writes the families of a group.
func writeGroup(out *exposition.Writer, families []family, rows []row) {
	for _, f := range families {
		begun := false
		for i := range rows {
			r := &rows[i]
			if f.absent != nil && f.absent(r) {
				continue
			}
			if !begun {
				begun = true
				out.Head(f.name, f.help, exposition.Kind(f.counter))
			}
			labels := r.labels
			if f.extra != nil {
				labels = strings.TrimPrefix(labels+","+f.extra(r), ",")
			}
			out.Sample(f.name, labels, f.value(r))
		}
	}
}
