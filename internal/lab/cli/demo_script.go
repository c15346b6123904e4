package cli

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// actor is a container of the demo.
type actor struct {
	name   string
	labels map[string]string
	load   traffic.SenderOptions // without its target
	port   uint16                // that it sends to, counted from demoPort
}

// stage is what scenes act on.
type stage interface {
	// start starts a container that is not there, and waits until the agent
	// has it under control.
	start(context.Context, actor) error
	speak(context.Context, actor) error
	silence(context.Context, actor) error
	// download has an actor receive over so many TCP connections, until endDownloads.
	download(ctx context.Context, a actor, connections int) error
	endDownloads()
	set(context.Context, actor, v1.PolicyChange) error
	reset(context.Context, actor) error
}

// scene is something that happens, and what to look at.
type scene struct {
	text string
	play func(context.Context, stage) error
}

// demoScript is what is shown. Scenes from repeat on start over when the last
// has been shown.
type demoScript struct {
	actors []actor
	scenes []scene
	repeat int
}

const (
	demoMinPercent    = 30
	demoCameraPercent = 28 // less than its minimum
	demoMaxPercent    = 20

	sceneTime    = 8 * time.Second
	minSceneTime = time.Second
)

// sceneTime returns the duration of a scene with which all are shown in duration; 0 means there
// is no hurry.
func (s demoScript) sceneTime(duration time.Duration) time.Duration {
	if duration == 0 {
		return sceneTime
	}
	return min(max(duration/time.Duration(len(s.scenes)), minSceneTime), sceneTime)
}

// newDemoScript writes the script for a link of rateBPS.
func newDemoScript(rateBPS uint64) demoScript {
	part := func(percent uint64) uint64 { return rateBPS / 100 * percent }
	minimum, maximum := policy.FormatRate(part(demoMinPercent)), policy.FormatRate(part(demoMaxPercent))
	tcp := func(connections int) traffic.SenderOptions {
		return traffic.SenderOptions{Protocol: traffic.TCP, Connections: connections}
	}
	// A fast sender hands several datagrams to the kernel at once, as QUIC
	// does, or a small machine cannot keep the pace.
	segments := 1
	if part(demoCameraPercent) > 100_000_000 {
		segments = 8
	}
	var (
		backup    = actor{"backup", map[string]string{policy.LabelMax: maximum}, tcp(8), 0}
		analytics = actor{"analytics", map[string]string{policy.LabelWeight: "100"}, tcp(16), 1}
		web       = actor{"web", map[string]string{policy.LabelWeight: "300"}, tcp(4), 2}
		camera    = actor{"camera", map[string]string{policy.LabelMin: minimum},
			traffic.SenderOptions{Protocol: traffic.UDP, RateBPS: part(demoCameraPercent), SegmentsPerSend: segments}, 3}
	)
	enter := func(a actor) func(context.Context, stage) error {
		return func(ctx context.Context, s stage) error {
			if err := s.start(ctx, a); err != nil {
				return err
			}
			return s.speak(ctx, a)
		}
	}
	none, weight := "none", "300"
	scenes := []scene{
		{fmt.Sprintf("backup starts with weir.max=%s. It has 8 connections and the link to itself, "+
			"and gets no more than %s.", maximum, maximum), enter(backup)},
		{"analytics starts with weir.weight=100 and 16 connections. It takes what backup may not have.",
			enter(analytics)},
		{"web starts with weir.weight=300 and 4 connections. It gets three times what analytics gets: " +
			"weights count, connections do not.", enter(web)},
		{fmt.Sprintf("camera starts with weir.min=%s and sends %s of UDP. It gets all of that at once and drops nothing; "+
			"the others make room in proportion to their weights.", minimum, policy.FormatRate(part(demoCameraPercent))),
			enter(camera)},
		{"web falls silent. What it leaves goes to those that want it, past the marks | of what they are entitled to; " +
			"backup still stops at its maximum.",
			func(ctx context.Context, s stage) error {
				s.endDownloads()
				return s.silence(ctx, web)
			}},
		{"weir set backup --weight 300 --max none. Now backup gets three times what analytics gets.",
			func(ctx context.Context, s stage) error {
				return s.set(ctx, backup, v1.PolicyChange{Weight: &weight, Max: &none})
			}},
		{"web sends again. Its weight and backup's are equal, and so are their shares.",
			func(ctx context.Context, s stage) error { return s.speak(ctx, web) }},
		{"weir reset backup. Its labels count again: weight 100, so a third of what web gets.",
			func(ctx context.Context, s stage) error { return s.reset(ctx, backup) }},
		{fmt.Sprintf("analytics and web download, by 16 and 4 connections. As the agent runs with --in-rate %s, received traffic "+
			"is shared by the same weights: see the lines \"in\".", policy.FormatRate(rateBPS)),
			func(ctx context.Context, s stage) error {
				if err := s.download(ctx, analytics, 16); err != nil {
					return err
				}
				return s.download(ctx, web, 4)
			}},
	}
	return demoScript{actors: []actor{backup, analytics, web, camera}, scenes: scenes, repeat: 4}
}

// play plays the scenes, each for every, until ctx ends. announce is told of
// each before it happens.
func (s demoScript) play(ctx context.Context, on stage, every time.Duration, announce func(text string)) error {
	next := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		if i == len(s.scenes) {
			i = s.repeat
		}
		announce(s.scenes[i].text)
		if err := s.scenes[i].play(ctx, on); err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
		// What it took to play counts, so that there is time for all.
		next = next.Add(every)
		wait(ctx, max(time.Until(next), every/2))
	}
	return nil
}
