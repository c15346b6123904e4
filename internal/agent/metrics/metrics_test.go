package metrics

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/golden"
	"github.com/weir-project/weir/test/must"
)

// host is a snapshot of so many containers, every value of which is different.
func host(containers int) v1.Snapshot {
	s := v1.Snapshot{Status: v1.Status{
		Version: "test", State: v1.StateDegraded, AgeMS: 12.5,
		Uplinks: []v1.Uplink{
			{Name: "eth0", RateBPS: 100e6, ReserveBPS: 5e6, SentBPS: 40e6, Scheduler: "htb+fq_codel", Present: true, State: v1.StateOK},
			{Name: "wwan0", RateBPS: 10e6, ReserveBPS: 500e3, Scheduler: "htb+sfq", State: v1.StateDegraded, Reason: "gone"},
		},
		Sources: []v1.Source{{Name: "docker", Connected: true}, {Name: "podman", Reason: "no socket"}},
		Turns:   v1.Turns{Count: 100, SumSeconds: 3.5, Buckets: []v1.TurnBucket{{UpToSeconds: 0.04, Count: 98}, {UpToSeconds: 0.055, Count: 99}}},
	}}
	for i := range uint64(containers) {
		s.Containers = append(s.Containers, v1.Container{
			Name: fmt.Sprint("web-", i), ID: fmt.Sprint("id-", i), Runtime: "docker", Mode: v1.ModeBridge, State: v1.StateOK, Direction: v1.Direction{Policy: v1.Policy{Weight: 100 + uint32(i), MinBPS: 8e3, MaxBPS: 80e6, Priority: 3}, Shares: []v1.Share{{
				Uplink: "eth0", Controlled: true, EntitledBPS: 20e6 + i, AllocatedBPS: 24e6 + i, AdmittedBPS: 8e3, LatencyMS: 20, WantsMore: i == 0,
				RateBPS: 23_456_789 + i, BacklogBytes: 1234 + i, SentBytes: 1<<40 + i, SentPackets: 1<<30 + i, DroppedPackets: i, MarkedPackets: 3 + i,
				DelayP50MS: 0.124, DelayP99MS: 12.4,
			}}},
		})
	}
	return s
}

func text(t testing.TB, s v1.Snapshot) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, Write(&b, s))
	return b.String()
}

func TestWrite(t *testing.T) {
	s := host(2)
	s.Status.Uplinks[0].In = &v1.UplinkIn{RateBPS: 95e6}
	s.Containers[0].In = &v1.Direction{Policy: v1.Policy{MaxBPS: 8e6}, Shares: []v1.Share{{Uplink: "eth0", Controlled: true, RateBPS: 7e6, SentBytes: 5}}}
	s.Containers[1].State = v1.StateRejected
	s.Containers[1].Policy.MaxBPS, s.Containers[1].Shares[0].LatencyMS = 0, 0
	s.Containers = append(s.Containers, v1.Container{
		Name: "host", Runtime: "host", Mode: v1.ModeHost, State: v1.StateDegraded, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}, {Uplink: "wwan0", AdmittedBPS: 1e6}}},
	}, v1.Container{Name: "shop/web", Runtime: "kubernetes", Mode: v1.ModeBridge, Direction: v1.Direction{Shares: []v1.Share{{Uplink: "eth0"}}}})
	s.Containers[0].Shares[0].Classes = []v1.ClassShare{
		{Class: v1.ClassEF, MaxBPS: 4e6, RateBPS: 3e6, ExcessBPS: 8e5, ExcessBytes: 1e6, Held: true, SentBytes: 5e6, SentPackets: 4000, DroppedPackets: 1, MarkedPackets: 2, DelayP50MS: 0.2, DelayP99MS: 0.9},
		{Class: v1.ClassAF, MinBPS: 8e6, RateBPS: 1e6},
		{Class: v1.ClassBE, BacklogBytes: 3000, DroppedPackets: 7, MarkedPackets: 9},
	}
	got := text(t, s)
	golden.Compare(t, "testdata/metrics.golden", got)
	problems, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %+v", err, problems)
	}
}

// Whatever a container is called, others' metrics can be read, and its own.
func TestNames(t *testing.T) {
	names := []string{"<b>x</b>", "\x1b[31m", "a\"b", "line\nbreak", `back\slash`, "broken \xff\xfe", "", "ünïcode", "{}"}
	s := host(len(names))
	for i, name := range names {
		s.Containers[i].Name = name
	}
	// Two of the same name in one engine cannot be: a scrape must not break over it.
	s.Containers = append(s.Containers, s.Containers[0])
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text(t, s)))
	must.Succeed(t, err)
	metrics := families["weir_container_rate_bytes_per_second"].GetMetric()
	if len(metrics) != len(names) {
		t.Fatalf("%d containers, want %d", len(metrics), len(names))
	}
	for i, m := range metrics {
		want := strings.ToValidUTF8(names[i], "\uFFFD")
		if label := m.GetLabel()[0]; label.GetName() != "container" || label.GetValue() != want {
			t.Errorf("%q is called %s %q", names[i], label.GetName(), label.GetValue())
		}
	}
	// No ID and no reason is a label: those never come back.
	if strings.Contains(text(t, s), "id-") {
		t.Error("there are labels without a bound")
	}
}

func TestNothing(t *testing.T) {
	got := text(t, v1.Snapshot{Status: v1.Status{State: v1.StateOK}})
	if !strings.Contains(got, "weir_agent_degraded 0\n") || strings.Contains(got, "weir_container") || strings.Contains(got, "weir_uplink") {
		t.Errorf("%s", got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenWriter(t *testing.T) {
	if err := Write(brokenWriter{}, host(1)); err == nil || !strings.Contains(err.Error(), "write metrics") {
		t.Errorf("%v", err)
	}
}

// BenchmarkWrite: a scrape of 1000 containers, to be below 50 ms.
func BenchmarkWrite(b *testing.B) {
	s := host(1000)
	var buffer bytes.Buffer
	for b.Loop() {
		buffer.Reset()
		if err := Write(&buffer, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(buffer.Len()), "B/scrape")
	b.ReportAllocs()
}
