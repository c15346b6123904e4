package cli

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/share/alloc"
	"github.com/weir-project/weir/internal/share/policy"
)

// idealStage gives everybody the ideal allocation.
type idealStage struct {
	t        *testing.T
	rateBPS  uint64
	names    []string
	policies map[string]v1.Policy
	labels   map[string]v1.Policy
	speaking map[string]uint64 // demand
}

func (s *idealStage) start(_ context.Context, a actor) error {
	p, problems := policy.Parse(a.labels)
	if len(problems) > 0 {
		s.t.Errorf("labels of %s: %v", a.name, problems)
	}
	if !slices.Contains(s.names, a.name) {
		s.names = append(s.names, a.name)
	}
	s.policies[a.name], s.labels[a.name] = p, p
	return nil
}

func (s *idealStage) speak(_ context.Context, a actor) error {
	s.speaking[a.name] = alloc.Unlimited
	if a.load.RateBPS > 0 {
		s.speaking[a.name] = a.load.RateBPS
	}
	return nil
}

func (s *idealStage) silence(_ context.Context, a actor) error {
	delete(s.speaking, a.name)
	return nil
}

func (*idealStage) download(context.Context, actor, int) error { return nil }

func (*idealStage) endDownloads() {}

func (s *idealStage) set(_ context.Context, a actor, change v1.PolicyChange) error {
	p := s.policies[a.name]
	set, err := policy.CheckChange(p, policy.Default(), change)
	s.policies[a.name] = policy.Resolve(policy.Inputs{Defaults: policy.Values{
		Weight: &p.Weight, MinBPS: &p.MinBPS, MaxBPS: &p.MaxBPS, Priority: &p.Priority, LatencyMS: &p.LatencyMS, Class: &p.Class,
	}, Set: set}).Policy
	return err
}

func (s *idealStage) reset(_ context.Context, a actor) error {
	s.policies[a.name] = s.labels[a.name]
	return nil
}

// percent is what everybody gets, in percent of the link, rounded.
func (s *idealStage) percent() map[string]int {
	var containers []alloc.Container
	for _, name := range s.names {
		p := s.policies[name]
		ceiling := alloc.Unlimited
		if p.MaxBPS > 0 {
			ceiling = p.MaxBPS
		}
		containers = append(containers, alloc.Container{Weight: p.Weight, FloorBPS: p.MinBPS,
			CeilingBPS: ceiling, Priority: p.Priority, DemandBPS: s.speaking[name]})
	}
	var a alloc.Allocator
	shares := a.Allocate(nil, s.rateBPS, containers, alloc.Entitle(s.rateBPS, containers))
	percent := map[string]int{}
	for i, name := range s.names {
		percent[name] = int((shares[i]*100 + s.rateBPS/2) / s.rateBPS)
	}
	return percent
}

// TestDemoScenes checks what the scenes' texts promise against the ideal
// allocation.
func TestDemoScenes(t *testing.T) {
	for _, rateBPS := range []uint64{minDemoRateBPS, 100_000_000, maxDemoRateBPS} {
		s := newDemoScript(rateBPS)
		stage := &idealStage{t: t, rateBPS: rateBPS, policies: map[string]v1.Policy{},
			labels: map[string]v1.Policy{}, speaking: map[string]uint64{}}
		want := []map[string]int{
			{"backup": 20},
			{"backup": 20, "analytics": 80},
			{"backup": 20, "analytics": 20, "web": 60},
			{"backup": 14, "analytics": 14, "web": 43, "camera": 28},
			{"backup": 20, "analytics": 52, "web": 0, "camera": 28},
			{"backup": 54, "analytics": 18, "web": 0, "camera": 28},
			{"backup": 31, "analytics": 10, "web": 31, "camera": 28},
			{"backup": 14, "analytics": 14, "web": 43, "camera": 28},
			{"backup": 14, "analytics": 14, "web": 43, "camera": 28}, // and downloads
		}
		// Twice: the scenes from repeat on must do after the last one, too.
		for round := range 2 {
			for i := round * s.repeat; i < len(s.scenes); i++ {
				if err := s.scenes[i].play(t.Context(), stage); err != nil {
					t.Fatal(err)
				}
				for name, percent := range stage.percent() {
					if percent != want[i][name] {
						t.Errorf("at %d bit/s, after %q: %s gets %d %%, not %d %%", rateBPS, s.scenes[i].text, name, percent, want[i][name])
					}
				}
			}
		}
	}
}

func TestDemoPlaysScenesUntilItsEnd(t *testing.T) {
	s := newDemoScript(100_000_000)
	stage := &idealStage{t: t, policies: map[string]v1.Policy{}, labels: map[string]v1.Policy{}, speaking: map[string]uint64{}}
	ctx, cancel := context.WithCancel(t.Context())
	var seen []string
	err := s.play(ctx, stage, time.Microsecond, func(text string) {
		if seen = append(seen, text); len(seen) == len(s.scenes)+1 {
			cancel()
		}
	})
	if err != nil || seen[len(s.scenes)] != s.scenes[s.repeat].text {
		t.Errorf("after the last scene came %q, %v", seen[len(s.scenes)], err)
	}
}

func TestDemoSceneTime(t *testing.T) {
	s := demoScript{scenes: make([]scene, 8)}
	for duration, want := range map[time.Duration]time.Duration{
		0: sceneTime, time.Hour: sceneTime, 32 * time.Second: 4 * time.Second, time.Second: minSceneTime,
	} {
		if got := s.sceneTime(duration); got != want {
			t.Errorf("%v in all: %v for a scene, want %v", duration, got, want)
		}
	}
}

func TestDemoRefusesWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--rate", "fast"}, {"--rate", "999kbit"}, {"--rate", "10.1gbit"}, {"--duration", "-1s"}, {"extra"},
	} {
		var out, diagnostics bytes.Buffer
		if code := Run(append([]string{"weir", "demo"}, args...), &out, &diagnostics); code != cmdline.Usage || diagnostics.Len() == 0 {
			t.Errorf("weir demo %v: exit code %d, %q", args, code, diagnostics.String())
		}
	}
}
