package metrics

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/golden"
)

func busy() (edge.Snapshot, map[edge.EventKind]uint64) {
	return edge.Snapshot{
		At: time.UnixMilli(1_700_000_000_500), Version: "test", Engine: "swarm",
		Nodes: []edge.Node{
			{Name: "a", State: "ready", Weir: true, AgeSeconds: 0.4, CPUs: 4, CPUUsedPercent: 37.5, MemoryBytes: 1 << 30, MemoryUsedBytes: 1 << 28, DiskFreeBytes: 5e9, UplinkBPS: 100e6, UplinkSentBPS: 24e6, PromisedBPS: 40e6, FreeBPS: 55e6, InPromisedBPS: 8e6, InFreeBPS: 40e6},
			{Name: "b\xff\"", State: "gone", AgeSeconds: 9},
		},
		Services: []edge.Service{
			{Name: "shop", Users: 18, Waiting: 3, ResponseMS: 125, ResponseP95MS: 250, DeliveryMS: 100, Requests: 1000, FailedRequests: 2, SentBytes: 1 << 33},
			{Name: "wiki", Reason: "no room"},
		},
		Instances: []edge.Instance{
			{Service: "shop", Node: "a", Instance: "shop.1", State: "running", Users: 10}, {Service: "shop", Node: "a", Instance: "shop.2", State: "running", Users: 5},
			{Service: "shop", Node: "b", Instance: "shop.3", State: "failed"}, {Service: "wiki", State: "pending"},
		},
	}, map[edge.EventKind]uint64{edge.EventDecision: 7, edge.EventFailed: 1}
}

// Renew with: go test ./internal/edge/metrics -update
func TestGolden(t *testing.T) {
	s, events := busy()
	var b bytes.Buffer
	if err := Write(&b, s, events); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/metrics.txt", b.String())
	problems, err := promlint.New(strings.NewReader(b.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Before anything was seen there is what can be said, and it can be read.
func TestNothing(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, edge.Snapshot{}, nil); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil || len(families) != 1 || families["weir_edge_build_info"] == nil {
		t.Errorf("%v, %v", families, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

func TestWriteFails(t *testing.T) {
	if err := Write(full{}, edge.Snapshot{}, nil); err == nil {
		t.Error("no error")
	}
}

// Labels are of what there is: however often instances come and go, there are no more
// series.
func TestBounded(t *testing.T) {
	count := func(instances int) int {
		s, events := busy()
		for i := range instances {
			s.Instances = append(s.Instances, edge.Instance{Service: "shop", Node: "a", Instance: strings.Repeat("x", i), State: "running"})
		}
		var b bytes.Buffer
		if err := Write(&b, s, events); err != nil {
			t.Fatal(err)
		}
		return strings.Count(b.String(), "\n")
	}
	if few, many := count(0), count(500); few != many {
		t.Errorf("%d lines, and %d with 500 instances more", few, many)
	}
}
