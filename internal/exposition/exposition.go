// Package exposition writes metrics in Prometheus' text exposition format: those of
// weir-edge and of the OpenFlow controller. The agent, which may have thousands of series,
// writes its lines itself (internal/metrics), with this package's units and content type.
package exposition

import (
	"fmt"
	"io"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// ContentType is that of what Write writes.
const ContentType = string(expfmt.FmtText)

// Family is one metric, a gauge if it is no counter.
type Family struct {
	Name, Help string
	Counter    bool

	series []*dto.Metric
}

// Add adds a value, with labels: names and values by turns. What is not UTF-8 in a value,
// which others may have chosen, is replaced.
func (f *Family) Add(value float64, labels ...string) {
	m := &dto.Metric{}
	for i := 0; i < len(labels); i += 2 {
		text := strings.ToValidUTF8(labels[i+1], "\uFFFD")
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &text})
	}
	if f.Counter {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	f.series = append(f.series, m)
}

// Write writes families, but for those without a value.
func Write(w io.Writer, families ...Family) error {
	for i := range families {
		f := &families[i]
		if len(f.series) == 0 {
			continue
		}
		kind := dto.MetricType_GAUGE
		if f.Counter {
			kind = dto.MetricType_COUNTER
		}
		if _, err := expfmt.MetricFamilyToText(w, &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: &kind, Metric: f.series}); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
}

// BytesPerSecond is a rate in bits per second in Prometheus' base unit.
func BytesPerSecond(bps uint64) float64 { return float64(bps) / 8 }

// Truth is 1 for what is so.
func Truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
